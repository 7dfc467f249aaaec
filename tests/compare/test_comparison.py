"""Two sides held against each other: what is paired, what is compared, what is said, what is warned of."""

from __future__ import annotations

from dataclasses import replace

import pytest
from evidence_kit import measurement, requests, run, setting

from eaglelab.compare.comparison import Comparison, Side, compare
from eaglelab.compare.words import LOADS_NOTE, SEPARATE_NOTE, SHARED_NOTE, headline, sentences
from eaglelab.errors import InputError
from eaglelab.profile.bench import BenchResult
from eaglelab.profile.measurement_set import Failed, Measurement
from eaglelab.profile.serving_row import SERVING_FIGURES
from eaglelab.profile.setting_key import SettingKey
from eaglelab.profile.summary import Profile
from eaglelab.runs.evidence import LoadEvidence, RunEvidence

STEADY = (100.0, 102.0, 98.0, 101.0)
BASE = (90.0, 90.5, 89.5, 90.0)


def slower(rates: tuple[float, ...], share: float) -> list[float]:
    return [rate * share for rate in rates]


def held(first: RunEvidence, second: RunEvidence) -> Comparison:
    return compare(Side("A", (first,)), Side("B", (second,)))


def plain(name: str, rates: tuple[float, ...] = STEADY, **more) -> RunEvidence:
    return run(name, measurement(2, rates, phases={}), **more)


def test_rounds_with_the_same_prompts_are_paired_and_the_figures_are_those_of_the_rounds() -> None:
    (found,) = held(plain("a"), plain("b", tuple(slower(STEADY, 0.97)))).settings
    rate = found.differences["tok_s"]
    assert (rate.paired, rate.unit, rate.count) == (True, "rounds", 4)
    assert rate.percent is not None
    assert rate.percent.value == pytest.approx(-3)
    assert rate.percent.ci95 == pytest.approx((-3, -3))
    assert rate.reference == pytest.approx(4 / sum(1 / each for each in STEADY))
    assert rate.verdict == "lower"


@pytest.mark.parametrize("change", [{"seed": 7}, {"output_len": 200}, {"prompts": "other.jsonl"}, {"temperature": 0.5}])
def test_other_prompts_are_not_paired_and_warned_of(change) -> None:
    found = held(plain("a"), plain("b", workload=change))
    assert not found.settings[0].differences["tok_s"].paired
    assert found.settings[0].differences["tok_s"].unit == "rounds"
    assert found.warnings[0].startswith("Not like with like: ")


def test_prompts_of_other_lengths_in_a_round_leave_that_round_out() -> None:
    second = plain("b")
    assert second.measured is not None
    result = second.measured.measurements[0].result
    moved = [replace(each, prompt_tokens=99) if each.round == 1 else each for each in result.requests]
    changed = replace(second.measured.measurements[0], result=replace(result, requests=moved))
    second = replace(second, measured=replace(second.measured, measurements=(changed,)))
    assert held(plain("a"), second).settings[0].differences["tok_s"].count == 3


def test_prompts_of_unknown_length_are_paired_where_the_workloads_are_known_to_be_equal_only() -> None:
    def unknown(name: str, workloads: bool) -> RunEvidence:
        evidence = plain(name)
        samples = [replace(each, prompt_tokens=None) for each in requests(STEADY)]
        one = Measurement(BenchResult(2, 1, samples, load="k2/c1"))
        loads = evidence.loads if workloads else tuple(replace(load, workloads={}) for load in evidence.loads)
        assert evidence.measured is not None
        return replace(evidence, measured=replace(evidence.measured, measurements=(one,)), loads=loads)

    for known in (True, False):
        assert held(unknown("a", known), unknown("b", known)).settings[0].differences["tok_s"].paired is known


def test_latencies_are_paired_by_round() -> None:
    # 101 tokens at 100 and at 50 tok/s: 1.01 s and 2.02 s, so e2e is 1010 ms longer in every round.
    (found,) = held(plain("a", (100.0, 100.0)), plain("b", (50.0, 50.0))).settings
    assert found.differences["e2e_ms"].absolute.value == pytest.approx(1010)
    assert found.differences["tpot_ms"].absolute.value == pytest.approx(10.1)
    assert found.differences["itl_ms"].absolute.value == pytest.approx(1010 / 50)
    assert found.differences["ttft_ms"].verdict == "tie"


def test_equal_outputs_accept_equally_much_and_that_is_a_tie_without_doubt() -> None:
    accepted = held(plain("a"), plain("b", tuple(slower(STEADY, 0.9)))).settings[0].differences["accept_length"]
    # 100 tokens behind the first one over 50 verifies.
    assert (accepted.reference, accepted.candidate, accepted.verdict) == (2, 2, "tie")
    assert accepted.absolute.ci95 == (0, 0)
    assert accepted.how == "4 paired outputs"


