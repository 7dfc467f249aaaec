from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from runs_of_numbers import measurement, run, setting

from eaglelab.diagnosis import diagnose, facts_of_run
from eaglelab.diagnosis.facts import Facts
from eaglelab.profile.cross import Reading
from eaglelab.profile.findings import Finding
from eaglelab.profile.measurement_set import Measurement
from eaglelab.profile.summary import Profile
from eaglelab.runs.evidence import LoadEvidence, RunEvidence


def value(facts: Facts, name: str, at: str | None = None) -> Any:
    found = (facts.whole if at is None else facts.settings[at]).get(name)
    return None if found is None else found.value


def codes(evidence: RunEvidence, **more: Any) -> list[str]:
    return [each.code for each in diagnose(facts_of_run(evidence, **more))]


def test_a_setting_is_held_against_the_baseline_of_its_batch() -> None:
    """100 tokens after the first in 1 s: a step of 10 ms; a cycle of 16 ms, verify 12 of it; 101 tokens in 0.8 s."""
    facts = facts_of_run(run(measurement(None, 1.0), measurement(2, 0.8, found=setting(2))))
    assert list(facts.settings) == ["2 steps, batch 1"]
    at = "2 steps, batch 1"
    assert value(facts, "plain_ms", at) == pytest.approx(10.0)
    assert value(facts, "plain_tok_s", at) == pytest.approx(101.0)
    assert value(facts, "tok_s", at) == pytest.approx(101 / 0.8)
    assert value(facts, "verify_ms", at) == 12.0
    assert value(facts, "first_draft_right", at) == 0.5
    assert value(facts, "last_draft_right", at) == 0.2
    assert value(facts, "baseline") is True


def test_a_slow_step_count_is_told_which_one_wins() -> None:
    evidence = run(
        measurement(None, 1.0), measurement(2, 0.8, found=setting(2)), measurement(10, 1.5, found=setting(10))
    )
    found = {each.code: each for each in diagnose(facts_of_run(evidence))}
    assert found["too-many-steps"].at == ("10 steps, batch 1",)
    assert "0.67 times" in found["too-many-steps"].sentence
    assert "is 2 (1.25 times)" in found["too-many-steps"].sentence
    assert "slower-than-plain" not in found
    assert "no-baseline" not in found


def test_where_no_step_count_wins_that_is_an_alarm() -> None:
    evidence = run(measurement(None, 1.0), measurement(2, 1.2), measurement(3, 1.3))
    assert codes(evidence)[:1] == ["slower-than-plain"]


def test_settings_that_tie_are_each_the_best() -> None:
    facts = facts_of_run(run(measurement(None, 1.0), measurement(2, 0.8), measurement(3, 0.8)))
    assert [value(facts, "best_steps", at) for at in facts.settings] == [2, 3]


def test_draft_time_for_one_step_more_is_a_line_that_begins_at_two_steps() -> None:
    settings = [setting(k, ms=(draft, 12.0, 1.0, 1.0)) for k, draft in ((1, 9.0), (2, 1.0), (3, 1.5), (5, 2.5))]
    facts = facts_of_run(run(*(measurement(each.steps, 1.0, found=each) for each in settings)))
    assert value(facts, "draft_slope_ms", "5 steps, batch 1") == pytest.approx(0.5)


def test_the_best_step_count_of_each_batch_is_compared() -> None:
    evidence = run(
        measurement(None, 1.0),
        measurement(2, 0.8),
        measurement(4, 0.7),
        measurement(None, 1.0, batch=8),
        measurement(2, 1.1, batch=8),
        measurement(4, 1.3, batch=8),
    )
    facts = facts_of_run(evidence)
    assert value(facts, "best_steps_words") == "4 at batch 1; 2 at batch 8"
    assert (value(facts, "wins_up_to_batch"), value(facts, "loses_from_batch")) == (1, 8)
    assert {"optimum-moves-with-batch", "loses-from-a-batch-on"} <= set(codes(evidence))


