"""Ranking, on figures made by hand and on the lab's cost model with its noise, a drift and cluttered rounds."""

from __future__ import annotations

import json
import math
import operator
import random

import pytest

from eaglelab.errors import InputError
from eaglelab.lab.model import read_model
from eaglelab.lab.standin.acceptance import Acceptance
from eaglelab.lab.standin.costs import Costs
from eaglelab.profile.bench import BenchResult, RequestSample
from eaglelab.profile.ranking import compare, rank, round_rates
from eaglelab.profile.ranking_words import ranking_sentences
from eaglelab.profile.setting_key import SettingKey

RING = "NCCL_ALGO=Ring"
SEEDS = range(20)
MODEL = read_model(None).as_settings()
COSTS = Costs.of(MODEL)
ACCEPTANCE = Acceptance(MODEL["acceptance"]["seed"], tuple(MODEL["acceptance"]["survival"]))


PREFILL_S = COSTS.prefill(64) / 1e3
TOKENS = 512


def cycle_s(steps):
    return (COSTS.plain(1) if steps is None else COSTS.cycle(steps)) / 1e3


def cycles_of(prompt, steps):
    """Decode cycles of one request: each draft is right or wrong by prompt and position, at every step count the same."""
    position, cycles = 1, 0
    while position < TOKENS:
        position += 1 if steps is None else ACCEPTANCE.correct_drafts(prompt, position, steps) + 1
        cycles += 1
    return cycles


def measured(seed, settings, *, rounds=8, scale=None):
    """Tokens per second of interleaved rounds, with the lab's jitter, noise of a round, and a drift wider than any gap."""
    chance = random.Random(seed)
    rates = {steps: {} for steps in settings}
    now = 0.0
    for number in range(rounds):
        for steps in settings if number % 2 == 0 else reversed(settings):
            cycles = cycles_of(f"prompt {seed} {number}", steps)
            jitter = MODEL["gpu_ms"]["jitter"] / math.sqrt(3 * cycles) * chance.gauss(0, 1)
            slowed = 1 + 0.10 * math.sin(now / 300) + 0.002 * chance.gauss(0, 1)
            seconds = slowed * (PREFILL_S + cycles * cycle_s(steps) * (1 + jitter))
            now += seconds
            rates[steps][number] = TOKENS / seconds * (scale or {}).get(steps, 1.0)
    return rates


def ranked(rates, **more):
    """Ranks settings that differ in their steps only; anything else is given as a key."""
    return rank({key if isinstance(key, SettingKey) else SettingKey(key): rates[key] for key in rates}, **more)


def names(keys):
    return tuple(key.steps for key in keys)


def true_rate(steps):
    length = 1.0 if steps is None else ACCEPTANCE.accept_length(steps)
    return TOKENS / (PREFILL_S + (TOKENS - 1) / length * cycle_s(steps))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_labs_model_is_ranked_right(seed):
    ranking = ranked(measured(seed, [1, 2, 3, 5, 10, None]))
    assert (ranking.winner.steps, ranking.fastest.steps, names(ranking.groups[0])) == (2, 2, (2,))
    # 94.0, 89.0, 88.5, 86.6, 71.0 and 60.0 tok/s by the model, prefill apart
    assert [entry.key.steps for entry in ranking.entries] == [2, None, 1, 3, 5, 10]
    assert tuple(map(names, ranking.groups[-2:])) == ((5,), (10,))
    over = ranking.entry(SettingKey(2)).over_baseline
    assert over.ci95[0] < true_rate(2) / true_rate(None) < over.ci95[1]
    assert over.ci95[0] > 1.01


@pytest.mark.parametrize("seed", SEEDS)
def test_a_planted_tie_is_called_a_tie_and_the_simpler_setting_wins(seed):
    """5 steps made just as fast as 2 on average."""
    ranking = ranked(measured(seed, [2, 5, None], scale={5: true_rate(2) / true_rate(5)}))
    assert set(names(ranking.groups[0])) == {2, 5}
    assert ranking.winner == SettingKey(2)
    assert names(ranking.groups[1]) == (None,)


