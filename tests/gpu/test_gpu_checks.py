"""What the checks make of results: figures that can be worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpu.validate.clocks import clock_checks
from gpu.validate.experiments import cost, faults, prediction, product, sweep, timing, tp, turns
from gpu.validate.experiments.prediction import predicted
from gpu.validate.experiments.timing import device_seconds
from gpu.validate.experiments.truth import truth_checks, worst_z
from gpu.validate.results import Check


def met(checks: list[Check]) -> list[bool | None]:
    return [check.met for check in checks]


def truth_run(**changes: Any) -> dict[str, Any]:
    rank = {
        "computed": {"2": [40, 24, 36]},
        "counted": {"2": [40, 24, 36]},
        "unknown": 0,
        "tokens_computed": 196,
        "tokens_counted": 196,
    }
    clients = {"ids_as_computed": 4, "verifies_as_computed": 4, "tokens": 200}
    data = {"requests": 4, "clients": {**clients}, "ranks": {"0": {**rank, **changes}}}
    return {"truth-v2-p0.6-b1": {"acceptance": 0.6, "steps": {"2": data}}}


def test_equal_histograms_meet_every_goal() -> None:
    checks = truth_checks("truth-", truth_run())
    assert met(checks) == [True] * 5
    assert checks[0].measured == "3 of 3 (100 request-cycles, 0 unknown; at least 200 tokens a K)"
    assert checks[4].measured == "worst +0.00 (K = 2, k = 1)"


@pytest.mark.parametrize(
    ("changes", "missed"),
    [
        ({"counted": {"2": [39, 25, 36]}}, [0]),
        ({"counted": {"2": [40, 24, 36], "3": [1, 0, 0, 0]}}, [0]),
        ({"counted": {"2": [70, 15, 15]}}, [0, 4]),
        ({"unknown": 1}, [0]),
        ({"tokens_counted": 195}, [3]),
    ],
)
def test_one_cycle_too_many_or_in_the_wrong_bin_misses_the_goal(changes: dict[str, Any], missed: list[int]) -> None:
    found = met(truth_checks("truth-", truth_run(**changes)))
    assert found == [number not in missed for number in range(5)]


def test_nothing_counted_at_all_misses_the_goal() -> None:
    assert met(truth_checks("truth-", truth_run(counted={}, tokens_counted=0)))[0] is False


def test_the_worst_survival_is_given_in_standard_errors() -> None:
    z, k = worst_z([50, 14, 36], 0.6)  # S_1 = 0.50 for 0.60: 0.1 / sqrt(0.24 / 100)
    assert (round(z, 2), k) == (-2.04, 1)


def timed(event: dict[str, float], host: dict[str, float], **more: Any) -> dict[str, Any]:
    return {"event_ms": event, "host_ms": host, **more}


EVENT = {"draft": 1.0, "verify": 3.0, "extend": 0.5, "other": 0.1, "total": 4.6}


def test_the_wall_time_of_a_cycle_is_met_within_one_per_cent() -> None:
    run = timed(EVENT, EVENT, decode_s=4.63, cycles_seen=1000)
    found = timing.experiment().checks({"time-wall-v2": {"steps": {"3": run}}})
    assert found[0].measured == "4.600 ms beside 4.630 ms (-0.65 %)"
    assert met(found) == [True, None]
    found = timing.experiment().checks({"time-wall-v2": {"steps": {"3": {**run, "decode_s": 4.7}}}})
    assert met(found) == [False, None]
    found = timing.experiment().checks(
        {"time-wall-v2": {"steps": {"3": {**run, "total_error_ms": 0.02315, "timed_cycles": 260}}}}
    )
    assert found[0].measured == "4.600 ms beside 4.630 ms (-0.65 %, standard error 0.50 of 260 timed cycles)"


def test_each_phase_must_agree_with_the_synchronised_clock() -> None:
    host = {**EVENT, "extend": 0.52}
    found = timing.experiment().checks({"time-sync-v1": {"steps": {"8": timed(EVENT, host)}}})
    assert met(found) == [False]
    assert "extend 0.500 ms (-3.8 %)" in found[0].measured


def test_the_device_timer_is_compared_by_phase() -> None:
    quick = {"cycles": 40, "host_ms": 0.7, "event_ms": 3.0}
    slow = {**EVENT, "verify": 3.3}
    device = {"draft": 0.6, "verify": 2.9, "extend": 0.3}
    run = timed(slow, EVENT, device_ms=device, verify_launched_quickest=quick)
    found = timing.experiment().checks({"time-device-v2": {"steps": {"3": run}}})
    assert found[0].measured == (
        "3.000 ms beside 2.900 ms (+3.4 %) in the 40 cycles with the quickest launches (0.70 ms); "
        "3.300 ms (+13.8 %) in all, launched in 3.00 ms"
    )
    assert met(found) == [True, None]


def test_device_seconds_are_summed_over_label_sets() -> None:
    text = """# TYPE sglang:forward_execution_seconds_total counter