def test_step_counts_that_tie_at_one_batch_do_not_make_the_best_depend_on_it() -> None:
    evidence = run(
        *(measurement(steps, seconds) for steps, seconds in ((None, 1.0), (2, 0.8), (4, 0.8))),
        *(measurement(steps, seconds, batch=8) for steps, seconds in ((None, 1.0), (2, 0.9), (4, 0.8))),
    )
    facts = facts_of_run(evidence)
    assert value(facts, "best_steps_words") == "2 or 4 at batch 1; 4 at batch 8"
    assert value(facts, "best_steps_differ") is False


def test_the_rank_that_waits_least_is_the_straggler() -> None:
    slow = setting(2, verify_by_rank=(12.0, 12.1, 9.0, 12.0))
    facts = facts_of_run(run(measurement(2, 0.8, found=slow)))
    assert value(facts, "straggler_rank", "2 steps, batch 1") == 2
    assert value(facts, "skew_ms", "2 steps, batch 1") == pytest.approx(3.1)


def test_what_the_checks_of_a_measurement_found_is_evidence_too() -> None:
    findings = [Finding("closure", "alarm", "...", {"difference": 0.2})]
    one = measurement(2, 0.8, found=setting(2), findings=findings)
    reading = Reading("meta_info", 1.2, 10, "requests", "...", 0.01, agrees=False)
    evidence = run(Measurement(one.result, one.findings, (reading,), one.setting))
    facts = facts_of_run(evidence)
    assert value(facts, "closure_difference", "2 steps, batch 1") == 0.2
    assert value(facts, "sources_disagree", "2 steps, batch 1") == "meta_info 1.200"
    assert {"cycle-does-not-add-up", "sources-disagree"} <= set(codes(evidence))


def test_what_few_timed_cycles_are_off_by_chance_is_no_alarm_there_either() -> None:
    evidence = run(
        measurement(2, 0.8, found=setting(2), findings=[Finding("closure", "ok", "...", {"difference": 0.07})])
    )
    assert "cycle-does-not-add-up" not in codes(evidence)


def test_an_accept_length_that_falls_along_the_text_is_seen_in_the_chunks() -> None:
    chunks = (1, *[3] * 20, *[2] * 20, 1)
    facts = facts_of_run(run(measurement(2, 0.8, chunk_tokens=chunks, verifies=41)))
    assert value(facts, "accept_first_half", "2 steps, batch 1") == 3.0
    assert value(facts, "accept_second_half", "2 steps, batch 1") == 2.0
    assert value(facts, "accept_first_cycle", "2 steps, batch 1") == 3.0


def test_an_earlier_run_is_what_a_fall_is_held_against() -> None:
    then = run(measurement(2, 0.5, found=setting(2, hist=(10, 30, 60))), sglang="0.5.9")
    now = run(measurement(2, 0.8, found=setting(2, hist=(97, 2, 1))))
    assert {"broken-draft", "acceptance-regressed", "speed-regressed"} <= set(codes(now, earlier=then))
    assert not {"acceptance-regressed", "speed-regressed"} & set(codes(now, earlier=now))


def test_a_deploy_without_requests_is_read_from_its_profile() -> None:
    profile = Profile(None, ("0.5.12",), ("1.2.0",), (setting(2, 8, eager=100),), ())
    load = LoadEvidence(
        "", steps=(2,), profile=profile, fingerprint={"workers": {"srt/speculative/eagle_worker.py": "0"}}
    )
    evidence = run(loads=[load], server_info={"cuda_graph_max_bs": 4, "speculative_num_steps": 2})
    facts = facts_of_run(evidence)
    assert value(facts, "captured_batch") == 4
    assert {"graph-above-ceiling", "patched-file-did-not-run"} <= set(codes(evidence))
    assert "graph-off" not in codes(evidence)


@pytest.mark.parametrize(
    ("bits", "held"), [("0x0000000000000000", False), ("0x0000000000000040", True), ("0x1", False)]
)
def test_clocks_held_back_are_read_from_the_bits(bits: str, held: bool) -> None:
    gpus = [{"index": "0", "clocks.sm": "1980", "clocks_throttle_reasons.active": bits}]
    load = LoadEvidence("k2", steps=(2,), gpus={"k2/c1": {"before": gpus, "after": gpus}})
    facts = facts_of_run(run(measurement(2, 0.8), loads=[load]))
    assert value(facts, "throttled") is held
    assert (value(facts, "sm_clock_after") is None) == (bits == "0x1"), "an idle GPU's clock says nothing"


