"""Which setting is fastest, by unprofiled throughput measured in rounds in which the settings take turns (A-B-C-A-B-C).

What drifts (clocks, temperature, neighbours) and what a round's prompts bring falls on all settings of a round alike, so
settings are compared by their ratio within each round: the mean of the log ratios, Student's t with rounds - 1 degrees
of freedom. An interval covers what varies between rounds: the machine always, the prompts only where each round has its
own.

Settings of one load take turns in time. Those of different loads cannot: their rounds are paired by number, which is by
prompts, so prompts cancel and what differs between loads does not, nor does any interval here cover it. `loads` says how
many loads there were.

The best setting is picked from the same figures that then compare it, so every pair counts as a comparison: p values
are Holm's (1979) over all m(m - 1)/2 pairs. With 95 % confidence no two equally fast settings are called different,
whichever of them comes out on top. A difference below `MINIMUM_RELEVANT` is a tie even where it is certain.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eaglelab.errors import InputError
from eaglelab.profile.bench import BenchResult
from eaglelab.profile.pooling import rounds_of
from eaglelab.profile.setting_key import SettingKey
from eaglelab.profile.stats import rounded, rounded_pair
from eaglelab.profile.student import p_two_sided, t_quantile

__all__ = [
    "MINIMUM_RELEVANT",
    "SETTLED",
    "Comparison",
    "Ranked",
    "Ranking",
    "common_rounds",
    "compare",
    "rank",
    "round_rates",
]

MINIMUM_RELEVANT = 0.005
SETTLED = 0.02
"""Largest difference (a share) that a tie may hide for the ranking to count as settled."""

_RISK = 0.05

_LEAST_ROUNDS = 2

_Pair = tuple[SettingKey, SettingKey]


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

    `group` counts tie groups from 0, the best. `baseline` is the one it is held against: of its own variation where there
    is one, else of no variation; None for that one itself and without any. `over_baseline`: against it; the interval holds
    for all settings at once (Bonferroni over the settings). `to_best`: against the fastest, None for that one; `p` is
    Holm's over all pairs.
    """

    key: SettingKey
    rates: tuple[float, ...]
    group: int
    baseline: SettingKey | None
    over_baseline: Comparison | None
    to_best: Comparison | None

    @property
    def tok_s(self) -> float:
        """Tokens per second over these rounds: their harmonic mean, exact where each holds as many tokens."""
        return statistics.harmonic_mean(self.rates)


@dataclass(frozen=True)
class Ranking:
    """All settings, fastest first.

    `winner` is the simplest of `groups[0]`, the settings that tie with the fastest. `left_out` are rounds in which some
    setting has no figure, `set_aside` the settings with too few rounds to be compared at all. `undetectable` is the largest
    difference (a share) that these rounds may have missed between the fastest and one that ties with it, None where nothing
    ties. `loads`: from how many loads the settings come.
    """

    entries: tuple[Ranked, ...]
    winner: SettingKey
    groups: tuple[tuple[SettingKey, ...], ...]
    rounds: int
    left_out: tuple[int, ...]
    set_aside: tuple[SettingKey, ...]
    undetectable: float | None
    loads: int

    @property
    def settled(self) -> bool:
        """Whether more rounds would hardly change the winner: what these may have missed is at most `SETTLED`."""
        return self.undetectable is None or self.undetectable <= SETTLED

    @property
    def fastest(self) -> SettingKey:
        """The setting with the highest mean, tie or not."""
        return self.entries[0].key

    def entry(self, key: SettingKey) -> Ranked:
        """The entry of one setting."""
        return next(entry for entry in self.entries if entry.key == key)

    def to_json(self) -> dict[str, Any]:
        """A setting is `steps` (null: the baseline) and `variation`."""
        return {
            "winner": self.winner.to_json(),
            "fastest": self.fastest.to_json(),
            "settled": self.settled,
            "rounds": self.rounds,
            "loads": self.loads,
            "left_out_rounds": list(self.left_out),
            "set_aside": [key.to_json() for key in self.set_aside],
            "groups": [[key.to_json() for key in group] for group in self.groups],
            "undetectable_percent": None if self.undetectable is None else rounded(100 * self.undetectable),
            "settings": [
                {
                    **entry.key.to_json(),
                    "tok_s": rounded(entry.tok_s),
                    "rates": [rounded(rate) for rate in entry.rates],
                    "group": entry.group,
                    "baseline": None if entry.baseline is None else entry.baseline.to_json(),
                    "over_baseline": None if entry.over_baseline is None else entry.over_baseline.to_json(),
                    "to_best": None if entry.to_best is None else entry.to_best.to_json(),
                }
                for entry in self.entries
            ],
        }


