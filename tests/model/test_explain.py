from __future__ import annotations

import json
import random
import re

import pytest
from figures import h200, table
from hypothesis import given, settings
from hypothesis import strategies as st

from eaglelab.errors import InputError
from eaglelab.model.explain import BEYOND, explain
from eaglelab.model.explained import Explained
from eaglelab.model.seen import Plain, Seen

PLAIN = Plain(89.0, 11.24, (88.0, 90.0))
EVENTS = {"draft": 0.5, "verify": 15.8, "extend": 1.26, "other": 1.0, "total": 18.56}
HOST = {"draft": 0.31, "verify": 16.2, "extend": 0.35, "other": 1.7, "total": 18.56}
# The history behind the lab: 94 tok/s with 2 steps, 71 with 5, 60 with 10; 89 without speculation.
TWO = Seen(2, 18.56, 1.745, 94.0, (93.0, 95.0), (0.4975, 0.2475), EVENTS, HOST)
FIVE = Seen(5, 27.6, 1.96, 71.0, (70.0, 72.0), (0.4975, 0.2475, 0.123, 0.061, 0.03))
TEN = Seen(10, 33.15, 1.989, 60.0, (59.0, 61.0), tuple(0.4975**k for k in range(1, 11)))


def said(explained: Explained) -> str:
    return "\n".join(explained.sentences)


def test_every_count_from_one_to_a_little_beyond_the_highest_has_a_point() -> None:
    explained = explain(1, [TWO, TEN], PLAIN)
    assert [point.steps for point in explained.points] == list(range(1, 10 + BEYOND + 1))
    measured = [point.steps for point in explained.points if point.measured_tok_s is not None]
    assert measured == [2, 10]
    assert [point.steps for point in explained.points if point.extrapolated] == [1, 11, 12]
    two, five = explained.point(2), explained.point(5)
    assert two is not None
    assert two.tok_s == 94.0
    assert five is not None
    assert five.tok_s == five.predicted_tok_s


def test_the_verdict_says_what_is_fastest_by_how_much_and_how_surely() -> None:
    explained = explain(1, [TWO, FIVE, TEN], PLAIN)
    assert explained.best_measured == 2
    assert explained.sentences[0] == (
        "2 steps are the fastest of the 3 step counts measured: 94.0 tok/s (93.0 to 95.0), 5.6 % over the baseline (89.0)."
    )


def test_break_even_is_the_cycle_over_the_plain_step() -> None:
    explained = explain(1, [TWO, FIVE, TEN], PLAIN)
    assert explained.break_even == pytest.approx(18.56 / 11.24)
    assert "it must yield 1.65 tokens to break even and yields 1.75, so it pays." in said(explained)
    ten = explained.point(10)
    assert ten is not None
    assert ten.break_even == pytest.approx(33.15 / 11.24)


def test_what_limits_is_said_by_gpu_time_with_the_host_timers_beside_it() -> None:
    text = said(explain(1, [TWO, FIVE, TEN], PLAIN))
    assert "By GPU time verify is the largest part of a cycle of 2 steps: 15.80 of 18.56 ms (85.1 %)." in text
    assert "draft 0.50 / 0.31, verify 15.80 / 16.20, extend 1.26 / 0.35, other 1.00 / 1.70 ms" in text
    assert "host timers are right for the total only" in text


def test_host_timers_alone_are_never_said_to_show_what_limits() -> None:
    on_host = Seen(2, 18.56, 1.745, 94.0, host_ms=HOST)
    text = said(explain(1, [on_host], PLAIN, clock="host"))
    assert "limit" not in text
    assert "largest part" not in text


def test_where_the_baseline_wins_at_every_count_the_advice_is_to_turn_speculation_off() -> None:
    explained = explain(64, [TWO, FIVE, TEN], Plain(200.0, 11.24 * 64 / 2))
    assert explained.off
    assert explained.sentences[0].startswith(
        "Turn speculation off at 64 requests at a time: the baseline's 200.0 tok/s beats every step count, band included; "
        "the best measured, 2 steps, reaches 94.0 tok/s"
    )
    assert explained.sentences[-1] == "No further load is needed at this batch size."


