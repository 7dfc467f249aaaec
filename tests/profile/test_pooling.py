from __future__ import annotations

import random

import pytest

from eaglelab.profile.pooling import accept_length, rounds_of, survival, throughput
from eaglelab.profile.samples import RequestSample
from eaglelab.profile.stats import ratio_ci95


def sent(number, start_s, e2e_s, tokens=100, **more):
    return RequestSample(tokens, 0.1, e2e_s, start_s=start_s, round=number, **more)


def test_a_round_lasts_from_its_first_send_to_its_last_token():
    (first, second) = rounds_of([sent(0, 1.0, 2.0), sent(0, 1.5, 2.5), sent(1, 9.0, 1.0)])
    assert (first.number, first.tokens, first.wall_s, first.tok_s) == (0, 200, 3.0, pytest.approx(200 / 3))
    assert second.wall_s == 1.0


def test_a_round_with_a_failed_request_is_no_observation():
    failed = RequestSample(0, 0.0, 0.0, start_s=1.0, round=0, error="timeout")
    assert [each.number for each in rounds_of([sent(0, 1.0, 2.0), failed, sent(1, 5.0, 1.0)])] == [1]


def test_a_request_without_round_or_start_is_in_no_round():
    assert rounds_of([RequestSample(10, 0.1, 1.0), RequestSample(10, 0.1, 1.0, round=1)]) == ()


def test_from_four_rounds_on_the_round_is_the_unit():
    samples = [sent(number, 10.0 * number, e2e) for number, e2e in enumerate((2.0, 2.2, 1.9, 2.1)) for _ in range(3)]
    rate = throughput(samples, wall_s=99.0)
    assert (rate.unit, rate.count) == ("rounds", 4)
    assert rate.value == pytest.approx(1200 / 8.2)
    assert rate.ci95 == pytest.approx(ratio_ci95([300] * 4, [2.0, 2.2, 1.9, 2.1]))


def test_below_four_rounds_the_request_is_the_unit_at_the_concurrency_that_was_there():
    samples = [sent(number, 10.0 * number, e2e) for number in range(3) for e2e in (2.0, 1.6)]
    rate = throughput(samples, None)
    assert (rate.unit, rate.count) == ("requests", 6)
    assert rate.value == pytest.approx(600 / 6.0)
    low, high = ratio_ci95([100] * 6, [2.0, 1.6] * 3)
    assert rate.ci95 == pytest.approx((low * 1.8, high * 1.8))  # 10.8 s in the server / 6 s


def test_without_rounds_the_wall_time_is_the_callers():
    rate = throughput([RequestSample(100, 0.1, 2.0), RequestSample(100, 0.1, 2.0)], 2.0)
    assert (rate.value, rate.unit) == (100.0, "requests")
    assert throughput([RequestSample(100, 0.1, 2.0)], None) is None


def test_the_interval_over_rounds_holds_the_truth_as_often_as_it_says():
    """Requests of a round are fast or slow together; an interval over requests would be far too narrow here."""
    chance = random.Random(7)
    held = {"rounds": 0, "requests": 0}
    for _ in range(300):
        rounds = [[2.0 * chance.gauss(1, 0.03)] * 8 for _ in range(8)]
        samples = [sent(number, 10.0 * number, e2e) for number, times in enumerate(rounds) for e2e in times]
        low, high = throughput(samples, None).ci95
        held["rounds"] += low <= 400.0 <= high
        alone, wall_s = [RequestSample(100, 0.1, sample.e2e_s) for sample in samples], sum(times[0] for times in rounds)
        low, high = throughput(alone, wall_s).ci95
        held["requests"] += low <= 400.0 <= high
    assert 275 <= held["rounds"] <= 295
    assert held["requests"] < 200


def test_accept_length_leaves_out_the_first_token_and_counts_equal_outputs_once():
    once = [sent(0, 0, 1, 101, verifies=50, output_hash="a"), sent(0, 0, 1, 101, verifies=40, output_hash="b")]
    thrice = accept_length(once * 3)
    assert thrice.value == pytest.approx(200 / 90)
    assert (thrice.count, thrice.unit) == (2, "outputs")
    assert thrice.ci95 == pytest.approx(accept_length(once).ci95)


def test_of_one_output_alone_there_is_no_interval():
    assert accept_length([sent(0, 0, 1, 101, verifies=50)]).ci95 is None
    assert accept_length([sent(0, 0, 1, 101)]) is None


def test_survival_comes_from_the_histograms_and_stays_between_0_and_1():
    samples = [sent(0, 0, 1, correct_hist=(10, 5, 5)), sent(0, 0, 1, correct_hist=(2, 2, 16))]
    first, second = survival(samples)
    assert first.value == pytest.approx(28 / 40)
    assert second.value == pytest.approx(21 / 40)
    assert first.ci95[0] == 0.0
    assert first.ci95[1] == 1.0
    assert survival([sent(0, 0, 1)]) == ()