sglang:forward_execution_seconds_total{category="target_verify",model_name="m",tp_rank="0"} 1.5
sglang:forward_execution_seconds_total{model_name="m",category="target_verify",tp_rank="1"} 0.25
sglang:forward_execution_seconds_total{category="eagle_draft",model_name="m"} 2e-01
sglang:other_seconds_total{category="eagle_draft"} 9
"""
    assert device_seconds(text) == {"target_verify": 1.75, "eagle_draft": 0.2}


def answer(seconds: float, tokens: int = 101, verifies: int = 50) -> dict[str, Any]:
    return {"tokens": tokens, "verifies": verifies, "first_s": 0.1, "last_s": 0.1 + seconds}


def pairs_of(changes: list[float]) -> dict[str, Any]:
    """Measured requests that take so many percent longer than the unmeasured ones beside them."""
    seconds = [1.0 + i / 10 for i in range(len(changes))]
    pairs = [
        {"off": answer(s), "on": answer(s * (1 + change / 100))} for s, change in zip(seconds, changes, strict=True)
    ]
    return {"pairs": pairs, "simulated": False}


def test_cost_is_the_ratio_within_pairs_of_equal_requests() -> None:
    (check,) = cost.experiment().checks({"cost-on-v2": pairs_of([0.5] * 6)})
    assert check.measured.startswith("-0.50 % (-0.50 to -0.50; 6 pairs; +125 us a cycle")
    assert check.met is True
    slower = pairs_of([2.0] * 6)
    assert met(cost.experiment().checks({"cost-on-v2": slower})) == [False]
    assert met(cost.experiment().checks({"cost-small-v2": slower})) == [False]
    assert met(cost.experiment().checks({"cost-on-v2": {**slower, "simulated": True}})) == [None]


def test_the_whole_interval_of_the_cost_must_end_before_one_per_cent() -> None:
    checks = cost.experiment().checks({"cost-on-v1": pairs_of([0.5, 0.7] * 20)})
    assert met(checks) == [True, True]
    assert checks[1].measured == "-0.60 % (-0.60 to -0.60; 20 quads)"
    wide = [each for change in (0.0, 0.4, 0.8, 1.2, 2.2) for each in (change, change)] * 4
    checks = cost.experiment().checks({"cost-on-v1": pairs_of(wide)})
    assert met(checks) == [True, False]
    assert "quads like these would do" in checks[1].measured


def test_pairs_of_an_earlier_session_can_still_be_checked() -> None:
    recorded = json.loads(
        (Path(__file__).parents[2] / "docs/validation/2026-11-30-h200-cost/cost-on-v2.json").read_text()
    )
    checks = cost.experiment().checks({"cost-on-v2": recorded})
    assert checks[0].measured.startswith("-0.48 % (-1.29 to +0.33; 80 pairs; +21 us a cycle")
    assert len(checks) == 2


@pytest.mark.parametrize(("early", "wanted"), [(400, True), (401, False)])
def test_the_probe_must_have_done_its_work_in_the_measured_requests(early: int, wanted: bool) -> None:
    data = {**pairs_of([0.5] * 6), "cycles": 20_000, "timed": 16_000, "written_early": early}
    check = cost.experiment().checks({"cost-on-v2": data})[1]
    assert (check.met, check.measured) == (wanted, "2.0 % of 20000 cycles, 16000 of them timed")


def test_the_patch_switched_off_is_compared_once_both_kinds_of_load_are_there() -> None:
    loads = {
        name: {"simulated": False, "answers": [answer(1.0 + i / 100) for i in range(4)]}
        for name in ("cost-off-1", "cost-unpatched-1", "cost-unpatched-2")
    }
    assert cost.experiment().checks({"cost-off-1": loads["cost-off-1"]}) == []
    (check,) = cost.experiment().checks(loads)
    assert check.met is True
    assert "loads: unpatched 98.5, 98.5, off 98.5 tok/s" in check.measured


def test_a_sweep_in_one_load_must_accept_as_separate_loads_do() -> None:
    one = {"load_s": 80.0, "steps": {"3": [answer(1.0 + i / 50) for i in range(4)]}}
    own = {"load_s": None, "steps": {"3": [answer(1.01 + i / 50) for i in range(4)]}}
    found = sweep.experiment().checks({"sweep-one-v2": one, "sweep-k3-v2": own})
    assert met(found) == [True, True, None, None]
    assert found[0].measured == "2.0000 and 2.0000"
    own["steps"]["3"][0]["verifies"] = 51  # type: ignore[index]
    assert met(sweep.experiment().checks({"sweep-one-v2": one, "sweep-k3-v2": own}))[0] is False


def seen(total: float, bins: list[int]) -> dict[str, Any]:
    return {"event_ms": {"total": total}, "host_ms": {}, "correct_hist": bins}


CALIBRATION = {
    "2": seen(10.0, [50, 25, 25]),
    "5": seen(13.0, [50, 25, 0, 0, 0, 25]),
    "8": seen(16.0, [50, 25, 0, 0, 0, 0, 0, 0, 25]),
}
"""S_1 = 0.5 and S_2 to S_8 = 0.25; a step costs 1 ms."""


@pytest.mark.parametrize("points", [(2, 8), (2, 5, 8)])
def test_throughput_is_predicted_from_survival_and_the_cycle_at_two_or_three_step_counts(
    points: tuple[int, ...],
) -> None:
    model = predicted(CALIBRATION, points)
    assert [model.at(k).tok_s for k in (1, 2, 5)] == pytest.approx([1500 / 9, 1750 / 10, 2500 / 13])


def test_a_prediction_is_held_against_the_rounds_it_was_measured_in() -> None:
    rates = {"1": 1500 / 9, "5": 2500 / 13 / 1.06}
    steps = {k: [answer(100 / rate)] for k, rate in rates.items()}
    assert prediction.experiment().checks({"sweep-k3-v2": {"steps": steps}}) == []
    found = prediction.experiment().checks({"sweep-one-v2": {"steps": steps, "calibration": CALIBRATION}})
    assert met(found) == [False, True, False, True]
    assert found[0].figure == "sweep-one-v2, from K = 2, 8 (line): tok/s predicted"
    assert "K = 5: 192.3 for 181.4 (+6.0 %)" in found[0].measured


def turned(**others: list[dict[str, Any]]) -> dict[str, Any]:
    same = [answer(1.0 + i / 50) for i in range(6)]
    steps = {str(k): same for k in (1, 2, 3, 5, 8)}
    measured = {str(k): [answer(1.01 * (1.0 + i / 50)) for i in range(6)] for k in (2, 5, 8)}
    loads = {"k3": same, "k3-again": same, "off": same, "off-again": same, **others}
    return {"turns-v2": {"steps": steps, "measured": measured, "others": loads, "failed": {}, "simulated": False}}


def test_servers_that_take_turns_are_compared_request_by_request() -> None:
    found = {check.figure: check for check in turns.experiment().checks(turned())}
    assert found["v2, K = 3: tok/s in one load against its own, unpatched"].met is True
    off = found["v2: decode rate, patched and off against unpatched, two loads each"]
    assert (off.met, off.measured) == (True, "+0.00 % (+0.00 to +0.00; 12 pairs)")
    assert found["v2, K = 2: decode rate, measured against unmeasured"].measured.startswith("-0.99 %")
    slower = [answer(1.03 * (1.0 + i / 50)) for i in range(6)]
    found = {check.figure: check for check in turns.experiment().checks(turned(**{"off": slower, "off-again": slower}))}
    assert found["v2: decode rate, patched and off against unpatched, two loads each"].met is False


def test_a_server_that_did_not_come_up_is_said_and_leaves_its_comparison_out() -> None:
    data = turned()
    del data["turns-v2"]["others"]["off-again"]
    data["turns-v2"]["failed"] = {"off-again": "CommandError: no memory"}
    found = {check.figure: check.measured for check in turns.experiment().checks(data)}
    assert found["v2: off-again did not come up"] == "CommandError: no memory"
    assert not any("two loads each" in figure for figure in found)


def test_the_products_own_command_must_end_well() -> None:
    data = {"command": "sweep --steps 1,2", "code": 0, "command_s": 240.0, "bundle": "x", "sshd": "OpenSSH_9.6"}
    (check,) = product.experiment().checks({"product-ssh": data})
    assert (check.figure, check.met) == ("invoke sweep --steps 1,2, ssh", True)
    assert check.measured == "exit 0 after 240.0 s, bundle x; OpenSSH_9.6"
    assert met(product.experiment().checks({"product-local": {**data, "code": 1, "sshd": None}})) == [False]


def test_the_clocks_are_shown_beside_the_figures() -> None:
    clocks = {"samples": 9, "at_work": 8, "held_back": {"power cap": 2}, "sm_mhz": [1500, 1980, 1980]}
    clocks |= {"celsius": [40, 45, 50], "watts": [200, 300, 400]}
    (check,) = clock_checks({"a": {"clocks": clocks}, "b": {}})
    assert check.measured == (
        "SM 1500 to 1980 (median 1980) MHz, 40 to 50 (median 45) C, 200 to 400 (median 300) W in 8 samples at work; "
        "held back by: power cap in 2"
    )
    assert clock_checks({"a": {"clocks": {"samples": 2, "at_work": 0}}})[0].measured == "idle in all 2 samples"


def fault(**changes: Any) -> dict[str, Any]:
    data = {
        "fault": "x",
        "code": 1,
        "said": "why",
        "changed_files": [],
        "files": 30,
        "processes": 0,
        "more_memory_mib": 0,
    }
    return {"faults-killed": {**data, **changes}}


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, True),
        ({"code": 0}, False),
        ({"changed_files": ["a"]}, False),
        ({"processes": 1}, False),
        ({"more_memory_mib": 99}, False),
    ],
)
def test_a_fault_must_leave_nothing_behind(changes: dict[str, Any], wanted: bool) -> None:
    assert met(faults.experiment().checks(fault(**changes))) == [wanted]


def two_ranks() -> dict[str, Any]:
    run = truth_run()["truth-v2-p0.6-b1"]
    rank = run["steps"]["2"]["ranks"]["0"]
    slower = {**EVENT, "verify": 3.2}
    run["steps"]["2"]["ranks"] = {"0": {**rank, "event_ms": EVENT}, "1": {**rank, "event_ms": slower}}
    return run


BLOCKS = [[1, 10, [4, 6]], [2, 9, [3, 3, 3]]]


def test_all_ranks_must_write_the_same_blocks() -> None:
    run = two_ranks()
    found = tp.experiment(2).checks({"tp2-v2-nccl": {**run, "switching": {"0": BLOCKS, "1": BLOCKS}}})
    assert met(found) == [True] * 6 + [None]
    assert "verify 0.200" in found[-1].measured
    other = {"tp2-v2-nccl": {**run, "switching": {"0": BLOCKS, "1": BLOCKS[:1]}}}
    assert met(tp.experiment(2).checks(other))[5] is False
    alone = {"tp2-v2-nccl": {**run, "switching": {"0": BLOCKS}}}
    assert met(tp.experiment(2).checks(alone))[5] is False


def test_four_gpus_need_four_ranks_and_leave_the_results_of_two_alone() -> None:
    two = {**two_ranks(), "switching": {"0": BLOCKS, "1": BLOCKS}}
    four = {**two, "switching": dict.fromkeys("0123", BLOCKS)}
    results = {"tp4-v1-custom": four, "tp2-v2-nccl": two, "truth-v2-p0.6-b1": truth_run()["truth-v2-p0.6-b1"]}
    found = tp.experiment(4).checks(results)
    assert met(found) == [True] * 6 + [None]
    assert {check.figure.split(":")[0] for check in found} == {"v1-custom"}
    assert met(tp.experiment(4).checks({"tp4-v1-custom": two}))[5] is False


def test_ranks_that_talk_otherwise_must_answer_the_same() -> None:
    answers = {"default": [answer(1.0), answer(2.0)], "ring": [answer(1.25), answer(2.5)]}
    times = {"0": EVENT, "1": {**EVENT, "total": 4.7}}
    event_ms = {"default": times, "ring": {"0": EVENT, "1": EVENT}}
    data = {"variants": answers, "event_ms": event_ms, "failed": {"ll128": "CommandError: no"}}
    found = tp.experiment(2).checks({"tp2-v2-custom-variants": data})
    assert met(found) == [True, None, None, None]
    assert found[0].measured == "default 2.0000, ring 2.0000"
    assert found[1].measured == "draft 1.000, verify 3.000, extend 0.500, other 0.100, total 4.600; skew 0.100"
    assert found[2].measured.startswith("-20.00 % (-20.00 to -20.00); draft 1.000")
    assert found[3].figure == "v2-custom-variants: ll128 did not come up"
    data["timed"] = {"default": {"cycles": 90, "error_ms": 0.0214}, "ring": {"cycles": 1, "error_ms": None}}
    sure = tp.experiment(2).checks({"tp2-v2-custom-variants": data})
    assert sure[1].measured.endswith("total 4.600 (standard error 0.021 of 90); skew 0.100")
    assert "standard error" not in sure[2].measured
    answers["ring"][0]["verifies"] = 49
    assert met(tp.experiment(2).checks({"tp2-v2-custom-variants": data}))[0] is False


def test_a_prediction_is_held_against_the_rounds_of_several_ranks_too() -> None:
    calibration = {**CALIBRATION, "10": seen(18.0, [50, 25, *[0] * 8, 25])}
    del calibration["8"]
    rounds = {"steps": {"1": [answer(100 / (1500 / 9))]}, "calibration": calibration}
    found = prediction.experiment().checks({"tp2-v2-nccl": {"steps": {}, "rounds": rounds}})
    assert met(found) == [True] * 4
    assert [check.figure.split(" (")[0] for check in found[::2]] == [
        "tp2-v2-nccl, from K = 2, 10",
        "tp2-v2-nccl, from K = 2, 5, 10",
    ]


@pytest.mark.parametrize("way", ["nccl", "custom"])
def test_only_one_thing_differs_between_ways_and_variants(way: str) -> None:
    parts = {part.name: part for part in tp.experiment(4).parts}
    own = parts[f"tp4-v2-{way}"].setting
    assert own is not None
    assert own == parts[f"tp4-v2-{way}-variants"].setting, "one load does for both"
    assert (own.tp_size, own.candidates) == (4, (1, 2, 3, 5, 10))
    assert own.flags == ((("disable-custom-all-reduce", True),) if way == "nccl" else ())
