"""The few statistics that every figure carries: mean, median, p90, p95, p99, spread, count, 95 % confidence interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Stats", "describe", "ratio_ci95", "rounded", "rounded_pair", "t_975"]

# Two-sided 95 % points of Student's t for 1 to 9 degrees of freedom; above that the expansion below is exact to 1e-3.
_T_975 = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622)
_Z_975 = statistics.NormalDist().inv_cdf(0.975)


@dataclass(frozen=True)
class Stats:
    """A sample described, in the unit of its values. `stdev` and `ci95` are None for a single value."""

    count: int
    mean: float
    median: float
    p90: float
    p95: float
    p99: float
    stdev: float | None
    ci95: tuple[float, float] | None

    @property
    def half_width(self) -> float | None:
        """Half the width of the confidence interval: the figure behind `+/-`."""
        return None if self.ci95 is None else (self.ci95[1] - self.ci95[0]) / 2

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, rounded to 1e-6; `ci95` is [low, high] or null."""
        return {
            "mean": rounded(self.mean),
            "median": rounded(self.median),
            "p90": rounded(self.p90),
            "p95": rounded(self.p95),
            "p99": rounded(self.p99),
            "stdev": rounded(self.stdev),
            "count": self.count,
            "ci95": rounded_pair(self.ci95),
        }


def describe(values: Sequence[float]) -> Stats | None:
    """Describe a sample; None for an empty one.

    Percentiles interpolate linearly between the two nearest values (`statistics.quantiles`, inclusive: numpy's default). The interval is that
    of the mean by Student's t with n - 1 degrees of freedom: it takes the values as independent.
    """
    count = len(values)
    if count == 0:
        return None
    mean = math.fsum(values) / count
    median = statistics.median(values)
    if count == 1:
        return Stats(1, mean, median, mean, mean, mean, None, None)
    stdev = statistics.stdev(values, mean)
    half = t_975(count - 1) * stdev / math.sqrt(count)
    percentiles = statistics.quantiles(values, n=100, method="inclusive")
    p90, p95, p99 = (percentiles[percent - 1] for percent in (90, 95, 99))
    return Stats(count, mean, median, p90, p95, p99, stdev, (mean - half, mean + half))


def ratio_ci95(numerators: Sequence[float], denominators: Sequence[float]) -> tuple[float, float] | None:
    """95 % interval of sum(numerators) / sum(denominators) over paired samples; None for fewer than two pairs.

    The linearised variance of a ratio estimator (Cochran, Sampling Techniques, 6.4), Student's t with n - 1.
    """
    count = len(numerators)
    whole = math.fsum(denominators)
    if count < 2 or whole <= 0:
        return None
    ratio = math.fsum(numerators) / whole
    residuals = [top - ratio * bottom for top, bottom in zip(numerators, denominators, strict=True)]
    half = t_975(count - 1) * statistics.stdev(residuals, 0.0) * math.sqrt(count) / whole
    return ratio - half, ratio + half


def t_975(degrees: int) -> float:
    """The 97.5 % quantile of Student's t (Abramowitz & Stegun 26.7.5 from 10 degrees of freedom on)."""
    if degrees < 1:
        raise ValueError("Student's t needs at least one degree of freedom")
    if degrees <= len(_T_975):
        return _T_975[degrees - 1]
    z = _Z_975
    return (
        z
        + (z**3 + z) / (4 * degrees)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * degrees**3)
    )


def rounded(value: float | None, digits: int = 6) -> float | None:
    """`round` that lets None pass: figures that are not known stay null in JSON."""
    return None if value is None else round(value, digits)


def rounded_pair(ends: tuple[float, float] | None, digits: int = 6) -> list[float] | None:
    """An interval as a JSON list [low, high]."""
    return None if ends is None else [round(end, digits) for end in ends]
