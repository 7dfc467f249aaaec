"""Which of the measured step counts are as good as the fastest, from their throughput alone.

Throughput over K rises to one peak and falls: each further step adds less, and none costs less than the one before. What
is measured otherwise is noise, and shows how large the noise is: the nearest single-peaked curve (least squares of the
logarithms, by pooling adjacent violators) leaves it over. Counts nearer to the fastest than twice that, or than 1 %, tie
with it, and so does whatever lies between two that tie.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eaglelab.model.isotonic import rising

__all__ = ["LEAST", "Ties", "ties"]

LEAST = 0.01
"""Nearer than this (a share) two step counts tie, however quiet the figures are."""


@dataclass(frozen=True)
class Ties:
    """`fastest` by its figure, `counts` that tie with it (itself included, ascending), `noise`: a share."""

    fastest: int
    counts: tuple[int, ...]
    noise: float


def ties(rates: Mapping[int, float]) -> Ties:
    """For tokens per second by step count (the baseline may be 0). At least one."""
    steps = sorted(rates)
    logs = [math.log(rates[count]) for count in steps]
    fits = [_single_peak(logs, peak) for peak in range(len(logs))]
    fit = min(fits, key=lambda fitted: math.fsum((a - b) ** 2 for a, b in zip(fitted, logs, strict=True)))
    noise = math.expm1(max(abs(a - b) for a, b in zip(fit, logs, strict=True)))
    fastest = max(steps, key=lambda count: (rates[count], -count))
    near = [count for count in steps if rates[count] >= rates[fastest] / (1 + max(LEAST, 2 * noise))]
    return Ties(fastest, tuple(count for count in steps if near[0] <= count <= near[-1]), noise)


def _single_peak(values: Sequence[float], peak: int) -> list[float]:
    """Rising up to the index `peak`, falling after it."""
    return [*rising(values[: peak + 1]), *reversed(rising(values[:peak:-1]))]
