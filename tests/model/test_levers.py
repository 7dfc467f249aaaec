from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaglelab.model.explained import Lever
from eaglelab.model.levers import Case, levers


def rate(accept_length: float, cycle_ms: float) -> float:
    return 1000 * accept_length / cycle_ms


# 2 steps: 1.75 tokens in 17.5 ms, 100 tok/s; 4 steps: 1.9375 tokens in 20 ms, 96.9 tok/s.
TWO = Case(2, 1.75, 17.5, {"draft": 1.0, "verify": 14.0, "extend": 1.5, "other": 1.0})
FOUR = Case(4, 1.9375, 20.0, {"draft": 3.0, "verify": 14.5, "extend": 1.5, "other": 1.0})


def found(**options: object) -> dict[str, Lever]:
    return {lever.code: lever for lever in levers([TWO, FOUR], rate, 100.0, **options)}  # type: ignore[arg-type]


def test_each_lever_is_worth_what_the_cycle_without_its_cost_yields_at_its_own_best_count() -> None:
    by_code = found(plain_ms=11.0)
    # A free draft: 1.9375 / 17 ms at 4 steps beats 1.75 / 16.5 ms at 2.
    assert by_code["free_draft"].tok_s == pytest.approx(1937.5 / 17)
    assert by_code["free_draft"].steps == 4
    assert by_code["free_extend"].tok_s == pytest.approx(1750 / 16)
    assert by_code["zero_overhead"].tok_s == pytest.approx(1750 / 16.5)
    assert by_code["perfect_draft"].tok_s == pytest.approx(5000 / 20)
    assert by_code["perfect_draft"].steps == 4
    # Verify at 11 ms as a plain step: 1.75 / 14.5 at 2 steps, 1.9375 / 16.5 at 4.
    assert by_code["plain_verify"].tok_s == pytest.approx(1750 / 14.5)
    assert by_code["plain_verify"].gain == pytest.approx(1750 / 14.5 / 100 - 1)
    assert all(lever.bound == "at most" for lever in by_code.values())


def test_levers_come_largest_first() -> None:
    gains = [lever.gain for lever in levers([TWO, FOUR], rate, 100.0, plain_ms=11.0)]
    assert gains == sorted(gains, reverse=True)


def test_an_all_reduce_is_a_lever_only_where_its_share_is_known() -> None:
    assert "free_all_reduce" not in found()
    # 27 % of 14 ms of verify.
    assert found(all_reduce_share=0.27)["free_all_reduce"].tok_s == pytest.approx(1750 / (17.5 - 0.27 * 14))


def test_a_verify_below_a_plain_step_is_worth_nothing() -> None:
    lever = found(plain_ms=30.0)["plain_verify"]
    assert lever.gain == 0
    assert lever.tok_s == 100.0
    assert "worth nothing" in lever.sentence


def test_a_gain_is_told_of_the_best_that_was_measured_whatever_the_model_makes_of_it() -> None:
    by_code = {lever.code: lever for lever in levers([TWO, FOUR], rate, 98.0)}
    assert by_code["free_extend"].gain == pytest.approx(17.5 / 16 - 1)
    assert by_code["free_extend"].tok_s == pytest.approx(98.0 * 17.5 / 16)


def test_waits_for_the_host_are_a_lever_of_their_own_and_only_a_least() -> None:
    waiting = Case(2, 1.75, 17.5, TWO.parts, idle_ms=0.5)
    by_code = {lever.code: lever for lever in levers([waiting], rate, 100.0)}
    assert by_code["no_host_wait"].tok_s == pytest.approx(1750 / 17)
    assert by_code["no_host_wait"].bound == "at least"
    assert by_code["zero_overhead"].tok_s == pytest.approx(1750 / 16)
    assert by_code["zero_overhead"].bound == "at least"


def test_host_timers_give_a_least_for_the_draft_and_say_nothing_of_verify_and_extend() -> None:
    by_code = found(clock="host", plain_ms=11.0, all_reduce_share=0.2)
    assert set(by_code) == {"free_draft", "perfect_draft", "zero_overhead"}
    assert by_code["free_draft"].bound == "at least"


def test_without_phases_only_a_perfect_draft_can_be_told() -> None:
    assert [lever.code for lever in levers([Case(2, 1.75, 17.5)], rate, 100.0, plain_ms=11.0)] == ["perfect_draft"]


def test_without_a_step_count_no_perfect_draft_can_be_told() -> None:
    codes = {lever.code for lever in levers([Case(None, 1.98, 31.74, TWO.parts)], rate, 62.4)}
    assert codes == {"free_draft", "free_extend", "zero_overhead"}


times = st.floats(0, 50)
cases = st.lists(
    st.builds(
        lambda steps, right, draft, verify, extend, other, idle: Case(
            steps,
            1 + right * steps,
            draft + verify + extend + other + 1,
            {"draft": draft, "verify": verify + 1, "extend": extend, "other": other},
            idle * verify,
        ),
        st.integers(1, 12),
        st.floats(0, 1),
        times,
        times,
        times,
        times,
        st.floats(0, 0.5),
    ),
    min_size=1,
    max_size=5,
)


@given(cases=cases, plain=st.floats(0.5, 60), share=st.floats(0, 1), today=st.floats(1, 1000))
def test_no_lever_is_ever_below_what_there_is(cases: list[Case], plain: float, share: float, today: float) -> None:
    for lever in levers(cases, rate, today, plain_ms=plain, all_reduce_share=share):
        assert lever.tok_s >= today
        assert lever.gain >= 0
        assert lever.tok_s == pytest.approx(today * (1 + lever.gain))


@given(cases=cases, plain=st.floats(0.5, 60))
def test_levers_do_not_hang_on_the_order_of_the_counts(cases: list[Case], plain: float) -> None:
    def worth(given: list[Case]) -> dict[str, float]:
        return {lever.code: lever.tok_s for lever in levers(given, rate, 100.0, plain_ms=plain)}

    assert worth(cases) == pytest.approx(worth(cases[::-1]))
