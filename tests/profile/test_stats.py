from __future__ import annotations

import pytest

from eaglelab.profile.stats import describe, ratio_ci95, t_975


def test_an_empty_sample_has_no_description():
    assert describe([]) is None


def test_a_single_value_has_no_spread_and_no_interval():
    stats = describe([3.0])
    assert stats is not None
    assert (stats.count, stats.mean, stats.median, stats.p90, stats.p95, stats.p99) == (1, 3.0, 3.0, 3.0, 3.0, 3.0)
    assert stats.stdev is None
    assert stats.ci95 is None
    assert stats.half_width is None


def test_a_sample_is_described_as_computed_by_hand():
    stats = describe([0.4, 0.6, 0.5, 0.5])
    assert stats is not None
    assert stats.mean == pytest.approx(0.5)
    assert stats.median == pytest.approx(0.5)
    assert stats.p95 == pytest.approx(0.585)  # position 0.95 * 3 = 2.85 between 0.5 and 0.6
    assert stats.stdev == pytest.approx(0.0816497, abs=1e-6)  # sqrt(0.02 / 3)
    assert stats.half_width == pytest.approx(0.129923, abs=1e-5)  # 3.1824 * 0.0816497 / sqrt(4)
    assert stats.ci95 == pytest.approx((0.370077, 0.629923), abs=1e-5)


def test_percentiles_interpolate_between_neighbours_and_travel_in_the_json():
    stats = describe([float(value) for value in range(11)])
    assert stats is not None
    assert (stats.p90, stats.p95, stats.p99) == (9.0, 9.5, 9.9)
    assert {name: stats.to_json()[name] for name in ("p90", "p95", "p99")} == {"p90": 9.0, "p95": 9.5, "p99": 9.9}


@pytest.mark.parametrize(
    ("degrees", "quantile"),
    [(1, 12.7062), (2, 4.3027), (9, 2.2622), (10, 2.2281), (20, 2.0860), (30, 2.0423), (96, 1.9850), (100_000, 1.9600)],
)
def test_the_t_quantile_equals_the_printed_tables(degrees, quantile):
    assert t_975(degrees) == pytest.approx(quantile, abs=1.5e-4)


def test_the_t_quantile_needs_a_degree_of_freedom():
    with pytest.raises(ValueError, match="at least one degree"):
        t_975(0)


def test_the_interval_of_a_ratio_is_as_computed_by_hand():
    # residuals 2-1.877333, 1-2.016, 3-2.112, 2-1.994667; stdev 0.782278; 3.1824 * 0.782278 * sqrt(4) / 0.075
    low, high = ratio_ci95([2, 1, 3, 2], [0.0176, 0.0189, 0.0198, 0.0187])
    assert (low + high) / 2 == pytest.approx(106.6667, abs=1e-3)
    assert (high - low) / 2 == pytest.approx(66.388, abs=5e-3)


def test_the_interval_of_a_constant_ratio_has_no_width():
    assert ratio_ci95([2, 4, 6], [1.0, 2.0, 3.0]) == pytest.approx((2.0, 2.0))


def test_one_pair_gives_no_interval():
    assert ratio_ci95([2], [1.0]) is None
