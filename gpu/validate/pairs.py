"""What a small change costs, out of many pairs of requests whose times scatter by far more than the change. Pure.

The host of a fast GPU jumps between paces (4.0 and 4.9 ms a cycle, seconds or milliseconds long), so most pairs differ
by 2 % and a few by 10. Where the order is balanced such jumps go either way alike, and a mean that leaves out the furthest
pairs at both ends estimates the same as the plain mean, with half its error.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from eaglelab.profile.student import t_quantile

__all__ = ["LEAST", "Cost", "needed", "per_quad", "trimmed"]

_RISK = 0.05
_SHARE = 0.2
LEAST = 10
"""Values below which nothing is left to trim."""


@dataclass(frozen=True)
class Cost:
    """Change of a rate in percent, negative where slower, with its 95 % interval; `count` values went in."""

    percent: float
    low: float
    high: float
    count: int


def per_quad(ratios: Sequence[float]) -> list[float]:
    """Means of the log ratios of two pairs each, one in each order (on off, off on): what drifts evenly is gone. An odd
    pair at the end is left out."""
    logs = [math.log(ratio) for ratio in ratios]
    return [statistics.fmean(logs[first : first + 2]) for first in range(0, len(logs) - 1, 2)]


def trimmed(logs: Sequence[float], share: float = _SHARE) -> Cost:
    """Mean without the `share` of values at each end, its error from the winsorized scatter (Tukey and McLaughlin, 1963).

    Raises ValueError for fewer than LEAST values.
    """
    if len(logs) < LEAST:
        raise ValueError(f"{len(logs)} values are too few to trim")
    values = sorted(logs)
    cut = math.floor(share * len(values))
    kept = values[cut : len(values) - cut]
    mean = statistics.fmean(kept)
    winsorized = [kept[0]] * cut + kept + [kept[-1]] * cut
    error = statistics.stdev(winsorized) / ((1 - 2 * share) * math.sqrt(len(values)))
    half = t_quantile(_RISK, len(kept) - 1) * error
    percent, low, high = (100 * math.expm1(at) for at in (mean, mean - half, mean + half))
    return Cost(percent, low, high, len(values))


def needed(found: Cost, least: float) -> int | None:
    """Values after which the interval would end at `least` percent if it kept its middle; None if its middle is below."""
    if found.percent <= least:
        return None
    return max(2, math.ceil(found.count * ((found.percent - found.low) / (found.percent - least)) ** 2))
