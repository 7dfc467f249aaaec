from __future__ import annotations

import pytest
from figures import tables
from hypothesis import given
from hypothesis import strategies as st

from eaglelab.model.ties import ties


def test_neighbours_within_a_percent_tie() -> None:
    found = ties({1: 90.0, 2: 100.0, 3: 99.5, 5: 80.0})
    assert found.counts == (2, 3)
    assert found.fastest == 2
    assert found.noise == pytest.approx(0.0)


def test_of_equal_figures_the_one_with_the_fewest_steps_is_the_fastest() -> None:
    assert ties({2: 100.0, 3: 100.0}).fastest == 2


def test_a_dip_between_two_peaks_is_noise_and_all_of_it_ties() -> None:
    found = ties({1: 80.0, 2: 100.0, 3: 96.0, 4: 101.0, 5: 80.0})
    assert found.counts == (2, 3, 4)
    assert 0.015 < found.noise < 0.025


def test_the_noisy_plateau_of_a_public_run_is_one_tie() -> None:
    """M: 30.9, 29.9, 31.2 tok/s at 2, 3, 4 steps, which its source calls noise."""
    found = ties({steps: rate for steps, (rate, _) in tables()["M"]["rows"].items()})
    assert found.counts == (2, 3, 4)


def test_without_any_difference_everything_ties() -> None:
    assert ties({1: 50.0, 2: 50.0, 3: 50.0}).counts == (1, 2, 3)


def test_a_public_sweep_over_batch_sizes_ties_where_its_author_sees_ties() -> None:
    """D: ties within 1 % by batch size. At 8 the count between two that tie is one of them, though 1.6 % slower."""
    found = tables()["D"]
    counts = [
        ties({steps: rates[index] for steps, rates in found["rows"].items()}).counts
        for index in range(len(found["batches"]))
    ]
    assert counts == [(4, 5), (2, 3, 4, 5), (2, 3, 4, 5), (2, 3, 4, 5), (3, 4), (3, 4), (2,)]


@pytest.mark.parametrize("name", ["D", "E"])
def test_throughput_over_steps_has_one_peak_to_two_percent_in_public_sweeps(name: str) -> None:
    found = tables()[name]
    for index, batch in enumerate(found["batches"]):
        rates = {steps: row[index] for steps, row in found["rows"].items() if row[index] is not None}
        assert ties(rates).noise < 0.02, batch


def test_the_best_count_falls_as_the_batch_grows_in_public_sweeps() -> None:
    for name in ("D", "E"):
        found = tables()[name]
        best = [
            ties({k: row[index] for k, row in found["rows"].items() if row[index] is not None}).counts
            for index in range(len(found["batches"]))
        ]
        assert min(best[0]) > min(best[-1])


@given(rates=st.dictionaries(st.integers(0, 12), st.floats(1, 1000), min_size=1, max_size=8))
def test_the_fastest_always_ties_with_itself(rates: dict[int, float]) -> None:
    found = ties(rates)
    assert found.fastest in found.counts
    assert rates[found.fastest] == max(rates.values())
    assert found.noise >= 0


@given(
    peak=st.integers(1, 8),
    rise=st.floats(1.02, 2),
    fall=st.floats(1.02, 2),
)
def test_a_single_peak_has_no_noise_and_no_tie(peak: int, rise: float, fall: float) -> None:
    rates = {k: 100 * (rise ** -(peak - k) if k <= peak else fall ** -(k - peak)) for k in range(1, 10)}
    found = ties(rates)
    assert found.noise == pytest.approx(0.0, abs=1e-9)
    assert found.counts == (peak,)