def test_equal_settings_are_hardly_ever_called_different():
    """Six equal settings, 300 times: some difference is found in at most 5 %, whichever setting came out on top."""
    chance = random.Random(1)
    wrong = 0
    for _ in range(300):
        drift = [chance.gauss(1, 0.05) for _ in range(6)]
        rates = {
            steps: {number: 90 * drift[number] * chance.gauss(1, 0.03) for number in range(6)}
            for steps in (None, 1, 2, 3, 5, 10)
        }
        wrong += len(ranked(rates).groups) > 1
    assert wrong <= 15


def rounds(*rates):
    return dict(enumerate(rates))


def test_a_difference_that_is_certain_but_irrelevant_is_a_tie():
    rates = {2: rounds(94.0, 94.01, 93.99, 94.0), None: rounds(93.7, 93.71, 93.69, 93.7)}
    ranking = ranked(rates)
    assert ranking.entry(SettingKey(None)).to_best.p < 1e-6
    assert tuple(map(names, ranking.groups)) == ((2, None),)
    assert ranking.winner.steps is None
    assert ranked(rates, minimum_relevant=0.001).winner.steps == 2


def test_drift_within_the_measurement_cancels():
    ranking = ranked({2: rounds(94, 47, 188, 60), 5: rounds(71.1, 35.5, 142, 45.3)})
    assert tuple(map(names, ranking.groups)) == ((2,), (5,))
    assert ranking.entry(SettingKey(5)).to_best.percent == pytest.approx(-24.4, abs=0.2)


@pytest.mark.parametrize("seed", range(50))
def test_neither_a_common_drift_nor_the_order_of_measuring_changes_the_groups(seed):
    chance = random.Random(seed)
    settings = chance.sample([None, 1, 2, 3, 5], chance.randint(2, 5))
    rates = {steps: [chance.gauss(90, 1 + seed / 10) for _ in range(4)] for steps in settings}
    drift = [chance.uniform(0.5, 2) for _ in range(4)]
    plain = ranked({steps: rounds(*found) for steps, found in rates.items()})
    drifted = ranked({steps: rounds(*map(operator.mul, rates[steps], drift)) for steps in reversed(settings)})
    assert drifted.groups == plain.groups
    assert {key.steps for group in plain.groups for key in group} == set(settings)
    assert plain.winner in plain.groups[0]


def test_ties_are_with_the_best_and_never_a_chain():
    """3 ties with 2 and 4 ties with 3, but 4 is slower than 2."""
    chance = random.Random(3)
    mean = {2: 100.0, 3: 99.0, 4: 98.0}
    noise = {2: 0.003, 3: 0.03, 4: 0.003}
    rates = {k: {r: mean[k] * chance.gauss(1, noise[k]) for r in range(8)} for k in mean}
    ranking = ranked(rates)
    assert tuple(map(names, ranking.groups)) == ((2, 3), (4,))
    assert ranking.winner == SettingKey(2)


def test_only_rounds_with_every_setting_count_and_the_others_are_named():
    ranking = ranked({2: rounds(94, 95, 94, 93), None: {0: 89, 1: 89.5, 3: 88.5, 9: 12.0}})
    assert (ranking.rounds, ranking.left_out) == (3, (2, 9))
    assert ranking.entry(SettingKey(None)).tok_s == pytest.approx(3 / (1 / 89 + 1 / 89.5 + 1 / 88.5))


def test_one_setting_alone_wins_and_equal_figures_go_to_the_simpler():
    alone = ranked({2: rounds(94, 95)})
    assert (alone.winner.steps, alone.undetectable, alone.entries[0].over_baseline) == (2, None, None)
    same = ranked({2: rounds(94, 95), 1: rounds(94, 95)})
    assert [entry.key.steps for entry in same.entries] == [1, 2]
    assert tuple(map(names, same.groups)) == ((1, 2),)


