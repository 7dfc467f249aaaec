"""A sweep on the lab, whose costs follow a real history: 1, 2, 3, 5, 10 steps and the baseline, at 1 and 4 requests."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from figures import CASES

from eaglelab.model.from_run import explain_run, seen_of_run
from eaglelab.model.prediction import predict
from eaglelab.profile.measurement_set import Failed, MeasurementSet, from_json
from eaglelab.profile.summary import Profile
from eaglelab.runs.evidence import LoadEvidence, RunEvidence


@pytest.fixture(scope="module")
def measured() -> MeasurementSet:
    return from_json((CASES / "lab-sweep.json").read_text(encoding="utf-8"))


def run(measured: MeasurementSet | None, **more: object) -> RunEvidence:
    return RunEvidence("r", "sim", "sweep", Path(), True, measured=measured, **more)  # type: ignore[arg-type]


def test_each_batch_size_is_explained_by_requests_without_the_probe_and_by_its_phases(measured: MeasurementSet) -> None:
    explained = explain_run(run(measured))
    assert [found.batch for found in explained] == [1, 4]
    one = explained[0]
    assert one.clock == "events"
    assert one.best_measured == 2
    two = one.point(2)
    assert two is not None
    assert two.measured_tok_s == pytest.approx(96.7, abs=0.1)
    assert two.measured_accept_length == pytest.approx(1.738, abs=0.001)
    # The client's decode rate: 1.738 tokens at 97.9 tok/s.
    assert two.measured_cycle_ms == pytest.approx(17.76, abs=0.02)
    assert one.baseline_tok_s == pytest.approx(88.1, abs=0.1)
    assert one.break_even == pytest.approx(17.76 / 11.27, abs=0.01)
    assert {"free_draft", "plain_verify", "free_extend"} <= {lever.code for lever in one.levers}


def test_what_the_ranking_calls_a_tie_is_one_here_as_well(measured: MeasurementSet) -> None:
    one = explain_run(run(measured))[0]
    assert "1 step cannot be told from it: the fewest steps are the simplest choice." in one.sentences[0]


@pytest.mark.parametrize("batch", [1, 4])
def test_two_counts_of_the_lab_predict_the_others_within_the_band(measured: MeasurementSet, batch: int) -> None:
    """Its verify bends between 2 and 10 steps, so that 5 steps are 13 to 14 % off: the band has room for that."""
    seen = {each.steps: each for each in seen_of_run(run(measured), batch)}
    prediction = predict(batch, [seen[2], seen[10]])
    for steps in (1, 3, 5):
        predicted = prediction.at(steps)
        assert predicted.low <= seen[steps].rate(batch) <= predicted.high, steps
    assert prediction.at(5).tok_s / seen[5].rate(batch) - 1 == pytest.approx(0.135, abs=0.015)
    fitted = predict(batch, [seen[2], seen[5], seen[10]])
    assert fitted.at(3).tok_s == pytest.approx(seen[3].rate(batch), rel=0.02)


def test_the_best_count_is_among_those_that_two_counts_ask_to_load(measured: MeasurementSet) -> None:
    def only(*steps: int | None) -> MeasurementSet:
        return replace(
            measured, measurements=tuple(each for each in measured.measurements if each.result.steps in steps)
        )

    one = explain_run(run(only(None, 3, 10)))[0]
    assert one.best_measured == 3
    assert 2 in one.load_next


def test_a_failed_setting_is_left_out(measured: MeasurementSet) -> None:
    explained = explain_run(run(replace(measured, failed=(Failed(2, "", "out of memory"),))))
    assert explained[0].best_measured == 1


def test_requests_at_a_fixed_rate_say_nothing_of_throughput_so_the_probes_cycles_are_explained(
    measured: MeasurementSet,
) -> None:
    one = explain_run(run(measured, request={"vars": {"request_rate": 2}}))[0]
    two = one.point(2)
    assert two is not None
    assert two.measured_tok_s == pytest.approx(1000 * two.measured_accept_length / two.measured_cycle_ms)
    assert one.baseline_tok_s is None


def test_a_run_that_only_profiled_is_explained_from_the_probes_cycles(measured: MeasurementSet) -> None:
    settings = tuple(each.setting for each in measured.measurements if each.setting is not None)
    load = LoadEvidence("", profile=Profile("simulated GPU", (), (), settings, ()))
    explained = explain_run(run(None, loads=(load,)))
    assert [found.batch for found in explained] == [1, 4]
    two = explained[0].point(2)
    assert two is not None
    assert two.measured_cycle_ms == pytest.approx(17.609, abs=0.001)
    assert two.measured_tok_s == pytest.approx(1000 * 1.7381 / 17.609, abs=0.1)


def test_nothing_measured_explains_nothing() -> None:
    assert explain_run(run(None)) == ()


def test_the_order_of_measuring_changes_nothing(measured: MeasurementSet) -> None:
    turned = replace(measured, measurements=measured.measurements[::-1])
    assert [json.dumps(each.to_json()) for each in explain_run(run(turned))] == [
        json.dumps(each.to_json()) for each in explain_run(run(measured))
    ]
