"""Settings take turns, so that what drifts falls on all alike."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaglelab.sweep.rounds import Slot, requests_a_round, schedule


def slots(**changes: object) -> list[Slot]:
    wanted = {"prompts": 40, "num_prompts": 12, "concurrency": 1, "rounds": 6, "warmup": 1, "probed": True, **changes}
    steps = wanted.pop("steps", (1, 2, 5))
    return schedule(steps, **wanted)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("num_prompts", "concurrency", "rounds", "expected"),
    [(12, 1, 6, 2), (12, 4, 6, 4), (64, 4, 4, 16), (1, 16, 6, 16), (13, 1, 6, 3)],
)
def test_a_round_keeps_the_concurrency_busy_to_its_end(
    num_prompts: int, concurrency: int, rounds: int, expected: int
) -> None:
    assert requests_a_round(num_prompts, concurrency, rounds) == expected


def test_every_setting_gets_the_same_prompts_in_a_round_with_and_without_the_probe() -> None:
    for number in range(6):
        of_round = [slot for slot in slots() if slot.round == number]
        assert {slot.prompts for slot in of_round} == {(2 * number, 2 * number + 1)}
        assert Counter((slot.steps, slot.measured) for slot in of_round) == Counter(
            {(steps, measured): 1 for steps in (1, 2, 5) for measured in (False, True)}
        )


def test_settings_go_forth_and_back() -> None:
    order = [[slot.steps for slot in slots(probed=False) if slot.round == number] for number in range(4)]
    assert order == [[1, 2, 5], [5, 2, 1], [1, 2, 5], [5, 2, 1]]


def test_the_probe_comes_first_as_often_as_second_for_every_setting() -> None:
    for steps in (1, 2, 5):
        first = [
            next(slot.measured for slot in slots() if slot.round == number and slot.steps == steps)
            for number in range(6)
        ]
        assert sum(first) == 3


def test_warming_up_comes_first_unmeasured_with_prompts_of_its_own() -> None:
    found = slots(warmup=2)
    assert [slot.steps for slot in found[:3]] == [1, 2, 5]
    assert all(slot.round is None and not slot.measured and slot.prompts == (39, 38) for slot in found[:3])
    assert all(slot.round is not None for slot in found[3:])
    assert slots(warmup=0)[0].round == 0


def test_the_baseline_is_one_setting_without_a_probe() -> None:
    found = slots(steps=(None,), probed=False, warmup=0)
    assert [(slot.steps, slot.measured, slot.round) for slot in found] == [(None, False, n) for n in range(6)]


def test_where_requests_choose_the_steps_a_few_unmeasured_tokens_come_before_each_turn() -> None:
    found = slots(switching=True, warmup=0)
    for before, slot in itertools.pairwise(found):
        if slot.round is not None and before.steps != slot.steps:
            raise AssertionError("a setting's turn begins without a switch")
    switches = [slot for slot in found if slot.tokens]
    assert len(switches) == 6 * 3
    assert all(slot.round is None and not slot.measured and len(slot.prompts) == 1 for slot in switches)


@given(st.integers(1, 50), st.integers(1, 32), st.integers(1, 12), st.integers(1, 40))
def test_what_is_asked_for_is_sent_at_least(num_prompts: int, concurrency: int, rounds: int, prompts: int) -> None:
    found = slots(
        steps=(2,), num_prompts=num_prompts, concurrency=concurrency, rounds=rounds, prompts=prompts, probed=False
    )
    counted = [slot for slot in found if slot.round is not None]
    assert len(counted) == rounds
    assert num_prompts <= sum(len(slot.prompts) for slot in counted) < num_prompts + rounds * concurrency
    assert all(len(slot.prompts) % concurrency == 0 for slot in counted)
    assert all(0 <= at < prompts for slot in found for at in slot.prompts)