def test_a_public_run_that_lost_to_its_baseline_is_told_to_turn_speculation_off() -> None:
    """I: a chain of 3 steps 159.8 tok/s, 222.5 without speculation: the cycle would have had to yield 2.59 tokens."""
    explained = explain(1, list(table("I").values()), Plain(222.5, 1000 / 222.5), clock="clients")
    assert explained.off
    assert explained.break_even == pytest.approx(1.86 * 222.5 / 159.8)
    assert "it must yield 2.59 tokens to break even and yields 1.86, so it does not pay." in said(explained)


def test_a_baseline_that_ties_is_named_as_the_simplest() -> None:
    explained = explain(1, [TWO, FIVE, TEN], PLAIN, ranked_ties=(2, None))
    assert not explained.off
    assert "The baseline cannot be told from it: the baseline is the simplest choice." in explained.sentences[0]


def test_counts_that_a_ranking_cannot_tell_apart_are_rivals() -> None:
    explained = explain(1, [TWO, FIVE, TEN], PLAIN, ranked_ties=(2, 5))
    assert [point.steps for point in explained.points if point.rival and point.measured_tok_s] == [2, 5]
    assert "5 steps cannot be told from it: the fewest steps are the simplest choice." in explained.sentences[0]


def test_only_counts_whose_band_reaches_the_best_are_worth_a_load() -> None:
    # A public run: of 3 to 6 steps, unmeasured, the best is 4, predicted 250.4 tok/s where 2 steps reach 231.5.
    found = table("A/E3")
    explained = explain(1, [found[2], found[7]])
    best = explained.point(explained.best_predicted)
    assert explained.best_predicted == 4
    assert best is not None
    assert 4 in explained.load_next
    for steps in explained.load_next:
        point = explained.point(steps)
        assert point is not None
        assert point.high is not None
        assert best.predicted_tok_s is not None
        assert point.high >= best.predicted_tok_s
    assert explained.sentences[-1].startswith("Try next: 4 steps, predicted 250.4 tok/s")


def test_when_no_band_reaches_the_best_no_load_is_asked_for() -> None:
    explained = explain(1, [Seen(1, 16.92, 1.498, 88.5), TWO, Seen(3, 21.6, 1.868, 86.5), FIVE, TEN], PLAIN)
    assert explained.load_next == ()
    assert "no further load is needed" in explained.sentences[-1]


def test_one_more_step_is_weighed_by_what_it_adds_to_tokens_and_time() -> None:
    assert "One step more than 2 does not pay: it adds " in said(explain(1, [TWO, FIVE, TEN], PLAIN))


def test_a_floor_of_the_host_is_said_to_set_the_pace_and_the_gpus_waits_are_named() -> None:
    explained = explain(1, list(h200("v2").values()), Plain(412.0, 1000 / 412))
    assert explained.flat_until == pytest.approx(3.0, abs=0.1)
    text = said(explained)
    assert "Up to 3.0 steps the cycle does not grow: the host, not the GPU, sets its pace there" in text
    # Verify takes 3.427 ms at 1 step by events, and 2.816 at 5 steps with three times the tokens: 13 % of the cycle is idle.
    idle = re.search(r"At 1 step at least (\d\.\d\d) ms a cycle is the GPU waiting for the host", text)
    assert idle is not None
    assert float(idle[1]) == pytest.approx(4.22 * (3.427 - 2.816) / 4.696, abs=0.02)
    assert "no_host_wait" in {lever.code for lever in explained.levers}


def test_levers_are_taken_at_their_own_best_count() -> None:
    by_code = {lever.code: lever for lever in explain(1, list(h200("v2").values()), Plain(412.0, 1000 / 412)).levers}
    assert by_code["free_draft"].steps == 8
    assert by_code["perfect_draft"].steps == 8
    assert by_code["zero_overhead"].bound == "at least"