@pytest.mark.parametrize("rates", [{}, {2: rounds(94.0)}, {2: rounds(94, 95), None: {7: 89, 8: 89}}])
def test_fewer_than_two_common_rounds_are_refused(rates):
    with pytest.raises(InputError, match="at least two rounds"):
        ranked(rates)
    with pytest.raises(InputError, match="at least two rounds"):
        compare([94.0], [89.0])


def test_a_comparison_is_as_computed_by_hand():
    found = compare([110.0, 121.0], [100.0, 100.0])
    # logs 0.0953102, 0.1906204: mean 0.1429653, error 0.0476551, t = 3.0 at one degree of freedom
    assert found.ratio == pytest.approx(math.exp(0.1429653))
    assert found.p == pytest.approx(1 - 2 / math.pi * math.atan(3.0), abs=1e-6)
    assert found.ci95[1] == pytest.approx(math.exp(0.1429653 + 12.7062 * 0.0476551), rel=1e-4)
    assert found.percent == pytest.approx(15.37, abs=0.01)


def test_rates_come_from_unprofiled_complete_rounds_of_one_concurrency():
    def sent(number, e2e_s, **more):
        return RequestSample(100, 0.1, e2e_s, start_s=5.0 * number, round=number, **more)

    failed = RequestSample(0, 0.0, 0.0, start_s=5.0, round=1, error="timeout")
    results = [
        BenchResult(2, 2, [sent(0, 2.0), sent(0, 2.0), sent(1, 2.0), failed, sent(2, 4.0), sent(2, 2.0)]),
        BenchResult(2, 2, [sent(0, 9.0)], profiled=True),
        BenchResult(None, 1, [sent(0, 1.0)]),
    ]
    assert round_rates(results, 2) == {SettingKey(2): {0: 100.0, 2: 50.0}}
    with pytest.raises(InputError, match="two measurements of 2 steps at concurrency 2"):
        round_rates([results[0], results[0]], 2)


def test_the_sentences_say_winner_ties_and_how_sure():
    chance = random.Random(5)
    drift = [chance.gauss(1, 0.05) for _ in range(8)]
    mean = {2: 94.0, 3: 93.8, None: 89.0, 5: 71.0}
    rates = {k: {r: mean[k] * drift[r] * chance.gauss(1, 0.004) for r in range(8)} for k in mean}
    said = ranking_sentences(ranked(rates))
    assert said[0].startswith("2 steps: ")
    assert " % over the baseline (" in said[0]
    assert said[0].endswith("is a tie, and the simplest wins.")
    assert said[1].startswith("3 steps: ")
    assert said[1].endswith("a tie with 2 steps.")
    assert said[2].startswith("The baseline: ")
    assert " % under the baseline (" in said[3]
    assert "8 rounds may have missed a difference of up to" in said[4]
    assert said[4].endswith("the settings tied with it.")


def test_a_tie_that_hides_too_much_is_not_settled():
    ranking = ranked({2: rounds(97, 99, 95, 98), 1: rounds(93, 97, 95, 91)})
    assert (ranking.winner.steps, ranking.fastest.steps, ranking.settled) == (1, 2, False)
    assert ranking.undetectable > 0.05
    assert ranking_sentences(ranking)[-1].endswith("measure more rounds before relying on the winner.")
    assert ranked({2: rounds(97, 99, 95, 98), 1: rounds(93, 95, 91, 94)}).settled


def test_without_a_baseline_settings_are_compared_with_the_fastest():
    said = ranking_sentences(
        ranked({2: rounds(94, 95, 94), 5: rounds(71, 72, 71), 1: {0: 88.0, 1: 89.0, 2: 88.0, 3: 1.0}})
    )
    assert said[0] == "2 steps: 94.3 tok/s."
    assert said[1] == "1 step: 88.3 tok/s, 6.4 % under 2 steps."
    assert said[-1] == "Left out, because a setting is missing or incomplete there: rounds 3."


