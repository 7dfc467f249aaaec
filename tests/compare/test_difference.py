"""Differences and their intervals, against values worked out by hand."""

from __future__ import annotations

import math

import pytest

from eaglelab.compare.difference import Spread, between_loads, from_error, paired, unpaired


def test_paired_values_have_the_interval_of_their_differences_and_of_their_log_ratios() -> None:
    # Differences 1, 2, 3: mean 2, standard deviation 1, t(2) = 4.3027, half width 4.3027 / sqrt(3) = 2.4842.
    found = paired([10, 20, 30], [11, 22, 33], "rounds")
    assert (found.reference, found.candidate) == (20, 22)
    assert found.absolute.value == pytest.approx(2)
    assert found.absolute.ci95 == pytest.approx((2 - 2.4842, 2 + 2.4842), abs=1e-4)
    # Each is 1.1 times the other: the log ratios do not vary at all.
    assert found.percent is not None
    assert found.percent.value == pytest.approx(10)
    assert found.percent.ci95 == pytest.approx((10, 10))
    assert (found.verdict, found.how) == ("higher", "3 paired rounds")


def test_the_percentage_of_pairs_is_the_mean_log_ratio() -> None:
    # Log ratios log(1.1) and log(0.9): mean log(sqrt(0.99)), t(1) = 12.7062, half width 12.7062 * 0.1003 = 1.2751.
    found = paired([100, 100], [110, 90], "rounds").percent
    assert found is not None
    assert found.ci95 is not None
    assert found.value == pytest.approx(100 * (math.sqrt(0.99) - 1))
    half = 12.7062 * math.log(1.1 / 0.9) / 2
    assert found.ci95[1] == pytest.approx(100 * (math.sqrt(0.99) * math.exp(half) - 1), rel=1e-4)


def test_what_is_not_above_0_has_no_percentage() -> None:
    found = paired([0.0, 0.1], [0.2, 0.1], "rounds")
    assert found.percent is None
    assert found.absolute.value == pytest.approx(0.1)
    assert found.verdict == "tie"


def test_unpaired_means_have_the_interval_of_welch() -> None:
    # Errors 3 and 4: together 5. Satterthwaite: 625 / (81/9 + 256/4) = 8.56, so 8 degrees, t = 2.3060.
    found = unpaired(Spread(100, 3, 10, "rounds"), Spread(120, 4, 5, "rounds"))
    assert found.absolute.value == 20
    assert found.absolute.ci95 == pytest.approx((20 - 11.53, 20 + 11.53), abs=1e-3)
    # On the logarithms: hypot(3/100, 4/120) = 0.044845.
    assert found.percent is not None
    assert found.percent.ci95 is not None
    assert found.percent.ci95[0] == pytest.approx(100 * (1.2 * math.exp(-2.3060 * 0.0448454) - 1), abs=1e-3)
    assert (found.verdict, found.paired, found.how) == ("higher", False, "5 rounds")


def test_a_single_observation_a_side_has_a_difference_and_no_interval() -> None:
    found = unpaired(Spread(100, None, 1, "runs"), Spread(97, 1.0, 4, "runs"))
    assert found.absolute.ci95 is None
    assert found.percent is not None
    assert found.percent.value == pytest.approx(-3)
    assert (found.verdict, found.how) == ("unsure", "1 run")


def test_several_loads_a_side_have_one_pooled_spread() -> None:
    # Squares 8 and 2 over 2 + 1 degrees of freedom: variance 10 / 3, t(3) = 3.1824.
    found = between_loads([98, 100, 102], [90, 92])
    half = 3.1824 * math.sqrt(10 / 3) * math.sqrt(1 / 3 + 1 / 2)
    assert found.absolute.value == pytest.approx(-9)
    assert found.absolute.ci95 == pytest.approx((-9 - half, -9 + half), abs=1e-3)
    assert found.how == "5 loads"


def test_one_load_against_several_takes_its_spread_from_those() -> None:
    found = between_loads([98, 100, 102], [100])
    half = 4.3027 * 2 * math.sqrt(1 / 3 + 1)
    assert found.absolute.ci95 == pytest.approx((-half, half), abs=1e-3)
    assert found.verdict == "tie"


def test_one_load_a_side_has_no_interval() -> None:
    assert between_loads([100], [90]).verdict == "unsure"


@pytest.mark.parametrize(
    ("candidate", "error", "verdict"),
    [(2.0, 0.0, "tie"), (2.005, 0.0001, "tie"), (2.1, 0.01, "higher"), (1.9, 0.01, "lower"), (2.1, 0.5, "tie")],
)
def test_a_difference_below_half_a_percent_is_a_tie_and_so_is_one_whose_interval_holds_0(
    candidate: float, error: float, verdict: str
) -> None:
    assert from_error(2.0, candidate, error, "outputs", 10, paired=True).verdict == verdict
