"""How much a figure differs between two runs, and how surely.

Paired, where both runs were sent the same prompts in the same rounds: the mean of the differences, and of the log ratios
for the percentage, Student's t with pairs - 1 degrees of freedom. Else unpaired: Welch's t with the degrees of freedom of
Satterthwaite (1946), the percentage by the logarithms with the delta method. Between several loads a side, where there
are too few to tell two spreads: Student's t with one pooled variance.

No interval here covers more than its unit: that of rounds, requests or cycles says nothing of another load of the same
server. That of loads does.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from eaglelab.profile import ranking
from eaglelab.profile.ranking import MINIMUM_RELEVANT
from eaglelab.profile.stats import rounded, rounded_pair, t_975

__all__ = ["Change", "Difference", "Spread", "Verdict", "between_loads", "from_error", "paired", "unpaired"]

Verdict = Literal["tie", "higher", "lower", "unsure"]


@dataclass(frozen=True)
class Change:
    """A difference and its 95 % interval, None where nothing tells the spread."""

    value: float
    ci95: tuple[float, float] | None

    def to_json(self) -> dict[str, Any]:
        return {"value": rounded(self.value), "ci95": rounded_pair(self.ci95)}


@dataclass(frozen=True)
class Spread:
    """A mean with its standard error (None for a single observation) over `count` observations of a `unit`."""

    value: float
    error: float | None
    count: int
    unit: str


@dataclass(frozen=True)
class Difference:
    """Candidate against reference: `absolute` in the figure's unit, `percent` of the reference's (None where a figure is not
    above 0). `unit` names what one observation is, `count` how many there are: pairs, loads in all, or what the side with fewer has."""

    reference: float
    candidate: float
    absolute: Change
    percent: Change | None
    paired: bool
    unit: str
    count: int

    @property
    def verdict(self) -> Verdict:
        """`tie` where the interval holds 0 or the difference is below the least that matters; `unsure` without interval."""
        judged = self.percent or self.absolute
        if judged.ci95 is None:
            return "unsure"
        low, high = judged.ci95
        small = self.percent is not None and abs(self.percent.value) < 100 * MINIMUM_RELEVANT
        if small or low <= 0 <= high:
            return "tie"
        return "higher" if judged.value > 0 else "lower"

    @property
    def how(self) -> str:
        """What the interval is over, in words: `4 paired rounds`."""
        return f"{self.count} {'paired ' if self.paired else ''}{self.unit if self.count != 1 else self.unit[:-1]}"

    def to_json(self) -> dict[str, Any]:
        """`percent` null where it has no sense."""
        return {
            "reference": rounded(self.reference),
            "candidate": rounded(self.candidate),
            "difference": self.absolute.to_json(),
            "percent": None if self.percent is None else self.percent.to_json(),
            "verdict": self.verdict,
            "paired": self.paired,
            "unit": self.unit,
            "count": self.count,
        }


def paired(
    reference: Sequence[float], candidate: Sequence[float], unit: str, shown: tuple[float, float] | None = None
) -> Difference:
    """Values of the same units in the same order, at least two. `shown`: the two figures where they are no plain means.

    Raises InputError for fewer than two.
    """
    differences = [b - a for a, b in zip(reference, candidate, strict=True)]
    count = len(differences)
    figures = shown or (statistics.fmean(reference), statistics.fmean(candidate))
    percent = None
    if min(*reference, *candidate) > 0:
        ratio = ranking.compare(candidate, reference)
        percent = Change(ratio.percent, (100 * (ratio.ci95[0] - 1), 100 * (ratio.ci95[1] - 1)))
    half = t_975(count - 1) * statistics.stdev(differences) / math.sqrt(count)
    mean = statistics.fmean(differences)
    return Difference(*figures, Change(mean, (mean - half, mean + half)), percent, True, unit, count)


def unpaired(reference: Spread, candidate: Spread) -> Difference:
    """Two means by Welch's t; no interval where a side has no standard error."""
    errors = (reference.error, candidate.error)
    if errors[0] is None or errors[1] is None:
        return _told(reference, candidate, None, 1)
    degrees = _satterthwaite((errors[0], reference.count), (errors[1], candidate.count))
    return _told(reference, candidate, (errors[0], errors[1]), degrees)


def between_loads(reference: Sequence[float], candidate: Sequence[float]) -> Difference:
    """A figure of several loads a side, one of which may have a single one: its spread is then taken from the other."""
    count = len(reference) + len(candidate)
    degrees = count - 2
    sides = [Spread(statistics.fmean(side), None, count, "loads") for side in (reference, candidate)]
    if degrees < 1:
        return _told(sides[0], sides[1], None, 1)
    squares = sum(math.fsum((value - statistics.fmean(side)) ** 2 for value in side) for side in (reference, candidate))
    stdev = math.sqrt(squares / degrees)
    errors = (stdev / math.sqrt(len(reference)), stdev / math.sqrt(len(candidate)))
    return _told(sides[0], sides[1], errors, degrees)


def from_error(
    reference: float, candidate: float, error: float | None, unit: str, count: int, *, paired: bool
) -> Difference:
    """Two figures whose difference has the standard error `error` over `count` observations (None: not known)."""
    change = candidate - reference
    if error is None or count < 2:
        return Difference(reference, candidate, Change(change, None), _plain(reference, candidate), paired, unit, count)
    half = t_975(count - 1) * error
    percent = None
    if reference > 0 and candidate > 0:
        # The error of a log ratio, as if the reference were known: the difference's own, over the reference.
        log, wide = math.log(candidate / reference), half / reference
        percent = Change(100 * math.expm1(log), (100 * math.expm1(log - wide), 100 * math.expm1(log + wide)))
    absolute = Change(change, (change - half, change + half))
    return Difference(reference, candidate, absolute, percent, paired, unit, count)


def _told(reference: Spread, candidate: Spread, errors: tuple[float, float] | None, degrees: int) -> Difference:
    a, b = reference.value, candidate.value
    unit, count = candidate.unit, min(reference.count, candidate.count)
    if errors is None:
        return Difference(a, b, Change(b - a, None), _plain(a, b), False, unit, count)
    half = t_975(degrees) * math.hypot(*errors)
    percent = None
    if a > 0 and b > 0:
        log, wide = math.log(b / a), t_975(degrees) * math.hypot(errors[0] / a, errors[1] / b)
        percent = Change(100 * math.expm1(log), (100 * math.expm1(log - wide), 100 * math.expm1(log + wide)))
    return Difference(a, b, Change(b - a, (b - a - half, b - a + half)), percent, False, unit, count)


def _plain(a: float, b: float) -> Change | None:
    return Change(100 * (b / a - 1), None) if a > 0 and b > 0 else None


def _satterthwaite(*sides: tuple[float, int]) -> int:
    """Degrees of freedom, rounded down; those of the smaller side where nothing varies."""
    least = min(count for _, count in sides) - 1
    below = math.fsum(error**4 / (count - 1) for error, count in sides)
    if below == 0:
        return max(least, 1)
    return max(int(math.fsum(error**2 for error, _ in sides) ** 2 / below), 1)