def round_rates(results: Iterable[BenchResult], batch: int) -> dict[SettingKey, dict[int, float]]:
    """Tokens per second of each complete round, by setting, at one concurrency. Profiled results are passed over.

    Rounds of one number hold the same prompts under every setting. Within one load they also follow each other closely;
    those of different loads are paired by their prompts only, not by time.

    Raises InputError where one setting comes twice: rounds of two measurements are not rounds of one.
    """
    rates: dict[SettingKey, dict[int, float]] = {}
    for result in results:
        if result.profiled or result.batch != batch:
            continue
        if result.key in rates:
            raise InputError(f"two measurements of {result.key.words} at concurrency {batch} cannot be ranked together")
        rates[result.key] = {each.number: each.tok_s for each in rounds_of(result.requests)}
    return rates


def common_rounds(rates: Mapping[SettingKey, Mapping[int, float]]) -> list[int]:
    """The rounds in which every setting has a figure. One with fewer than two rounds in all is passed over."""
    usable = [set(found) for found in rates.values() if len(found) >= _LEAST_ROUNDS]
    return sorted(set.intersection(*usable)) if usable else []


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


def rank(
    rates: Mapping[SettingKey, Mapping[int, float]], *, minimum_relevant: float = MINIMUM_RELEVANT, loads: int = 1
) -> Ranking:
    """Rank settings by their tokens per second in each round (`rates[setting][round]`), measured in so many `loads`.

    Only rounds with a figure for every setting count; a setting with fewer than two rounds is set aside and takes none from
    the others. Raises InputError for no setting or fewer than two rounds that count.
    """
    numbers = common_rounds(rates)
    if len(numbers) < _LEAST_ROUNDS:
        raise InputError(
            f"ranking {len(rates)} settings needs at least two rounds in which each of them was measured",
            hint="measure more rounds, or leave out the setting that failed",
        )
    usable = {key: found for key, found in rates.items() if len(found) >= _LEAST_ROUNDS}
    paired = {key: [found[number] for number in numbers] for key, found in usable.items()}
    # Equal figures are ordered by simplicity, so that the result does not hang on the order of measuring.
    order = sorted(paired, key=lambda key: (-math.fsum(map(math.log, paired[key])), key.simplicity))
    adjusted = _holm({pair: compare(paired[pair[0]], paired[pair[1]]).p for pair in itertools.combinations(order, 2)})
    best = order[0]
    pairs = max(len(adjusted), 1)
    to_best = {key: compare(paired[key], paired[best], risk=_RISK / pairs) for key in order[1:]}

    def differ(pair: _Pair) -> bool:
        ratio = compare(paired[pair[1]], paired[pair[0]]).ratio
        return adjusted[pair] < _RISK and 1 - ratio >= minimum_relevant

    groups = _groups(order, differ)
    group_of = {key: number for number, group in enumerate(groups) for key in group}
    baseline_of = _baselines(paired)
    over = {
        key: compare(paired[key], paired[baseline], risk=_RISK / len(baseline_of))
        for key, baseline in baseline_of.items()
    }
    entries = tuple(
        Ranked(
            key,
            tuple(paired[key]),
            group_of[key],
            baseline_of.get(key),
            over.get(key),
            None if key == best else replace(to_best[key], p=adjusted[best, key]),
        )
        for key in order
    )
    ties = [1 - to_best[key].ci95[0] for key in groups[0] if key != best]
    return Ranking(
        entries,
        winner=min(groups[0], key=lambda key: key.simplicity),
        groups=groups,
        rounds=len(numbers),
        left_out=tuple(sorted(set().union(*usable.values()) - set(numbers))),
        set_aside=tuple(key for key in rates if key not in usable),
        undetectable=max(ties, default=None),
        loads=loads,
    )


def _baselines(keys: Iterable[SettingKey]) -> dict[SettingKey, SettingKey]:
    """What each setting is held against: the baseline of its own variation, else that of none. Those without are left out."""
    keys = list(keys)
    found = {}
    for key in keys:
        candidates = [SettingKey(None, key.variation), SettingKey(None)]
        known = [each for each in candidates if each in keys and each != key]
        if known:
            found[key] = known[0]
    return found


def _groups(order: Sequence[SettingKey], differ: Callable[[_Pair], bool]) -> tuple[tuple[SettingKey, ...], ...]:
    """Ties with the fastest, then ties with the fastest of the rest, and so on: never a chain of ties."""
    groups = []
    rest = list(order)
    while rest:
        leader = rest[0]
        groups.append(tuple(key for key in rest if key == leader or not differ((leader, key))))
        rest = [key for key in rest if key not in groups[-1]]
    return tuple(groups)


def _holm(p_values: Mapping[_Pair, float]) -> dict[_Pair, float]:
    """Holm's step-down: the i-th smallest of n is multiplied by n - i + 1, and never falls below the one before."""
    adjusted: dict[_Pair, float] = {}
    floor = 0.0
    for index, (pair, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        floor = max(floor, min(1.0, p * (len(p_values) - index)))
        adjusted[pair] = floor
    return adjusted
