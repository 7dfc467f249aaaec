from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest
from figures import table, tables
from hypothesis import given
from hypothesis import strategies as st

from eaglelab.model.accept import AcceptCurve, one_alpha
from eaglelab.model.seen import Seen


def seen(steps: int, length: float, survival: tuple[float, ...] = ()) -> Seen:
    return Seen(steps, 10.0, length, survival=survival)


def test_accept_length_is_one_and_the_sum_of_survival() -> None:
    curve = AcceptCurve([seen(4, 3.0, (0.8, 0.6, 0.4, 0.2))])
    assert [curve.at(steps) for steps in (1, 2, 3, 4)] == pytest.approx([1.8, 2.4, 2.8, 3.0])
    assert not curve.guessed


def test_what_the_highest_histogram_reads_too_low_is_put_right_by_a_second_one() -> None:
    # S_1 of .762 at 8 steps was .834 at one (github.com/vllm-project/vllm/pull/48892): read 1.762, really 1.834.
    survival = tuple(0.762**k for k in range(1, 9))
    top = 1 + math.fsum(survival)
    low = 1.834
    curve = AcceptCurve([seen(1, low), seen(8, top, survival)])
    assert curve.at(1) == pytest.approx(1.834)
    assert curve.at(8) == pytest.approx(top)
    # Two thirds of the way from 1 to 8 in log K: a third of the correction is left.
    assert curve.at(4) == pytest.approx((1 + math.fsum(survival[:4])) * (1.834 / 1.762) ** (1 / 3))


def test_a_bias_the_other_way_is_put_right_as_well() -> None:
    rows = tables()["J"]["rows"]
    longer, shorter = rows[4], rows[2]
    read, real = 1 + sum(longer[:2]), 1 + sum(shorter)
    assert read / real - 1 == pytest.approx(0.057, abs=0.001)
    curve = AcceptCurve([seen(2, real), seen(4, 1 + sum(longer), tuple(longer))])
    assert curve.at(2) == pytest.approx(real)
    assert real < curve.at(3) < 1 + sum(longer[:3])


def test_survival_and_printed_accept_length_of_a_public_run_agree_to_three_percent() -> None:
    found = tables()["L"]
    assert 1 + sum(found["rows"][5]) == pytest.approx(found["accept_length"], rel=0.03)


@pytest.mark.parametrize("name", ["K/on", "K/off"])
def test_noisy_public_accept_lengths_come_out_non_falling_and_within_their_noise(name: str) -> None:
    rows = tables()[name]["rows"]
    curve = AcceptCurve([seen(steps, length) for steps, length in rows.items()])
    found = [curve.at(steps) for steps in rows]
    assert all(a <= b for a, b in pairwise(found))
    assert found == pytest.approx(list(rows.values()), abs=0.1)


@pytest.mark.parametrize("name", ["K/on", "K/off"])
def test_two_lengths_without_survival_predict_those_between_to_seven_percent(name: str) -> None:
    """Worst where the figures themselves fall from 5 to 6 steps, which no accept length does."""
    rows = tables()[name]["rows"]
    curve = AcceptCurve([seen(steps, rows[steps]) for steps in (2, 8)])
    assert curve.guessed
    assert [curve.at(steps) for steps in rows] == pytest.approx(list(rows.values()), rel=0.07)


def test_lengths_that_are_measured_to_fall_are_taken_at_their_mean() -> None:
    curve = AcceptCurve([seen(3, 1.88), seen(5, 1.60), seen(10, 1.75)])
    assert curve.at(3) == pytest.approx(1.74)
    assert curve.at(5) == pytest.approx(1.74, rel=0.01)
    assert curve.at(10) == pytest.approx(1.75)


def test_one_alpha_from_few_steps_reads_too_high_for_many() -> None:
    # Why survival is wanted: +7 % (EAGLE-3) and +15 % (EAGLE-1) at 7 steps from the accept length at 2.
    for name, excess in (("A/E3", 0.074), ("A/E1", 0.154)):
        rows = table(name)
        predicted = AcceptCurve([rows[2]]).at(7)
        assert predicted / rows[7].accept_length - 1 == pytest.approx(excess, abs=0.01)


