"""Cycles and drafts worked out by hand for a circle of eight tokens."""

from __future__ import annotations

from pathlib import Path

import pytest

from eaglelab.lab.standin.acceptance import token_id
from gpu.lab_truth import LabTruth
from gpu.truth import CraftedTruth, Cycle, craft_truth, decode, histograms, seen_by_client, thrown_away

CIRCLE = CraftedTruth(0.75, 0, (4, 2, 7, 1, 0, 5, 3, 6), frozenset({7, 5}))
"""After 4 comes 2, after 6 comes 4 again; what is drafted after 7 and after 5 is wrong."""


def made(tokens: int, steps: int, **more: object) -> list[int]:
    return [cycle.correct for cycle in decode(CIRCLE, [4], tokens, steps, **{"late": False, **more})]  # type: ignore[arg-type]


def test_the_answer_goes_round_the_circle() -> None:
    assert CIRCLE.output([9, 9, 0], 6) == [5, 3, 6, 4, 2, 7]
    assert CIRCLE.next(6) == 4


def test_drafts_are_right_up_to_the_first_wrong_token() -> None:
    # The answer to 4 is 2 7 1 0 5 3 6 4: after its first token (2) one draft is right, 7 is not to be trusted.
    assert [CIRCLE.correct_drafts([4], 1, steps) for steps in (1, 2, 3)] == [1, 1, 1]
    assert CIRCLE.correct_drafts([4], 2, 3) == 0
    assert [CIRCLE.correct_drafts([4], 3, steps) for steps in (1, 2, 3)] == [1, 2, 2]
    assert CIRCLE.correct_drafts([4], 6, 4) == 4


def test_a_cycle_makes_its_right_drafts_and_a_token_more() -> None:
    # 2 | 7 1 | 0 5 (after 1: 0 right, 5 right, then wrong) 3 | ...
    assert made(7, 3) == [1, 2, 0]
    assert CIRCLE.output([4], 7) == [2, 7, 1, 0, 5, 3, 6]


def test_v1_cuts_the_last_cycle_at_the_end_of_the_request() -> None:
    assert made(5, 3) == [1, 1]
    assert made(4, 3) == [1, 0]
    assert thrown_away(decode(CIRCLE, [4], 5, 3, late=False), 5) == 0


def test_v2_makes_the_last_cycle_whole_and_one_more() -> None:
    cycles = decode(CIRCLE, [4], 5, 3, late=True)
    assert [cycle.correct for cycle in cycles] == [1, 2, 3]
    assert [cycle.correct for cycle in seen_by_client(cycles, late=True)] == [1, 2]
    assert thrown_away(cycles, 5) == 1 + 4
    assert seen_by_client(cycles, late=False) == cycles


def test_a_request_of_two_tokens_has_one_cycle() -> None:
    assert made(2, 5) == [0]
    assert made(2, 5, late=True) == [1, 2]


def test_a_request_of_one_token_is_refused() -> None:
    with pytest.raises(ValueError, match="no decode cycle"):
        decode(CIRCLE, [4], 1, 3, late=True)


def test_the_first_cycles_may_still_run_with_the_count_before() -> None:
    cycles = decode(CIRCLE, [1], 8, 3, late=False, old=(1, 2))
    # 0 5 | wrong after 5: 3 | 6 4 2 | 7: with one step until the second cycle, then three
    assert cycles == [Cycle(1, 1), Cycle(1, 1), Cycle(3, 2)]


def test_a_batch_is_the_sum_of_its_requests() -> None:
    cycles = [*decode(CIRCLE, [4], 5, 2, late=False), *decode(CIRCLE, [1], 5, 2, late=False), Cycle(1, 1)]
    assert histograms(cycles) == {1: [0, 1], 2: [0, 4, 0]}


def test_prompts_do_not_share_a_stretch_of_the_circle() -> None:
    truth = craft_truth(1000, 0.5, 3)
    prompts = truth.prompts(5, 100)
    told = [token for prompt in prompts for token in truth.output(prompt, 110)]
    assert len(set(told)) == len(told)
    assert all(len(prompt) == 32 for prompt in prompts)


def test_one_seed_is_one_circle_and_a_better_draft_is_wrong_less_often() -> None:
    worse, better = craft_truth(5000, 0.6, 7), craft_truth(5000, 0.8, 7)
    assert worse.order == better.order
    assert better.wrong < worse.wrong
    assert len(worse.wrong) == pytest.approx(2000, abs=3 * 35)
    assert sorted(worse.order) == list(range(5000))
    assert craft_truth(5000, 0.6, 8).order != worse.order


@pytest.mark.parametrize(("vocabulary", "acceptance"), [(1, 0.5), (10, 1.5), (10, -0.1)])
def test_what_cannot_be_crafted_is_refused(vocabulary: int, acceptance: float) -> None:
    with pytest.raises(ValueError, match="are needed"):
        craft_truth(vocabulary, acceptance, 7)


def test_a_truth_survives_being_saved(tmp_path: Path) -> None:
    truth = craft_truth(50, 0.5, 7)
    truth.save(tmp_path / "truth.json")
    assert CraftedTruth.read(tmp_path / "truth.json") == truth


@pytest.mark.parametrize("acceptance", [0.6, 0.8])
def test_survival_of_the_crafted_pair_is_a_power_of_p(acceptance: float) -> None:
    truth = craft_truth(32768, acceptance, 7)
    cycles = [cycle for prompt in truth.prompts(40, 500) for cycle in decode(truth, prompt, 500, 8, late=True)]
    for k in range(1, 9):
        expected = acceptance**k
        share = sum(cycle.correct >= k for cycle in cycles) / len(cycles)
        assert share == pytest.approx(expected, abs=3 * (expected * (1 - expected) / len(cycles)) ** 0.5)


def test_the_labs_truth_is_that_of_its_stand_in() -> None:
    truth = LabTruth(0.6, seed=1, vocabulary=32000)
    first, second = truth.prompts(2, 500)
    assert first != second
    text = " ".join(map(str, first))
    assert truth.output(first, 3) == [token_id(1, text, place, 32000) for place in range(3)]
    rights = [truth.correct_drafts(first, position, 1) for position in range(1, 2001)]
    assert sum(rights) / len(rights) == pytest.approx(0.6, abs=0.01)
    assert truth.correct_drafts(first, 1, 8) >= truth.correct_drafts(first, 1, 3)
