"""The trimmed mean of many pairs: against values worked out by hand, and against the plain mean where the scatter has tails."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from gpu.validate.pairs import Cost, needed, per_quad, trimmed


def test_two_pairs_in_either_order_make_one_value_and_an_odd_one_is_left_out() -> None:
    assert per_quad([1.02, 0.98, 1.01, 1.0, 7.0]) == pytest.approx([math.log(1.02 * 0.98) / 2, math.log(1.01) / 2])


def test_a_fifth_at_each_end_is_left_out_and_the_error_is_that_of_winsorized_values() -> None:
    values = [0.001 * value for value in (0, 1, 2, 3, 4, 5, 6, 7, 8, 999)]
    found = trimmed(values)
    # Kept: 2 to 7, mean 4.5; winsorized 2 2 2 3 4 5 6 7 7 7: sum of squares about 4.5 is 42.5, over 9; 5 degrees of freedom.
    half = 2.570582 * math.sqrt(42.5e-6 / 9) / (0.6 * math.sqrt(10))
    assert found.percent == pytest.approx(100 * math.expm1(0.0045))
    assert found.low == pytest.approx(100 * math.expm1(0.0045 - half), rel=1e-5)
    assert found.high == pytest.approx(100 * math.expm1(0.0045 + half), rel=1e-5)
    assert found.count == 10


def test_too_few_values_are_refused() -> None:
    with pytest.raises(ValueError, match="9 values are too few to trim"):
        trimmed([0.0] * 9)


def jumping(source: random.Random) -> float:
    """A cost of 0.7 % under scatter as it was seen: 2 % in most pairs, 9 % in one of six."""
    return -0.007 + source.gauss(0, 0.09 if source.random() < 1 / 6 else 0.02)


def test_its_interval_holds_the_truth_as_often_as_it_says_and_is_narrower_than_the_plain_one() -> None:
    source = random.Random(5)
    held, widths, plain = 0, list[float](), list[float]()
    for _ in range(300):
        values = [jumping(source) for _ in range(200)]
        found = trimmed(values)
        held += found.low <= 100 * math.expm1(-0.007) <= found.high
        widths.append(found.high - found.low)
        plain.append(2 * 1.97 * 100 * statistics.stdev(values) / math.sqrt(len(values)))
    assert 0.92 <= held / 300 <= 0.98
    assert statistics.fmean(widths) < 0.7 * statistics.fmean(plain)


def test_how_many_values_an_interval_needs_to_end_at_the_goal() -> None:
    assert needed(Cost(-0.8, -1.2, -0.4, 100), -1.0) == 400  # half as wide: four times as many
    assert needed(Cost(-0.8, -0.9, -0.7, 100), -1.0) == 25
    assert needed(Cost(-1.0, -1.2, -0.8, 100), -1.0) is None
