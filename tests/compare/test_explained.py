"""What compare says of why two runs differ: each kind of finding once where it holds, once where it does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from evidence_kit import bundle, measurement, run

from eaglelab.compare.comparison import Side, compare
from eaglelab.compare.explained import Explanation, explanations
from eaglelab.compare.metrics import METRICS
from eaglelab.profile.log_report import LogReport
from eaglelab.profile.logfile import read_logs
from eaglelab.profile.notable import NotableLine
from eaglelab.runs.evidence import RunEvidence

FAST, SLOW = (100.0, 102.0, 98.0, 101.0), (80.0, 81.6, 78.4, 80.8)
A, B = "20261129-100000-bench-aaaa", "20261129-110000-bench-bbbb"
CLOCKS = "clocks_throttle_reasons.active"


def made(name: str, rates: Any = FAST, verify: float = 15.8, **more: Any) -> RunEvidence:
    return run(name, measurement(2, rates, phases={"verify": verify}), **more)


def clocked(evidence: RunEvidence, mhz: int, bits: str = "0x0") -> RunEvidence:
    gpus = [{"index": "0", "clocks.sm": str(mhz), CLOCKS: bits}]
    states = {"k2/c1": {"before": gpus, "after": gpus}}
    return replace(evidence, loads=tuple(replace(load, gpus=states) for load in evidence.loads))


def log(*notable: NotableLine) -> LogReport:
    return replace(read_logs([__file__]), notable=notable)


def found(a: RunEvidence, b: RunEvidence, logs: dict[str, LogReport] | None = None) -> dict[str, Explanation]:
    told = explanations(compare(Side("A", (a,)), Side("B", (b,))), lambda of: (logs or {}).get(of.run))
    return {each.diagnosis.code: each for each in told}


def test_a_slower_run_is_told_what_it_was_before_and_a_tie_nothing() -> None:
    told = found(made(A), made(B, SLOW, 20.0))
    assert told["speed-regressed"].of == "both"
    assert f"in {A} and is" in told["speed-regressed"].diagnosis.sentence
    assert found(made(A), made(B)) == {}


def test_lower_clocks_are_named_where_the_cycle_is_longer_and_not_where_it_is_not() -> None:
    told = found(clocked(made(A), 1980), clocked(made(B, SLOW, 20.0), 1410))
    assert "ran at 1410 MHz, and at 1980 MHz" in told["clocks-differ"].diagnosis.sentence
    evidence = told["clocks-differ"].diagnosis.evidence
    assert f"SM clock then: 1980 MHz (k2/c1/gpus.json, slowest GPU of run {A})" in evidence
    assert "clocks-differ" not in found(clocked(made(A), 1980), clocked(made(B, SLOW), 1410))  # by requests alone


def test_another_attention_backend_is_named_where_verify_moved_with_it() -> None:
    info = [{"speculative_num_steps": 2, "attention_backend": name} for name in ("fa3", "triton")]
    told = found(made(A, server_info=info[0]), made(B, SLOW, 20.0, server_info=info[1]))
    assert "backend triton, and took 15.80 ms with fa3" in told["attention-backend-differs"].diagnosis.sentence
    assert "attention-backend-differs" not in found(
        made(A, server_info=info[0]), made(B, SLOW, 15.9, server_info=info[1])
    )


def test_another_temperature_or_prompts_explain_another_accept_length() -> None:
    hot = {"temperature": 0.8, "prompts": "code.jsonl"}
    a = run(A, measurement(2, FAST))
    told = found(a, run(B, measurement(2, SLOW, verifies=80), workload=hot))
    assert {"sampling-differs", "prompts-differ"} <= told.keys()
    assert not {"sampling-differs", "prompts-differ"} & found(a, run(B, measurement(2, SLOW), workload=hot)).keys()
    assert not {"sampling-differs", "prompts-differ"} & found(a, run(B, measurement(2, SLOW, verifies=80))).keys()


def test_another_draft_explains_another_accept_length() -> None:
    models = [{"models": {"draft": {"path": path, "config": {}}}} for path in ("/m/old", "/m/new")]
    a = run(A, measurement(2, FAST), facts=models[0])
    assert "draft-differs" in found(a, run(B, measurement(2, SLOW, verifies=80), facts=models[1]))
    assert "draft-differs" not in found(a, run(B, measurement(2, SLOW, verifies=80), facts=models[0]))


def test_another_driver_and_another_release_are_named_where_the_cycle_moved() -> None:
    gpus = [{"gpus": [{"index": "0", "name": "H200", "driver_version": number}]} for number in ("550.1", "560.2")]
    a = made(A, facts=gpus[0])
    told = found(a, made(B, SLOW, 20.0, facts=gpus[1], sglang="0.5.12"))
    assert {"driver-differs", "release-differs"} <= told.keys()
    assert "560.2, and was 550.1" in told["driver-differs"].diagnosis.sentence
    assert not {"driver-differs", "release-differs"} & found(a, made(B, SLOW, 20.0, facts=gpus[0])).keys()


def test_what_holds_one_side_back_is_told_of_that_side_and_not_where_both_have_it() -> None:
    held, free = "0x0000000000000040", "0x0000000000000000"
    fast, slow = clocked(made(A), 1980, free), clocked(made(B, SLOW, 20.0), 1980, held)
    assert found(fast, slow)["clocks-held-back"].of == "candidate"
    better = found(replace(slow, run=A), replace(fast, run=B))
    assert better["clocks-held-back"].of == "reference"
    assert "clocks-held-back" not in found(clocked(made(A), 1980, held), slow)


def test_what_makes_the_faster_side_slow_explains_nothing() -> None:
    fast = clocked(made(B), 1980, "0x0000000000000040")
    assert "clocks-held-back" not in found(clocked(made(A, SLOW, 20.0), 1980), fast)


def test_what_one_side_says_counts_only_where_the_other_could_have_said_it() -> None:
    held = clocked(made(B, SLOW, 20.0), 1980, "0x0000000000000040")
    assert "clocks-held-back" not in found(made(A), held)  # nobody looked at the clocks of A
    lines = log(NotableLine("kv-retraction", 0, 5, "KV cache pool is full. Retract requests.", 7))
    a, b = made(A), made(B, SLOW, 20.0)
    assert found(a, b, {A: log(), B: lines})["requests-thrown-back"].of == "candidate"
    assert "requests-thrown-back" not in found(a, b, {B: lines})
    assert "requests-thrown-back" not in found(a, b, {A: lines, B: lines})


def test_of_several_runs_on_a_side_all_must_say_it() -> None:
    free, held = "0x0000000000000000", "0x0000000000000040"
    a = clocked(made(A), 1980, free)
    b = [clocked(made(f"{B}{number}", SLOW, 20.0), 1980, bits) for number, bits in enumerate((held, held, free))]
    both = explanations(compare(Side("A", (a,)), Side("B", tuple(b[:2]))), lambda _: None)
    one = explanations(compare(Side("A", (a,)), Side("B", tuple(b[1:]))), lambda _: None)
    assert "clocks-held-back" in {each.diagnosis.code for each in both}
    assert "clocks-held-back" not in {each.diagnosis.code for each in one}


@pytest.fixture
def two(logs: Path) -> Path:
    """A, and B with another draft of which less is accepted."""
    for name, rates, verifies, path in ((A, FAST, 50, "/m/old"), (B, SLOW, 80, "/m/new")):
        facts = {"models": {"draft": {"path": path, "config": {}}}}
        bundle(logs, run(name, measurement(2, rates, verifies=verifies), facts=facts))
    return logs


def test_terminal_json_and_markdown_have_the_findings_with_their_evidence(
    invoke: Any, two: Path, tmp_path: Path
) -> None:
    done = invoke("compare", "aaaa", "bbbb", "--markdown", str(tmp_path / "x.md"), "--json")
    assert done.code == 0, done.err
    said = " ".join(done.err.split())
    assert "on the difference:" in said
    assert "with the draft /m/new, and was" in said
    assert f"draft then: /m/old (inventory.json of run {A})" in said
    (comparison,) = done.json["compare"]["comparisons"]
    finding = next(each for each in comparison["findings"] if each["code"] == "draft-differs")
    assert (finding["of"], finding["certainty"]) == ("both", "possible")
    assert any("/m/old" in line for line in finding["evidence"])
    text = (tmp_path / "x.md").read_text()
    assert "| on the difference | rule | evidence |" in text
    assert "draft-differs, possible" in text


def test_two_runs_that_tie_have_none(invoke: Any, logs: Path, tmp_path: Path) -> None:
    for name in (A, B):
        bundle(logs, run(name, measurement(2, FAST)))
    done = invoke("compare", "aaaa", "bbbb", "--markdown", str(tmp_path / "x.md"), "--json")
    assert done.json["compare"]["comparisons"][0]["findings"] == []
    assert "on the difference" not in done.err + (tmp_path / "x.md").read_text()


def test_of_throughput_and_accept_length_more_is_better_and_of_all_times_less() -> None:
    assert {name for name, metric in METRICS.items() if metric.more_is_better} == {"tok_s", "accept_length"}