def test_a_ranking_is_plain_json():
    ranking = ranked({2: rounds(94, 95, 94), None: rounds(89, 90, 88.5)}).to_json()
    assert json.loads(json.dumps(ranking)) == ranking
    assert ranking["winner"] == {"steps": 2, "variation": ""}
    assert ranking["settings"][0]["steps"] == 2
    assert ranking["settings"][0]["over_baseline"]["rounds"] == 3


def test_a_setting_is_named_by_its_steps_and_what_is_varied():
    assert SettingKey(1).words == "1 step"
    assert SettingKey(2, RING).words == "2 steps with NCCL_ALGO=Ring"
    assert SettingKey(None, RING).words == "the baseline with NCCL_ALGO=Ring"


def test_of_equal_settings_the_one_with_nothing_varied_wins_then_the_baseline_then_fewer_steps():
    keys = [SettingKey(1, RING), SettingKey(5), SettingKey(None, RING), SettingKey(2)]
    ranking = rank({key: rounds(94, 95, 96) for key in keys})
    assert [entry.key for entry in ranking.entries] == [
        SettingKey(2),
        SettingKey(5),
        SettingKey(None, RING),
        SettingKey(1, RING),
    ]
    assert ranking.winner == SettingKey(2)


def test_a_setting_is_held_against_the_baseline_of_its_own_variation_else_that_of_none():
    rates = {
        SettingKey(None): rounds(80, 81, 80),
        SettingKey(2): rounds(88, 89.1, 88),
        SettingKey(None, RING): rounds(90, 91, 90.5),
        SettingKey(2, RING): rounds(99, 100.1, 99.55),
        SettingKey(2, "NCCL_ALGO=Tree"): rounds(60, 60.75, 60),
    }
    ranking = rank(rates)
    assert {entry.key: entry.baseline for entry in ranking.entries} == {
        SettingKey(None): None,
        SettingKey(2): SettingKey(None),
        SettingKey(None, RING): SettingKey(None),
        SettingKey(2, RING): SettingKey(None, RING),
        SettingKey(2, "NCCL_ALGO=Tree"): SettingKey(None),
    }
    assert ranking.entry(SettingKey(2, RING)).over_baseline.percent == pytest.approx(10.0)
    assert ranking.entry(SettingKey(2, "NCCL_ALGO=Tree")).over_baseline.percent == pytest.approx(-25.0)
    said = ranking_sentences(ranking)
    assert said[0].startswith("2 steps with NCCL_ALGO=Ring: 99.5 tok/s, 10.0 % over its own baseline (")
    assert any(line.startswith("2 steps with NCCL_ALGO=Tree: 60.2 tok/s, 25.0 % under the baseline (") for line in said)


def test_the_interval_over_the_baseline_widens_with_the_number_of_settings_held_against_one():
    two = {2: rounds(94, 96, 95), None: rounds(89, 90, 88)}
    more = {**two, SettingKey(2, RING): rounds(80, 82, 81)}
    one, both = (ranked(rates).entry(SettingKey(2)).over_baseline.ci95 for rates in (two, more))
    assert both[0] < one[0] < one[1] < both[1]


def test_a_setting_with_one_round_takes_no_rounds_from_the_others_and_is_named():
    ranking = ranked({2: rounds(94, 95, 94), 5: rounds(71), 3: {}, None: rounds(89, 90, 88.5)})
    assert (ranking.rounds, ranking.left_out, names(ranking.set_aside)) == (3, (), (5, 3))
    assert [entry.key.steps for entry in ranking.entries] == [2, None]
    assert ranking_sentences(ranking)[-1] == "Not ranked, for want of two complete rounds: 5 steps, 3 steps."


def test_settings_of_separate_loads_are_said_to_be():
    rates = {2: rounds(94, 95, 94), None: rounds(89, 90, 88.5)}
    assert not any("separate loads" in line for line in ranking_sentences(ranked(rates)))
    said = ranking_sentences(ranked(rates, loads=2))[-1]
    assert said.startswith("Measured in 2 separate loads: their rounds are paired by prompts and not by time")
