from __future__ import annotations

import random

import pytest
from figures import h200
from hypothesis import given
from hypothesis import strategies as st

from eaglelab.errors import InputError
from eaglelab.model.cycle import CycleCurve
from eaglelab.model.seen import Seen


def cycles(times: dict[int, float]) -> list[Seen]:
    return [Seen(steps, ms, 1.5) for steps, ms in times.items()]


def test_two_points_are_a_line_also_beyond_them() -> None:
    curve = CycleCurve(cycles({2: 10.0, 10: 26.0}))
    assert curve.shape == "line"
    assert [curve.at(steps) for steps in (1, 2, 5, 10, 12)] == pytest.approx([8.0, 10.0, 16.0, 26.0, 30.0])
    assert curve.step_ms == pytest.approx(2.0)
    assert curve.flat_until is None


def test_points_near_a_line_are_a_line() -> None:
    curve = CycleCurve(cycles({2: 10.05, 3: 11.95, 5: 16.05, 10: 25.95}))
    assert curve.shape == "line"
    assert curve.at(7) == pytest.approx(20.0, rel=0.005)


def test_a_floor_of_the_host_is_found_with_its_end() -> None:
    # 4.2 ms of the host up to 3 steps, then 0.28 ms a step: the shape that was measured on an H200.
    curve = CycleCurve(cycles({1: 4.2, 2: 4.2, 3: 4.2, 5: 4.76, 8: 5.6}))
    assert curve.shape == "floor"
    assert curve.flat_until == pytest.approx(3.0)
    assert [curve.at(steps) for steps in (1, 2, 4, 6)] == pytest.approx([4.2, 4.2, 4.48, 5.04])
    assert curve.step_ms == pytest.approx(0.28)


def test_the_floor_of_a_real_overlapping_worker_is_found() -> None:
    curve = CycleCurve(list(h200("v2").values()))
    assert curve.shape == "floor"
    assert curve.flat_until == pytest.approx(3.0, abs=0.1)


def test_three_points_are_enough_for_a_floor() -> None:
    curve = CycleCurve(cycles({2: 4.2, 5: 4.76, 8: 5.6}))
    assert curve.shape == "floor"
    assert curve.at(3) == pytest.approx(4.2)


def test_a_verify_that_levels_off_gives_straight_pieces() -> None:
    curve = CycleCurve(cycles({2: 17.6, 5: 26.6, 10: 32.2}))
    assert curve.shape == "bent"
    assert curve.at(3) == pytest.approx(20.6)
    assert curve.at(6) == pytest.approx(27.72)


def test_the_first_step_does_not_tilt_the_line_of_the_others() -> None:
    # It runs no draft graph. 14.0 instead of the 11.0 on the line: a fit through all would be tilted.
    curve = CycleCurve(cycles({1: 14.0, 2: 12.0, 4: 14.0, 8: 18.0}))
    assert curve.shape == "line"
    assert curve.at(6) == pytest.approx(16.0)


def test_one_point_goes_on_by_its_own_draft_time() -> None:
    curve = CycleCurve([Seen(3, 20.0, 1.8, event_ms={"draft": 1.0})])
    assert curve.shape == "draft"
    assert [curve.at(steps) for steps in (1, 3, 5)] == pytest.approx([19.0, 20.0, 21.0])


def test_one_point_without_a_draft_time_tells_of_no_other() -> None:
    curve = CycleCurve([Seen(3, 20.0, 1.8)])
    assert curve.shape == "level"
    assert curve.step_ms is None


def test_the_band_is_narrow_where_it_was_measured_and_wide_where_not() -> None:
    curve = CycleCurve(cycles({2: 10.0, 10: 26.0}))
    assert curve.band(2) == (0.01, 0.01)
    inside, beyond, further = curve.band(6), curve.band(11), curve.band(12)
    assert min(inside) > 0.02
    # Between them it may sag by 15 % of the rise of 16 ms and rise by 30 %, at a cycle of 18 ms.
    assert inside == pytest.approx(((0.02**2 + (0.15 * 16 / 18) ** 2) ** 0.5, (0.02**2 + (0.3 * 16 / 18) ** 2) ** 0.5))
    assert beyond == pytest.approx((0.02 + 2 / 28, 0.02 + 2 / 28))
    assert further > beyond


def test_a_third_point_narrows_the_band() -> None:
    two, three = CycleCurve(cycles({2: 10.0, 10: 26.0})), CycleCurve(cycles({2: 10.0, 6: 18.0, 10: 26.0}))
    assert all(a < b for a, b in zip(three.band(4), two.band(4), strict=True))


def test_below_what_was_measured_no_cycle_takes_longer_than_there() -> None:
    curve = CycleCurve(cycles({3: 12.0, 7: 20.0}))
    faster, slower = curve.band(1)
    assert curve.at(1) * (1 + slower) >= 12.0
    assert faster == pytest.approx(0.06)


@pytest.mark.parametrize("seen", [[], cycles({2: 10.0}) + cycles({2: 11.0})], ids=["none", "twice"])
def test_points_that_make_no_curve_are_refused(seen: list[Seen]) -> None:
    with pytest.raises(InputError):
        CycleCurve(seen)


def test_the_run_without_speculation_is_no_point_of_it() -> None:
    with pytest.raises(InputError, match="0 steps"):
        Seen(0, 11.2, 1.0)


@given(
    start=st.floats(1, 100),
    slope=st.floats(0, 10),
    counts=st.sets(st.integers(1, 20), min_size=2, max_size=6),
    seed=st.integers(0, 99),
)
def test_a_line_is_found_exactly_whatever_the_order_of_its_points(
    start: float, slope: float, counts: set[int], seed: int
) -> None:
    seen = cycles({steps: start + slope * steps for steps in counts})
    random.Random(seed).shuffle(seen)
    curve = CycleCurve(seen)
    assert [curve.at(steps) for steps in range(1, 21)] == pytest.approx([start + slope * k for k in range(1, 21)])


@given(
    floor=st.floats(3, 50),
    slope=st.floats(0.1, 1),
    bend=st.integers(2, 5),
)
def test_a_floor_is_found_exactly_or_the_line_is_as_good(floor: float, slope: float, bend: int) -> None:
    times = {steps: floor + max(steps - bend, 0) * slope for steps in (1, 2, 3, 5, 7, 9, 12)}
    curve = CycleCurve(cycles(times))
    for steps, ms in times.items():
        assert curve.at(steps) == pytest.approx(ms, rel=0.05)


@given(times=st.dictionaries(st.integers(1, 15), st.floats(1, 100), min_size=1, max_size=6))
def test_any_figures_give_positive_times_and_bands_of_at_least_a_percent(times: dict[int, float]) -> None:
    curve = CycleCurve(cycles(times))
    for steps in range(1, 18):
        assert curve.at(steps) > 0
        assert min(curve.band(steps)) >= 0.01