def test_what_nvidia_smi_does_not_say_is_not_known() -> None:
    gpus = [{"index": "0", "clocks.sm": "1980", "clocks_throttle_reasons.active": "[N/A]"}]
    load = LoadEvidence("k2", steps=(2,), gpus={"k2/c1": {"before": gpus, "after": gpus}})
    facts = facts_of_run(run(measurement(2, 0.8), loads=[load]))
    assert value(facts, "throttled") is None


def test_gpus_that_the_server_does_not_use_say_nothing() -> None:
    gpus = [{"index": str(index), "clocks_throttle_reasons.active": "0x40" if index else "0x0"} for index in range(2)]
    load = LoadEvidence("k2", steps=(2,), gpus={"k2/c1": {"before": gpus, "after": gpus}})
    assert value(facts_of_run(run(measurement(2, 0.8), loads=[load])), "throttled") is False


def test_the_models_that_doctor_read_are_known_of_a_run() -> None:
    models = {
        "target": {"path": "/m/t", "config": {"num_hidden_layers": 61, "n_routed_experts": 384, "vocab_size": 9}},
        "draft": {"path": "/m/d", "config": {"vocab_size": 9, "max_position_embeddings": 100}},
    }
    evidence = run(
        measurement(None, 1.0),
        measurement(2, 0.8, found=setting(2, ms=(1.0, 15.0, 1.0, 1.0))),
        facts={"models": models},
    )
    assert {"moe-verify", "draft-positions-exceeded"} <= set(codes(evidence))


def test_a_run_of_which_nothing_is_left_says_nothing() -> None:
    assert codes(run(inventory={}, sglang=None)) == []


JUNK: list[Any] = [None, "x", 3, True, [1], ["--tp-size"], {"a": 1}, {"config": 3}, [{"index": None}]]


@pytest.mark.parametrize("junk", JUNK, ids=str)
def test_a_bundle_that_was_tampered_with_costs_facts_and_nothing_else(junk: Any) -> None:
    load = LoadEvidence(
        "k2",
        steps=(2,),
        fingerprint={"command": junk, "variables": junk, "workers": junk},
        server={"command": junk},
        gpus={"k2": {"before": junk, "after": junk}},
        workloads={1: {"temperature": junk, "prompts": junk, "random_input_len": None}},
    )
    names = (
        "speculative_eagle_topk",
        "cuda_graph_bs",
        "cuda_graph_max_bs",
        "speculative_algorithm",
        "disable_cuda_graph",
    )
    for inventory in ({"server": junk}, {"server": {"speculative": junk, "flags": junk, "env": junk}}):
        evidence = run(
            measurement(2, 0.8),
            loads=[load],
            inventory=inventory,
            facts={"models": junk if not isinstance(junk, dict) else {"target": junk, "draft": junk}},
            server_info=dict.fromkeys(names, junk),
        )
        diagnose(facts_of_run(evidence))


def test_a_bundle_of_one_load_is_read_by_what_its_server_said(tmp_path: Path) -> None:
    load = LoadEvidence("", steps=(3,))
    facts = facts_of_run(run(loads=[load], server_info={"speculative_num_steps": 3, "speculative_num_draft_tokens": 2}))
    assert (value(facts, "served_steps"), value(facts, "draft_tokens")) == (3, 2)


def test_of_several_loads_the_last_server_says_only_what_they_share() -> None:
    command = [
        "python",
        "-m",
        "sglang.launch_server",
        "--speculative-num-steps",
        "{}",
        "--speculative-num-draft-tokens",
    ]
    loads = [
        LoadEvidence(
            f"k{steps}", steps=(steps,), fingerprint={"command": [*command[:4], str(steps), command[5], str(steps + 1)]}
        )
        for steps in (1, 5)
    ]
    info = {"speculative_num_steps": 1, "speculative_num_draft_tokens": 2, "cuda_graph_max_bs": 8}
    facts = facts_of_run(run(loads=loads, server_info=info))
    assert (value(facts, "served_steps"), value(facts, "draft_tokens"), value(facts, "captured_batch")) == (5, 6, 8)
