"""Which setting is fastest, by unprofiled throughput measured in rounds in which the settings take turns (A-B-C-A-B-C).

What drifts (clocks, temperature, neighbours) and what a round's prompts bring falls on all settings of a round alike, so
settings are compared by their ratio within each round: the mean of the log ratios, Student's t with rounds - 1 degrees
of freedom. An interval covers what varies between rounds: the machine always, the prompts only where each round has its
own.

The best setting is picked from the same figures that then compare it, so every pair counts as a comparison: p values
are Holm's (1979) over all m(m - 1)/2 pairs. With 95 % confidence no two equally fast settings are called different,
whichever of them comes out on top. A difference below `MINIMUM_RELEVANT` is a tie even where it is certain.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eaglelab.errors import InputError
from eaglelab.profile.bench import BenchResult
from eaglelab.profile.pooling import rounds_of
from eaglelab.profile.stats import rounded, rounded_pair
from eaglelab.profile.student import p_two_sided, t_quantile

__all__ = [
    "MINIMUM_RELEVANT",
    "SETTLED",
    "Comparison",
    "Ranked",
    "Ranking",
    "compare",
    "rank",
    "round_rates",
    "setting_words",
    "simplicity",
]

MINIMUM_RELEVANT = 0.005
SETTLED = 0.02
"""Largest difference (a share) that a tie may hide for the ranking to count as settled."""

_RISK = 0.05

Steps = int | None
Pair = tuple[Steps, Steps]


@dataclass(frozen=True)
class Comparison:
    """How much faster one setting is than another: `ratio` - 1, over `rounds` paired rounds.

    `ci95` is the interval of the ratio, `p` the chance of such a difference between equally fast settings; both for a
    single comparison, unless said otherwise where they are used.
    """

    ratio: float
    ci95: tuple[float, float]
    p: float
    rounds: int

    @property
    def percent(self) -> float:
        """The difference in percent."""
        return 100 * (self.ratio - 1)

    def to_json(self) -> dict[str, Any]:
        """Percent and its interval, as in the sentences."""
        ends = (100 * (self.ci95[0] - 1), 100 * (self.ci95[1] - 1))
        return {
            "percent": rounded(self.percent),
            "ci95": rounded_pair(ends),
            "p": float(f"{self.p:.4g}"),
            "rounds": self.rounds,
        }


@dataclass(frozen=True)
class Ranked:
    """One setting's place. `rates` are its rounds (tokens per second of all requests together), in order.

    `group` counts tie groups from 0, the best. `over_baseline`: None for the baseline and without one; its interval holds
    for all settings at once (Bonferroni over the settings). `to_best`: against the fastest, None for that one; `p` is
    Holm's over all pairs.
    """

    steps: Steps
    rates: tuple[float, ...]
    group: int
    over_baseline: Comparison | None
    to_best: Comparison | None

    @property
    def tok_s(self) -> float:
        """Mean of the rounds, tokens per second."""
        return statistics.fmean(self.rates)


@dataclass(frozen=True)
class Ranking:
    """All settings, fastest first.

    `winner` is the simplest of `groups[0]`, the settings that tie with the fastest. `left_out` are rounds in which some
    setting has no figure. `undetectable` is the largest difference (a share) that these rounds may have missed between
    the fastest and one that ties with it, None where nothing ties.
    """

    entries: tuple[Ranked, ...]
    winner: Steps
    groups: tuple[tuple[Steps, ...], ...]
    rounds: int
    left_out: tuple[int, ...]
    undetectable: float | None

    @property
    def settled(self) -> bool:
        """Whether more rounds would hardly change the winner: what these may have missed is at most `SETTLED`."""
        return self.undetectable is None or self.undetectable <= SETTLED

    @property
    def fastest(self) -> Steps:
        """The setting with the highest mean, tie or not."""
        return self.entries[0].steps

    def entry(self, steps: Steps) -> Ranked:
        """The entry of one setting."""
        return next(entry for entry in self.entries if entry.steps == steps)

    def to_json(self) -> dict[str, Any]:
        """`steps` null is the baseline."""
        return {
            "winner": self.winner,
            "fastest": self.fastest,
            "settled": self.settled,
            "rounds": self.rounds,
            "left_out_rounds": list(self.left_out),
            "groups": [list(group) for group in self.groups],
            "undetectable_percent": None if self.undetectable is None else rounded(100 * self.undetectable),
            "settings": [
                {
                    "steps": entry.steps,
                    "tok_s": rounded(entry.tok_s),
                    "rates": [rounded(rate) for rate in entry.rates],
                    "group": entry.group,
                    "over_baseline": None if entry.over_baseline is None else entry.over_baseline.to_json(),
                    "to_best": None if entry.to_best is None else entry.to_best.to_json(),
                }
                for entry in self.entries
            ],
        }


def simplicity(steps: Steps) -> int:
    """Order of settings by simplicity: the baseline (None) first, then fewer steps."""
    return -1 if steps is None else steps


def round_rates(results: Iterable[BenchResult], batch: int) -> dict[Steps, dict[int, float]]:
    """Tokens per second of each complete round, by setting, at one concurrency. Profiled results are passed over.

    Raises InputError where one setting comes twice: rounds of two measurements are not rounds of one.
    """
    rates: dict[Steps, dict[int, float]] = {}
    for result in results:
        if result.profiled or result.batch != batch:
            continue
        if result.steps in rates:
            raise InputError(
                f"two measurements of {setting_words(result.steps)} at concurrency {batch} cannot be ranked together"
            )
        rates[result.steps] = {each.number: each.tok_s for each in rounds_of(result.requests)}
    return rates


def compare(first: Sequence[float], second: Sequence[float], *, risk: float = _RISK) -> Comparison:
    """How much faster `first` is than `second`, rates of the same rounds in the same order; at least two rounds.

    The interval misses the true ratio with probability `risk`.
    """
    logs = [math.log(a / b) for a, b in zip(first, second, strict=True)]
    count = len(logs)
    if count < 2:
        raise InputError("comparing two settings needs at least two rounds of each", hint="measure more rounds")
    mean = math.fsum(logs) / count
    error = statistics.stdev(logs, mean) / math.sqrt(count)
    half = t_quantile(risk, count - 1) * error
    p = p_two_sided(mean / error, count - 1) if error > 0 else float(mean == 0)
    return Comparison(math.exp(mean), (math.exp(mean - half), math.exp(mean + half)), p, count)


def rank(rates: Mapping[Steps, Mapping[int, float]], *, minimum_relevant: float = MINIMUM_RELEVANT) -> Ranking:
    """Rank settings by their tokens per second in each round (`rates[steps][round]`); None is the baseline.

    Only rounds with a figure for every setting count. Raises InputError for no setting or fewer than two such rounds.
    """
    numbers = sorted(set.intersection(*(set(found) for found in rates.values()))) if rates else []
    if len(numbers) < 2:
        raise InputError(
            f"ranking {len(rates)} settings needs at least two rounds in which each of them was measured",
            hint="measure more rounds, or leave out the setting that failed",
        )
    paired = {steps: [rates[steps][number] for number in numbers] for steps in rates}
    # Equal figures are ordered by simplicity, so that the result does not hang on the order of measuring.
    order = sorted(paired, key=lambda steps: (-math.fsum(map(math.log, paired[steps])), simplicity(steps)))
    adjusted = _holm({pair: compare(paired[pair[0]], paired[pair[1]]).p for pair in itertools.combinations(order, 2)})
    best = order[0]
    pairs = max(len(adjusted), 1)
    to_best = {steps: compare(paired[steps], paired[best], risk=_RISK / pairs) for steps in order[1:]}

    def differ(pair: Pair) -> bool:
        ratio = compare(paired[pair[1]], paired[pair[0]]).ratio
        return adjusted[pair] < _RISK and 1 - ratio >= minimum_relevant

    groups = _groups(order, differ)
    group_of = {steps: number for number, group in enumerate(groups) for steps in group}
    others = max(len(order) - 1, 1)
    entries = tuple(
        Ranked(
            steps,
            tuple(paired[steps]),
            group_of[steps],
            compare(paired[steps], paired[None], risk=_RISK / others) if None in paired and steps is not None else None,
            None if steps == best else _with_p(to_best[steps], adjusted[best, steps]),
        )
        for steps in order
    )
    ties = [1 - to_best[steps].ci95[0] for steps in groups[0] if steps != best]
    return Ranking(
        entries,
        winner=min(groups[0], key=simplicity),
        groups=groups,
        rounds=len(numbers),
        left_out=tuple(sorted(set().union(*rates.values()) - set(numbers))),
        undetectable=max(ties, default=None),
    )


def _groups(order: Sequence[Steps], differ: Callable[[Pair], bool]) -> tuple[tuple[Steps, ...], ...]:
    """Ties with the fastest, then ties with the fastest of the rest, and so on: never a chain of ties."""
    groups = []
    rest = list(order)
    while rest:
        leader = rest[0]
        groups.append(tuple(steps for steps in rest if steps == leader or not differ((leader, steps))))
        rest = [steps for steps in rest if steps not in groups[-1]]
    return tuple(groups)


def _holm(p_values: Mapping[Pair, float]) -> dict[Pair, float]:
    """Holm's step-down: the i-th smallest of n is multiplied by n - i + 1, and never falls below the one before."""
    adjusted: dict[Pair, float] = {}
    floor = 0.0
    for index, (pair, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        floor = max(floor, min(1.0, p * (len(p_values) - index)))
        adjusted[pair] = floor
    return adjusted


def _with_p(comparison: Comparison, p: float) -> Comparison:
    return Comparison(comparison.ratio, comparison.ci95, p, comparison.rounds)


def setting_words(steps: Steps) -> str:
    """A setting in a sentence: `2 steps`, `the baseline`."""
    return "the baseline" if steps is None else f"{steps} step{'' if steps == 1 else 's'}"
