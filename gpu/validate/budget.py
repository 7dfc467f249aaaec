"""Time that is left, for a whole session and for the part of it at hand."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Budget", "OutOfTimeError"]


class OutOfTimeError(Exception):
    """A part of the session took longer than it may."""


class Budget:
    """`seconds` from now on, by a monotonic clock."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end = clock() + seconds

    @property
    def left(self) -> float:
        """Seconds, never below 0."""
        return max(0.0, self._end - self._clock())

    def part(self, seconds: float) -> Budget:
        """A budget of at most `seconds` that ends with this one."""
        return Budget(min(seconds, self.left), self._clock)

    def limit(self, seconds: float) -> float:
        """`seconds`, or what is left if that is less. Raises OutOfTimeError where nothing is left."""
        if self.left <= 0:
            raise OutOfTimeError("its time is over")
        return min(seconds, self.left)