def test_accept_lengths_of_the_same_prompts_are_paired_request_by_request() -> None:
    def accepting(name: str, verifies: list[int]) -> RunEvidence:
        evidence = plain(name)
        samples = [replace(each, verifies=count) for each, count in zip(requests(STEADY), verifies, strict=True)]
        assert evidence.measured is not None
        one = Measurement(BenchResult(2, 1, samples, load="k2/c1"))
        return replace(evidence, measured=replace(evidence.measured, measurements=(one,)))

    found = held(accepting("a", [40, 50, 60, 50]), accepting("b", [50, 60, 70, 60])).settings[0]
    accepted = found.differences["accept_length"]
    assert (accepted.reference, accepted.candidate) == pytest.approx((400 / 200, 400 / 240))
    assert accepted.absolute.ci95 is not None
    low, high = accepted.absolute.ci95
    # Residuals (100 - L v) / V of each side, by request, their differences' spread times sqrt(4), t(3) = 3.1824.
    residuals = [
        (100 - 400 / 240 * b) / 240 - (100 - 2 * a) / 200
        for a, b in zip([40, 50, 60, 50], [50, 60, 70, 60], strict=True)
    ]
    error = (sum(each**2 for each in residuals) / 3) ** 0.5 * 2
    assert high - low == pytest.approx(2 * 3.1824 * error, rel=1e-4)
    assert accepted.verdict == "lower"


def test_a_prompt_that_comes_again_with_the_same_output_is_one_observation() -> None:
    def repeating(name: str, verifies: int) -> RunEvidence:
        evidence = plain(name)
        samples = [replace(each, output_hash="same", verifies=verifies) for each in requests(STEADY)]
        one = Measurement(BenchResult(2, 1, samples, load="k2/c1"))
        assert evidence.measured is not None
        return replace(evidence, measured=replace(evidence.measured, measurements=(one,)))

    accepted = held(repeating("a", 50), repeating("b", 60)).settings[0].differences["accept_length"]
    assert (accepted.count, accepted.absolute.ci95, accepted.verdict) == (1, None, "unsure")


def test_phases_are_compared_by_their_cycles() -> None:
    second = run("b", measurement(2, STEADY, phases={"verify": 16.7}))
    verify = held(plain("a"), second).settings[0].differences["verify_ms"]
    assert (verify.how, verify.paired) == ("400 cycles", False)
    assert verify.absolute.value == pytest.approx(0.9)
    # Each side 0.1 / sqrt(400) = 0.005; together 0.00707, with 798 degrees of freedom 1.963 times that.
    assert verify.absolute.ci95 == pytest.approx((0.9 - 0.01388, 0.9 + 0.01388), abs=1e-4)


def test_the_headline_names_the_difference_its_cause_and_what_changed() -> None:
    first = run("a", measurement(None, BASE), measurement(2, STEADY, phases={}))
    # A cycle of 17.61 ms that takes 0.9 ms longer makes 4.9 % fewer tokens.
    second = run(
        "b",
        measurement(None, BASE),
        measurement(2, slower(STEADY, 17.61 / 18.51), phases={"verify": 16.7}),
        sglang="0.5.12",
    )
    assert headline(held(first, second)) == (
        "B is 4.9 % slower than A at 2 steps, concurrency 1 (4.9 to 4.9); verify +0.900 ms explains it; changed: sglang "
        "0.5.9 -> 0.5.12."
    )


def test_accept_length_can_be_the_cause() -> None:
    first = run("a", measurement(2, STEADY, phases={}, verifies=50))
    second = run("b", measurement(2, slower(STEADY, 50 / 60), phases={}, verifies=60))
    assert "accept length -0.333 explains it" in headline(held(first, second))


def test_two_phases_can_be_the_cause_together() -> None:
    second = run("b", measurement(2, slower(STEADY, 17.61 / 18.61), phases={"verify": 16.3, "other": 0.55}))
    assert "verify +0.500 ms and other +0.500 ms explain it" in headline(held(plain("a"), second)).replace(
        "other +0.500 ms and verify +0.500 ms", "verify +0.500 ms and other +0.500 ms"
    )


def test_no_cause_is_named_for_a_difference_that_the_cycle_does_not_show() -> None:
    second = run("b", measurement(2, slower(STEADY, 0.9), phases={}))
    assert "explain" not in headline(held(plain("a"), second))


def test_a_tie_is_called_one() -> None:
    found = held(plain("a"), plain("b", (101.0, 101.0, 99.0, 100.0)))
    assert headline(found).startswith("B is a tie with A at 2 steps, concurrency 1: 0.0 % (")
    assert headline(found).endswith("; nothing else is known to have changed.")


def test_the_other_settings_are_counted_and_those_of_one_side_named() -> None:
    first = run("a", measurement(None, BASE), measurement(2, STEADY), measurement(5, BASE))
    second = run("b", measurement(None, BASE), measurement(2, slower(STEADY, 0.9)), measurement(3, BASE))
    told = sentences(held(first, second))
    assert "Of 2 settings: 1 slower, 1 tie." in told
    assert "Only in A: 5 steps at concurrency 1." in told
    assert "Only in B: 3 steps at concurrency 1." in told
    assert SEPARATE_NOTE in told


