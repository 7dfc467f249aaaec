"""A curve of straight pieces through knots."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Polyline"]


@dataclass(frozen=True)
class Polyline:
    """Straight between knots (x ascending), and on as in the first and the last piece beyond them; one knot: level."""

    knots: Sequence[tuple[float, float]]

    def at(self, x: float) -> float:
        """The curve at x."""
        (x0, y0), slope = self._piece(x)
        return y0 + slope * (x - x0)

    @property
    def last_slope(self) -> float:
        """The slope of the last piece, 0 for a single knot."""
        return self._piece(self.knots[-1][0])[1]

    def _piece(self, x: float) -> tuple[tuple[float, float], float]:
        if len(self.knots) == 1:
            return self.knots[0], 0.0
        end = min(max(bisect_right([knot[0] for knot in self.knots], x), 1), len(self.knots) - 1)
        (x0, y0), (x1, y1) = self.knots[end - 1], self.knots[end]
        return (x0, y0), (y1 - y0) / (x1 - x0)
