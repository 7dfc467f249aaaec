"""Student's t at any level: what comparing several settings needs, and the 95 % table of `stats` does not give."""

from __future__ import annotations

import math
from functools import lru_cache

__all__ = ["p_two_sided", "t_quantile"]

_TINY = 1e-300
_PRECISION = 1e-13


def p_two_sided(t: float, degrees: int) -> float:
    """P(|T| >= |t|) with `degrees` degrees of freedom: the regularised incomplete beta I_x(df/2, 1/2), x = df/(df+t^2).

    Abramowitz & Stegun 26.7.1 and 26.5.27. Raises ValueError without a degree of freedom.
    """
    if degrees < 1:
        raise ValueError("Student's t needs at least one degree of freedom")
    if math.isinf(t):
        return 0.0
    square = t * t
    # Both arguments are given, because 1 - x is 0 in floating point long before t is.
    return _incomplete_beta(degrees / 2, 0.5, degrees / (degrees + square), square / (degrees + square))


@lru_cache(maxsize=256)
def t_quantile(tail: float, degrees: int) -> float:
    """The t with P(|T| >= t) = `tail` (0 < tail < 1), by halving the interval that holds it."""
    if not 0 < tail < 1:
        raise ValueError("the tail probability lies between 0 and 1")
    low, high = 0.0, 1.0
    while p_two_sided(high, degrees) > tail:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if p_two_sided(middle, degrees) > tail:
            low = middle
        else:
            high = middle
    return high


def _incomplete_beta(a: float, b: float, x: float, rest: float) -> float:
    """I_x(a, b) with `rest` = 1 - x, by the continued fraction that converges faster (A&S 26.5.8, Lentz's method)."""
    if x <= 0 or rest <= 0:
        return 0.0 if x <= 0 else 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(rest))
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(a, b, x) / a
    return 1 - front * _fraction(b, a, rest) / b


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of A&S 26.5.8 for x below (a + 1) / (a + b + 2), where it converges in a few terms."""
    c, d = 1.0, _inverse(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, 500):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = _inverse(1 + term * d)
            c = 1 + term / c if abs(c) > _TINY else 1 / _TINY
            change = c * d
            value *= change
        if abs(change - 1) < _PRECISION:
            break
    return value


def _inverse(value: float) -> float:
    return 1 / value if abs(value) > _TINY else 1 / _TINY