def test_several_loads_a_side_are_the_unit() -> None:
    loads = [plain(f"a{number}", tuple(slower(STEADY, share))) for number, share in enumerate((1.0, 1.02, 0.98))]
    found = compare(Side("A", tuple(loads)), Side("B", (plain("b", tuple(slower(STEADY, 0.9))),)))
    rate = found.settings[0].differences["tok_s"]
    assert (rate.how, rate.paired) == ("4 loads", False)
    assert rate.percent is not None
    assert rate.percent.value == pytest.approx(-10, abs=0.1)
    assert LOADS_NOTE in sentences(found)


def test_a_server_that_both_used_is_no_load_of_its_own() -> None:
    def on(evidence: RunEvidence, starter: str) -> RunEvidence:
        server = {"run": starter, "command": ["python", "-m", "sglang.launch_server"]}
        return replace(evidence, loads=tuple(replace(load, server=server) for load in evidence.loads))

    assert SHARED_NOTE in sentences(held(on(plain("a"), "a"), on(plain("b"), "a")))
    assert SEPARATE_NOTE in sentences(held(on(plain("a"), "a"), on(plain("b"), "b")))


def test_a_setting_that_failed_in_the_candidate_is_named() -> None:
    second = run("b", measurement(None, BASE), failed=(Failed(2, "", "out of memory"),))
    found = held(run("a", measurement(None, BASE), measurement(2, STEADY)), second)
    assert found.failed[0].key == SettingKey(2)
    assert "B failed at 2 steps: out of memory." in sentences(found)


def test_profiles_alone_are_compared_by_phases_and_accept_length() -> None:
    def profiled(name: str, verify: float) -> RunEvidence:
        profile = Profile(None, ("0.5.9",), ("1",), (setting(2, {"verify": verify}),), ())
        return RunEvidence(
            name, "gpu1", "deploy-profiling", plain(name).folder, True, loads=(LoadEvidence("", profile=profile),)
        )

    found = held(profiled("a", 15.8), profiled("b", 16.7))
    assert list(found.settings[0].differences) == [
        "accept_length",
        "total_ms",
        "draft_ms",
        "verify_ms",
        "extend_ms",
        "other_ms",
    ]
    assert headline(found).startswith(
        "A cycle of B is 5.1 % longer than A's at 2 steps, concurrency 1 (5.0 to 5.2); verify +0.900 ms explains it"
    )
    # Histogram 100, 200, 100 of 0, 1, 2 correct drafts.
    assert found.settings[0].differences["accept_length"].reference == 2


def test_runs_without_a_setting_in_common_say_so() -> None:
    found = held(run("a", measurement(2, STEADY)), run("b", measurement(3, STEADY)))
    assert headline(found).startswith("A and B have no setting in common; ")


def test_a_run_is_not_held_against_itself() -> None:
    with pytest.raises(InputError, match="A and B are the same run"):
        held(plain("a"), plain("a"))


def test_a_copy_is_the_same_run_and_a_folder_of_the_same_name_need_not_be() -> None:
    with pytest.raises(InputError, match="are the same run"):
        held(plain("a"), replace(plain("a"), folder=plain("b").folder))
    assert held(plain("a"), replace(plain("a"), folder=plain("b").folder, began=2.0)).settings


def test_two_hosts_of_one_run_are_two_sides() -> None:
    assert held(plain("a", host="gpu1"), plain("a", host="gpu2")).settings


def served(name: str, rates: list[float], *, seed: int = 1, **vars_) -> RunEvidence:
    """Runs of SGLang's client at 2 steps, and one of the baseline."""
    figures = {**dict.fromkeys(SERVING_FIGURES), "mean_ttft_ms": 20.0, "accept_length": 1.8}
    rows = [(2, rate, repeat) for repeat, rate in enumerate(rates)] + [(None, 80.0, 0)]
    runs = [
        {
            "steps": steps,
            "variation": "",
            "concurrency": 4,
            "repeat": repeat,
            "seed": seed + repeat,
            "asked": 8,
            "row": {**figures, "output_throughput": rate},
        }
        for steps, rate, repeat in rows
    ]
    serving = {"runs": runs, "failed": [{"steps": 9, "variation": "", "what": "died"}]}
    return replace(run(name), measured=None, serving=serving, request={"vars": vars_})


def test_runs_of_sglangs_client_are_paired_by_their_seed() -> None:
    baseline, two = held(served("a", [100.0, 110.0]), served("b", [90.0, 99.0])).settings
    rate = two.differences["tok_s"]
    assert (two.place.batch, rate.how, rate.reference, rate.candidate) == (4, "2 paired runs", 105, 94.5)
    assert rate.percent is not None
    assert rate.percent.value == pytest.approx(-10)
    assert two.differences["ttft_ms"].verdict == "tie"
    assert baseline.differences["tok_s"].verdict == "unsure"


def test_runs_of_sglangs_client_with_another_seed_or_length_are_not() -> None:
    for other in (served("b", [90.0, 99.0], seed=5), served("b", [90.0, 99.0], output_len=9)):
        rate = held(served("a", [100.0, 110.0]), other).settings[1].differences["tok_s"]
        assert rate.how == "2 runs"
