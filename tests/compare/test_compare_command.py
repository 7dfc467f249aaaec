"""`invoke compare` on bundles: which runs are meant, what it writes, how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from evidence_kit import bundle, measurement, run

from eaglelab.commands.positionals import words_typed

STEADY = (100.0, 102.0, 98.0, 101.0)
BASE = (90.0, 90.5, 89.5, 90.0)
A, B, C = "20261129-100000-bench-aaaa", "20261129-110000-bench-bbbb", "20261130-120000-sweep-cccc"


@pytest.fixture
def three(logs: Path) -> Path:
    """A; B slower by 5 % on another release; C as fast as A."""
    for name, share, sglang in ((A, 1.0, "0.5.9"), (B, 0.95, "0.5.12"), (C, 1.0, "0.5.9")):
        rates = [rate * share for rate in STEADY]
        bundle(logs, run(name, measurement(None, BASE), measurement(2, rates, phases={}), sglang=sglang))
    return logs


def test_the_first_named_is_the_reference_and_all_others_are_held_against_it(invoke: Any, three: Path) -> None:
    done = invoke("compare", A, B, C, "--json")
    assert done.code == 0, done.err
    found = done.json["compare"]["comparisons"]
    assert [(each["reference"]["label"], each["candidate"]["label"]) for each in found] == [("A", "B"), ("A", "C")]
    assert [each["candidate"]["runs"][0]["run"] for each in found] == [B, C]
    assert "B is 5.0 % slower than A at 2 steps, concurrency 1 (5.0 to 5.0)" in done.err
    assert "changed: sglang 0.5.9 -> 0.5.12." in " ".join(done.err.split())
    rate = found[0]["settings"][1]["differences"]["tok_s"]
    assert (rate["percent"]["value"], rate["verdict"], rate["paired"]) == (-5, "lower", True)
    assert found[1]["settings"][1]["differences"]["tok_s"]["verdict"] == "tie"


@pytest.mark.parametrize(
    ("reference", "candidate"), [("aaaa", "bbbb"), ("20261129-10", "20261129-11"), (f"{A}:gpu1", "bbbb:gpu1")]
)
def test_a_run_is_named_by_a_beginning_or_end_and_its_host(
    invoke: Any, three: Path, reference: str, candidate: str
) -> None:
    done = invoke("compare", reference, candidate, "--json")
    assert done.code == 0, done.err
    (found,) = done.json["compare"]["comparisons"]
    assert (found["reference"]["runs"][0]["run"], found["candidate"]["runs"][0]["run"]) == (A, B)


def test_a_run_is_named_by_its_folder_or_as_the_last(invoke: Any, three: Path) -> None:
    done = invoke("compare", str(three / A), "last", "--json")
    assert done.code == 0, done.err
    assert done.json["compare"]["comparisons"][0]["candidate"]["runs"][0]["run"] == C


def test_last_passes_over_runs_that_measured_nothing(invoke: Any, three: Path) -> None:
    (three / "20261201-000000-status-dddd").mkdir()
    assert invoke("compare", A, "last", "--json").json["compare"]["comparisons"][0]["candidate"]["runs"][0]["run"] == C


def test_runs_with_a_comma_are_loads_of_one_side(invoke: Any, three: Path) -> None:
    done = invoke("compare", f"{A},{C}", B, "--json")
    assert done.code == 0, done.err
    (found,) = done.json["compare"]["comparisons"]
    assert [each["run"] for each in found["reference"]["runs"]] == [A, C]
    assert found["settings"][1]["differences"]["tok_s"]["unit"] == "loads"


@pytest.fixture
def two_hosts(logs: Path) -> Path:
    for host, share in (("gpu1", 1.0), ("gpu2", 0.9)):
        rates = [rate * share for rate in STEADY]
        bundle(logs, run(A, measurement(2, rates), host=host), ["gpu1", "gpu2"]) if host == "gpu1" else _second(
            logs, rates
        )
    return logs


def _second(logs: Path, rates: list[float]) -> None:
    elsewhere = bundle(logs.parent / "made", run(A, measurement(2, rates), host="gpu2"), ["gpu1", "gpu2"])
    (elsewhere / "gpu2").rename(logs / A / "gpu2")


def test_one_run_of_two_hosts_compares_the_hosts(invoke: Any, two_hosts: Path) -> None:
    done = invoke("compare", A, "--json")
    assert done.code == 0, done.err
    (found,) = done.json["compare"]["comparisons"]
    assert [found[side]["runs"][0]["host"] for side in ("reference", "candidate")] == ["gpu1", "gpu2"]
    assert found["settings"][0]["differences"]["tok_s"]["percent"]["value"] == -10


def test_a_run_of_two_hosts_beside_another_needs_its_host(invoke: Any, two_hosts: Path) -> None:
    bundle(two_hosts, run(B, measurement(2, STEADY)))
    done = invoke("compare", B, A)
    assert done.code == 2
    assert f"name one: {A}:gpu1, {A}:gpu2" in done.err
    assert invoke("compare", B, f"{A}:gpu2").code == 0


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ([], "no run is named"),
        ([A], "alone cannot be compared"),
        ([A, "20261129-1200"], "there is no run '20261129-1200'"),
        ([A, ""], "there is no run ''"),
        ([A, "2026"], "'2026' may be any of 3 runs"),
        ([A, A], "A and B are the same run"),
        ([A, f"{B}:gpu7"], "has nothing of host 'gpu7'"),
        ([A, "../.."], "nothing of a run is in it"),
    ],
)
def test_names_that_mean_no_two_runs_end_with_2(invoke: Any, three: Path, names: list[str], said: str) -> None:
    done = invoke("compare", *names)
    assert (done.code, done.out) == (2, ""), done.err
    assert said in done.err
    assert "hint:" in done.err


def test_a_run_that_measured_nothing_ends_with_2(invoke: Any, three: Path) -> None:
    folder = three / "20261201-000000-status-dddd"
    folder.mkdir()
    (folder / "events.jsonl").write_text('{"time": 1}\n')
    done = invoke("compare", A, "dddd")
    assert done.code == 2
    assert "says anything about speed" in done.err


def test_gates_that_hold_end_with_0_and_one_that_is_missed_with_4(invoke: Any, three: Path) -> None:
    assert invoke("compare", A, B, "--gate", "tok_s >= -6%").code == 0
    done = invoke("compare", A, B, "--gate", "tok_s >= -3%", "--gate", "accept_length >= -0.1", "--json")
    assert done.code == 4
    assert done.json["ok"] is False
    assert done.json["exit_code"] == 4
    assert "1 of 2 gates missed: B, tok_s >= -3% at 2 steps, concurrency 1: -5.00 %" in done.json["error"]["what"]
    gates = done.json["compare"]["comparisons"][0]["gates"]
    assert [(each["metric"], each["setting"], each["held"]) for each in gates] == [
        ("tok_s", "the baseline, concurrency 1", True),
        ("tok_s", "2 steps, concurrency 1", False),
        ("accept_length", "2 steps, concurrency 1", True),
    ]


def test_every_candidate_passes_the_gates_or_not(invoke: Any, three: Path) -> None:
    assert invoke("compare", A, C, "--gate", "tok_s >= -3%").code == 0
    assert invoke("compare", A, C, B, "--gate", "tok_s >= -3%").code == 4


def test_a_gate_on_what_was_not_measured_ends_with_4(invoke: Any, three: Path) -> None:
    assert invoke("compare", A, C, "--gate", "tok_s@7 >= -50%").code == 4


def test_a_gate_that_cannot_be_read_ends_with_2_before_any_run_is_read(invoke: Any, logs: Path) -> None:
    done = invoke("compare", "none", "such", "--gate", "toks >= -3%")
    assert done.code == 2
    assert "did you mean 'tok_s'?" in done.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--judge", "strickt", "--gate", "tok_s >= -3%"], "did you mean 'strict'?"),
        (["--junit", "j.xml"], "none is given"),
        (["--junit", "", "--gate", "tok_s >= -3%"], "it is empty"),
        (["--junit", "/no/such/folder/j.xml", "--gate", "tok_s >= -3%"], "cannot write it"),
    ],
)
def test_options_that_cannot_be_used_end_with_2(invoke: Any, three: Path, options: list[str], said: str) -> None:
    done = invoke("compare", A, C, *options)
    assert done.code == 2
    assert said in done.err


def test_the_strict_way_is_an_option(invoke: Any, logs: Path) -> None:
    bundle(logs, run(A, measurement(2, (100.0, 100.0, 100.0))))
    bundle(logs, run(B, measurement(2, (97.0, 99.0, 101.0))))
    assert invoke("compare", A, B, "--gate", "tok_s >= -3%").code == 0
    assert invoke("compare", A, B, "--gate", "tok_s >= -3%", "--judge", "strict").code == 4
    assert invoke("compare", A, B, "--gate", "tok_s >= -0.5%", "--judge", "lenient").code == 0


def test_files_are_written_whether_or_not_a_gate_is_missed(invoke: Any, three: Path, tmp_path: Path) -> None:
    junit, summary = tmp_path / "j.xml", tmp_path / "s.md"
    done = invoke("compare", A, B, C, "--gate", "tok_s >= -3%", "--junit", str(junit), "--markdown", str(summary))
    assert done.code == 4
    root = ET.parse(junit).getroot()
    assert [suite.get("failures") for suite in root] == ["1", "0"]
    assert summary.read_text().count("## ") == 2


def test_the_order_of_names_and_options_does_not_matter(invoke: Any, three: Path) -> None:
    for argv in (
        ["compare", "--gate", "tok_s >= -3%", A, C],
        ["compare", A, "--gate=tok_s >= -3%", C],
        ["compare", A, C, "--json", "--gate", "tok_s >= -3%"],
    ):
        assert invoke(*argv).code == 0, argv


class Option:
    takes_value = True
    names = ("gate",)


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("invoke compare A B C", 3),
        ("invoke compare A --gate x B", 2),
        ("invoke compare --gate=x A B", 2),
        ("invoke compare A B --json", 2),
        ("invoke compare --json A B", 2),
        ("invoke compare A -- B", 1),
        ("invoke compare", 0),
        ("invoke --list", 0),
        ("invoke --debug compare A compare", 2),
    ],
)
def test_the_names_typed_are_counted_as_invoke_reads_them(line: str, count: int) -> None:
    assert words_typed(line.split(), "compare", [Option()]) == count


def test_names_from_elsewhere_cannot_steer_the_terminal(invoke: Any, three: Path) -> None:
    evidence = run("evil\x1b[2J-eeee", measurement(2, STEADY), facts={"machine": "\x1b]0;x\x07[bold]y"})
    bundle(three, evidence)
    done = invoke("compare", A, "eeee", "--gate", "tok_s >= -3%")
    assert done.code == 0, done.err
    assert "\x1b" not in done.out
    assert "\x07" not in done.out


def test_a_damaged_file_is_named_and_costs_only_itself(invoke: Any, three: Path) -> None:
    (three / B / "facts.json").write_text("{")
    done = invoke("compare", A, B)
    assert done.code == 0
    assert "facts.json is damaged and left out" in " ".join(done.out.split())


def test_damaged_rows_of_sglangs_client_end_with_2(invoke: Any, three: Path) -> None:
    (three / B / "serving.json").write_text(json.dumps({"runs": [{"row": 1}]}))
    done = invoke("compare", A, B)
    assert done.code == 2
    assert "rows of SGLang's client are damaged" in done.err


ODD = ["1", '"x"', "[1]", "{}", '{"a": 1}', "null"]


@pytest.mark.parametrize("value", ODD)
def test_files_of_any_shape_never_end_it_with_an_unexpected_error(invoke: Any, three: Path, value: str) -> None:
    odd = json.loads(value)
    folder = three / B
    (folder / "facts.json").write_text(
        json.dumps(dict.fromkeys(("gpus", "machine", "hostname", "sglang_version"), odd))
    )
    (folder / "inventory.json").write_text(json.dumps({"server": odd}))
    (folder / "request.json").write_text(json.dumps({"command": "bench", "hosts": ["gpu1"], "vars": odd}))
    (folder / "server_info.json").write_text(json.dumps({"attention_backend": odd, "simulated": odd}))
    names = ("steps", "patch", "workers", "env", "command", "flags")
    (folder / "k2" / "fingerprint.json").write_text(json.dumps(dict.fromkeys(names, odd)))
    (folder / "k2" / "server.json").write_text(json.dumps({"env": odd, "steps": odd}))
    (folder / "k2" / "gpus.json").write_text(json.dumps({"before": odd, "after": [odd]}))
    (folder / "k2" / "measured-c1.json").write_text(
        json.dumps({"concurrency": 1, "args": {"seed": odd, "prompts": odd}})
    )
    done = invoke("compare", A, B)
    assert done.code == 0, done.err
    assert invoke("logs", "--runs").code == 0


def test_the_program_itself_takes_many_names_and_ends_with_the_gates_code(three: Path, project: Path) -> None:
    names = [str(three / name) for name in (A, B, C)]
    line = [sys.executable, "-m", "invoke", "compare", "--gate", "tok_s >= -3%", *names, "--json"]
    done = subprocess.run(line, cwd=project, capture_output=True, text=True)
    assert done.returncode == 4, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])["compare"]["comparisons"]
    assert [all(gate["held"] for gate in each["gates"]) for each in found] == [False, True]
