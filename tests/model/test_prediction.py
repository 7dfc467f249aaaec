from __future__ import annotations

import math
import random

import pytest
from figures import h200
from hypothesis import assume, given
from hypothesis import strategies as st

from eaglelab.errors import InputError
from eaglelab.model.prediction import predict
from eaglelab.model.seen import Seen


def chain(alpha: float, steps: int) -> tuple[float, ...]:
    return tuple(alpha**k for k in range(1, steps + 1))


def made(
    steps: int, *, alpha: float = 0.5, start: float = 10.0, slope: float = 2.0, batch: int = 1, lost: float = 0.0
) -> Seen:
    """A step count of a server that keeps to the model: T = start + slope K, S_k = alpha^k, `lost` ms a token outside."""
    survival = chain(alpha, steps)
    length, cycle = 1 + math.fsum(survival), start + slope * steps
    return Seen(steps, cycle, length, 1000 / (cycle / (batch * length) + lost), survival=survival)


def test_tokens_per_second_are_batch_times_accept_length_over_cycle() -> None:
    prediction = predict(4, [made(2, batch=4), made(5, batch=4)])
    # K = 3: 1 + .5 + .25 + .125 tokens for each of 4 requests in 16 ms.
    assert prediction.at(3).tok_s == pytest.approx(4 * 1.875 / 0.016)
    assert prediction.at(3).accept_length == pytest.approx(1.875)
    assert prediction.at(3).cycle_ms == pytest.approx(16.0)


def test_tokens_per_second_and_accept_length_alone_are_enough() -> None:
    seen = Seen.of_rate(3, 954.8, 3.88)
    assert seen.cycle_ms == pytest.approx(4.0637, abs=1e-4)
    assert Seen.of_rate(3, 954.8, 3.88, batch=2).cycle_ms == pytest.approx(2 * 4.0637, abs=1e-4)
    assert predict(1, [seen, Seen.of_rate(7, 999.0, 6.25)]).at(3).tok_s == pytest.approx(954.8)


def test_what_clients_lose_outside_of_the_cycles_is_in_the_prediction() -> None:
    prediction = predict(1, [made(2, lost=0.2), made(6, lost=0.2)])
    assert prediction.lost_ms == pytest.approx(0.2)
    assert prediction.at(4).tok_s == pytest.approx(made(4, lost=0.2).tok_s)


def test_the_best_count_and_whether_one_more_step_pays_agree() -> None:
    # .5^k against 2 ms a step on 10: K = 1 gives 125.0, 2 gives 125.0, 3 gives 117.2 tok/s; of equals the fewest steps.
    prediction = predict(1, [made(2), made(10)])
    assert [round(prediction.at(steps).tok_s, 1) for steps in (1, 2, 3)] == [125.0, 125.0, 117.2]
    assert prediction.best == 1
    assert not prediction.worthwhile(2)


def test_a_step_pays_while_its_survival_over_the_accept_length_exceeds_the_growth_of_the_cycle() -> None:
    # S_2 / AL(1) = .64 / 1.8 = 35.6 %; (T(2) - T(1)) / T(1) = 2 / 12 = 16.7 %.
    prediction = predict(1, [made(2, alpha=0.8), made(10, alpha=0.8)])
    assert prediction.worthwhile(1)
    assert prediction.at(2).tok_s > prediction.at(1).tok_s


@given(alpha=st.floats(0.05, 0.95), start=st.floats(1, 50), slope=st.floats(0.01, 5), steps=st.integers(1, 9))
def test_the_marginal_rule_says_what_the_prediction_says(alpha: float, start: float, slope: float, steps: int) -> None:
    prediction = predict(1, [made(k, alpha=alpha, start=start, slope=slope) for k in (2, 10)])
    gain = prediction.at(steps + 1).tok_s / prediction.at(steps).tok_s - 1
    assume(abs(gain) > 1e-9)
    assert prediction.worthwhile(steps) == (gain > 0)


@given(
    alpha=st.floats(0.05, 0.95),
    start=st.floats(1, 50),
    slope=st.floats(0, 5),
    batch=st.integers(1, 64),
    lost=st.floats(0, 0.5),
    counts=st.sets(st.integers(1, 12), min_size=2, max_size=5),
    seed=st.integers(0, 99),
)
def test_figures_that_keep_to_the_model_are_predicted_exactly_in_any_order(
    alpha: float, start: float, slope: float, batch: int, lost: float, counts: set[int], seed: int
) -> None:
    def figures(steps: int) -> Seen:
        return made(steps, alpha=alpha, start=start, slope=slope, batch=batch, lost=lost)

    seen = [figures(steps) for steps in sorted(counts)]
    random.Random(seed).shuffle(seen)
    prediction = predict(batch, seen)
    for steps in range(1, 14):
        found = prediction.at(steps)
        assert found.tok_s == pytest.approx(figures(steps).tok_s, rel=1e-5)
        assert found.low <= found.tok_s <= found.high
        assert found.extrapolated == (not min(counts) <= steps <= max(counts))


def test_two_step_counts_of_a_real_worker_predict_the_others_within_the_band() -> None:
    for worker in ("v2", "v1"):
        found = h200(worker)
        prediction = predict(1, [found[2], found[8]])
        for steps, each in found.items():
            predicted = prediction.at(steps)
            assert predicted.low <= each.rate(1) <= predicted.high, (worker, steps)


def test_the_uncertainty_of_what_was_measured_is_in_the_band() -> None:
    sure = predict(1, [made(2), made(6)]).at(4)
    figures = [made(2), made(6)]
    unsure = predict(
        1,
        [
            Seen(
                each.steps,
                each.cycle_ms,
                each.accept_length,
                each.tok_s,
                (each.rate(1) * 0.9, each.rate(1) * 1.1),
                each.survival,
            )
            for each in figures
        ],
    ).at(4)
    assert unsure.tok_s == pytest.approx(sure.tok_s)
    assert unsure.high / unsure.tok_s - 1 == pytest.approx(math.hypot(sure.high / sure.tok_s - 1, 0.1))


@pytest.mark.parametrize(
    ("batch", "seen"),
    [(0, [made(2)]), (1, []), (1, [made(2), made(2)])],
    ids=["no request", "nothing measured", "one count twice"],
)
def test_what_no_prediction_can_rest_on_is_refused(batch: int, seen: list[Seen]) -> None:
    with pytest.raises(InputError):
        predict(batch, seen)


@pytest.mark.parametrize(("length", "cycle"), [(0.98, 31.74), (1.5, 0.0)], ids=["bonus token missing", "no time"])
def test_figures_that_no_cycle_can_have_are_refused(length: float, cycle: float) -> None:
    with pytest.raises(InputError):
        Seen(2, cycle, length)


def test_more_steps_than_any_server_runs_are_refused() -> None:
    with pytest.raises(InputError, match="more than any server runs"):
        Seen(10**9, 10.0, 2.0)


def test_a_throughput_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="no throughput"):
        Seen.of_rate(2, 0.0, 1.5)