def test_an_all_reduce_of_unknown_share_is_left_out_and_said_to_be() -> None:
    without, known = explain(1, [TWO, TEN], PLAIN), explain(1, [TWO, TEN], PLAIN, all_reduce_share=0.27)
    assert "free_all_reduce" not in {lever.code for lever in without.levers}
    assert any("all-reduce" in note for note in without.notes)
    assert "free_all_reduce" in {lever.code for lever in known.levers}


def test_without_a_baseline_nothing_is_said_of_break_even() -> None:
    explained = explain(1, [TWO, TEN])
    assert explained.break_even is None
    assert "break even" not in said(explained)
    assert any("No baseline was measured" in note for note in explained.notes)


def test_a_single_count_without_a_draft_time_asks_for_a_second() -> None:
    explained = explain(1, [Seen.of_rate(2, 94.0, 1.745)], PLAIN, clock="clients")
    assert [point.steps for point in explained.points] == [2]
    assert explained.best_predicted is None
    assert explained.sentences[-1].startswith("Measure a second step count")


def test_accept_lengths_guessed_from_one_chance_are_labelled() -> None:
    found = table("C")
    notes = explain(1, [found[1], found[7]]).notes
    assert any("last resort" in note for note in notes)


def test_it_can_be_written_as_json_without_loss_of_its_parts() -> None:
    explained = explain(1, [TWO, FIVE, TEN], PLAIN)
    document = json.loads(json.dumps(explained.to_json(), allow_nan=False))
    assert document["batch"] == 1
    assert [point["steps"] for point in document["points"]] == [point.steps for point in explained.points]
    assert document["points"][1]["measured_ci95"] == [93.0, 95.0]
    assert [lever["code"] for lever in document["levers"]] == [lever.code for lever in explained.levers]
    assert document["sentences"] == list(explained.sentences)


def test_nothing_measured_is_refused() -> None:
    with pytest.raises(InputError):
        explain(1, [], PLAIN)


@settings(max_examples=50)
@given(
    order=st.permutations([TWO, FIVE, TEN, *(each for steps, each in h200("v2").items() if steps in (1, 3, 8))]),
    plain=st.sampled_from([None, PLAIN, Plain(500.0, 2.0)]),
)
def test_the_order_in_which_counts_were_measured_changes_nothing(order: list[Seen], plain: Plain | None) -> None:
    assert explain(1, order, plain) == explain(1, sorted(order, key=lambda each: each.steps), plain)


@settings(max_examples=50)
@given(
    figures=st.dictionaries(st.integers(1, 12), st.tuples(st.floats(1, 100), st.floats(0, 1)), min_size=1, max_size=5),
    batch=st.integers(1, 64),
    plain_ms=st.none() | st.floats(1, 100),
    seed=st.integers(0, 9),
)
def test_any_figures_can_be_explained_and_no_lever_is_below_the_best_of_today(
    figures: dict[int, tuple[float, float]], batch: int, plain_ms: float | None, seed: int
) -> None:
    dice = random.Random(seed)
    seen = [
        Seen(
            steps,
            cycle,
            1 + share * steps,
            event_ms={
                name: cycle * part
                for name, part in zip(("draft", "verify", "extend", "other"), (0.1, 0.7, 0.1, 0.1), strict=True)
            }
            if dice.random() < 0.7
            else {},
        )
        for steps, (cycle, share) in figures.items()
    ]
    plain = None if plain_ms is None else Plain(1000 * batch / plain_ms, plain_ms)
    explained = explain(batch, seen, plain)
    best = max(each.rate(batch) for each in seen)
    assert all(lever.tok_s >= best for lever in explained.levers)
    assert explained.sentences
    json.dumps(explained.to_json(), allow_nan=False)
