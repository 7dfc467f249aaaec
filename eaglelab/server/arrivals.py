"""When the requests of an open-loop load start."""

from __future__ import annotations

import itertools
import math
import random

from eaglelab.errors import InputError

__all__ = ["poisson_arrivals"]


def poisson_arrivals(rate: float, count: int, seed: int) -> list[float]:
    """Start times (s, the first is 0) of `count` requests that arrive at random, `rate` a second on average.

    The gaps are exponential with mean 1 / rate, as in SGLang's bench_serving; the same seed gives the same times. An
    infinite rate starts all at once. Raises InputError for a rate that is none.
    """
    if not rate > 0:
        raise InputError(
            f"--request-rate {rate:g} is no rate", hint="give requests a second, or inf to start all at once"
        )
    if math.isinf(rate):
        return [0.0] * count
    dice = random.Random(seed)  # noqa: S311 - a schedule, not a secret
    gaps = (dice.expovariate(rate) for _ in range(count - 1))
    return [round(at, 6) for at in itertools.accumulate(gaps, initial=0.0)][:count]
