from __future__ import annotations

import itertools
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaglelab.errors import InputError
from eaglelab.server.arrivals import poisson_arrivals


@given(rate=st.floats(0.01, 1e4), count=st.integers(0, 200), seed=st.integers())
def test_times_start_at_zero_never_fall_and_are_the_same_for_the_same_seed(rate: float, count: int, seed: int) -> None:
    times = poisson_arrivals(rate, count, seed)
    assert len(times) == count
    assert times[:1] == [0.0][:count]
    assert times == sorted(times) == poisson_arrivals(rate, count, seed)


def test_the_gaps_are_exponential_with_the_mean_of_the_rate() -> None:
    times = poisson_arrivals(4.0, 20_001, 1)
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert statistics.mean(gaps) == pytest.approx(0.25, rel=0.03)
    assert statistics.stdev(gaps) == pytest.approx(0.25, rel=0.03)
    assert sum(gap > 0.25 for gap in gaps) / len(gaps) == pytest.approx(0.3679, abs=0.01)  # 1/e


def test_another_seed_gives_other_times() -> None:
    assert poisson_arrivals(4.0, 9, 1) != poisson_arrivals(4.0, 9, 2)


def test_an_infinite_rate_starts_all_at_once() -> None:
    assert poisson_arrivals(float("inf"), 3, 1) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan")])
def test_what_is_no_rate_is_refused(rate: float) -> None:
    with pytest.raises(InputError, match="is no rate"):
        poisson_arrivals(rate, 3, 1)