def test_one_alpha_solves_the_geometric_sum() -> None:
    assert one_alpha(1 + 0.6 + 0.36 + 0.216, 3) == pytest.approx(0.6)
    assert one_alpha(1.0, 5) == pytest.approx(0.0, abs=1e-3)
    assert one_alpha(6.0, 5) == pytest.approx(1.0)


def test_beyond_the_highest_count_it_goes_on_falling_and_the_band_allows_for_none_or_the_last() -> None:
    curve = AcceptCurve([seen(3, 2.176, (0.6, 0.36, 0.216))])
    assert curve.at(4) == pytest.approx(2.176 + 0.1296)
    low, high = curve.band(4)
    assert curve.at(4) * (1 - low) < 2.176
    assert curve.at(4) * (1 + high) > 2.176 + 0.216


def test_the_band_is_narrow_where_measured_and_wider_below_and_between() -> None:
    curve = AcceptCurve([seen(2, 1.96), seen(8, 2.475, tuple(0.6**k for k in range(1, 9)))])
    assert curve.band(2) == curve.band(8) == (0.005, 0.005)
    assert curve.band(5) == (0.03, 0.03)
    assert curve.band(1) == (0.05, 0.05)


def _drafted(steps: int, accepted: list[bool]) -> Seen:
    """A chain of drafts over a text in which each token is accepted or not."""
    histogram = [0] * (steps + 1)
    at = 0
    while at + steps < len(accepted):
        right = 0
        while right < steps and accepted[at + right]:
            right += 1
        histogram[right] += 1
        at += right + 1
    verifies = sum(histogram)
    survival = tuple(sum(histogram[k:]) / verifies for k in range(1, steps + 1))
    return seen(steps, 1 + math.fsum(survival), survival)


@pytest.mark.parametrize("low", [2, 3])
@pytest.mark.parametrize("clustering", [0.0, 0.5, 0.9])
def test_in_a_text_with_hard_stretches_two_histograms_predict_the_others_within_the_band(
    clustering: float, low: int
) -> None:
    """Difficulty follows an AR(1) process, as in text that is hard in places; one histogram alone reads up to 8 % low."""
    dice, difficulty, accepted = random.Random(1), 0.0, []
    for _ in range(60_000):
        difficulty = clustering * difficulty + math.sqrt(1 - clustering**2) * dice.gauss(0, 1)
        accepted.append(dice.random() < 1 / (1 + math.exp(-(0.6 + 1.5 * difficulty))))
    real = {steps: _drafted(steps, accepted) for steps in (1, 2, 3, 5, 10)}
    curve = AcceptCurve([real[low], real[10]])
    for steps, each in real.items():
        assert curve.at(steps) == pytest.approx(each.accept_length, rel=max(curve.band(steps)))
    if clustering == 0.9:
        alone = AcceptCurve([real[10]])
        assert alone.at(2) / real[2].accept_length - 1 < -0.05


chances = st.lists(st.floats(0.01, 0.999), min_size=1, max_size=12)


@given(chances=chances, shift=st.floats(0.9, 1.1))
def test_accept_length_never_falls_and_never_exceeds_what_is_drafted(chances: list[float], shift: float) -> None:
    survival = tuple(math.prod(chances[:k]) for k in range(1, len(chances) + 1))
    top = seen(len(survival), 1 + math.fsum(survival), survival)
    points = [top]
    if top.steps > 2:
        points.append(seen(2, min(max((1 + sum(survival[:2])) * shift, 1.0), 3.0)))
    curve = AcceptCurve(points)
    lengths = [curve.at(steps) for steps in range(1, 16)]
    assert all(a <= b for a, b in pairwise(lengths))
    assert all(1 <= length <= steps + 1 for steps, length in enumerate(lengths, 1))


@given(alpha=st.floats(0.05, 0.95), counts=st.sets(st.integers(1, 12), min_size=1, max_size=4))
def test_lengths_of_one_chance_are_predicted_exactly(alpha: float, counts: set[int]) -> None:
    def length(steps: int) -> float:
        return math.fsum(alpha**k for k in range(steps + 1))

    top = max(counts)
    survival = tuple(alpha**k for k in range(1, top + 1))
    curve = AcceptCurve([seen(steps, length(steps), survival if steps == top else ()) for steps in counts])
    assert [curve.at(steps) for steps in range(1, 13)] == pytest.approx([length(k) for k in range(1, 13)], rel=1e-6)
