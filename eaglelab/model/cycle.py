"""The cycle's time over step counts, T(K), at one batch size.

    T(K) = verify(K + 1 tokens) + extend + (K - 1) * one draft forward + other

is a line in K where the GPU sets the pace: the draft adds one forward a step, and verify grows little. Where the host sets
it, the cycle takes what the host takes, however few the steps: max(floor, line). And some verify kernels bend. The run
without speculation is never a point of it: from a plain step to a verify is a jump.

Two points: a line. Three or more: the line that is nearest in relative error, if it is never more than 1 % (or what the
points themselves are uncertain by) off. Else the floor and a line, if that halves the worst error. Else straight pieces
from point to point. One step runs no draft graph, so it is off the others' slope: among four or more it stands by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal

from eaglelab.model.polyline import Polyline
from eaglelab.model.seen import Seen, by_steps

__all__ = ["CycleCurve", "Shape"]

Shape = Literal["level", "draft", "line", "floor", "bent"]
"""level: one point and no draft time. draft: one point, and a step costs one draft forward. The others: as above."""

_Points = Sequence[tuple[float, float]]

_STRAIGHT = 0.01
_BETTER = 0.5
_OWN = 0.01
_UNSEEN = 0.02
"""Half-widths (shares) at a measured count and everywhere else, before anything is added."""

# How far the curve may leave the straight between two measured counts, as a share of its rise between them: below it, as
# a host floor makes it, and above it, as a verify that levels off does. docs/model.md has the cases behind both.
_SAG = 0.15
_BULGE = 0.30
_FIRST_STEP = 0.04
"""What one step, which launches no draft graph, may take less than the line says (a share)."""


class CycleCurve:
    """T(K) in ms for K >= 1. `flat_until`: up to here the cycle does not grow, None where it always does."""

    def __init__(self, seen: Sequence[Seen]) -> None:
        self._seen = by_steps(seen)
        points = [(float(each.steps), each.cycle_ms) for each in self._seen]
        self.shape: Shape
        self.flat_until: float | None = None
        noise = max(_STRAIGHT, *(each.half_width for each in self._seen))
        self.shape, knots = _shaped(points, _draft_forward(self._seen), noise)
        if self.shape == "floor":
            self.flat_until = knots[1][0]
        self._curve = Polyline(knots)
        self._off = max(abs(self.at(each.steps) / each.cycle_ms - 1) for each in self._seen)

    def at(self, steps: int) -> float:
        """The cycle in ms; above the highest measured count it goes on as before."""
        # Far below or above the points a steep piece ends at 0, and no cycle takes nothing.
        return max(self._curve.at(steps), 0.01 * self._curve.knots[0][1])

    @property
    def step_ms(self) -> float | None:
        """What one more step adds at the highest measured count; None where nothing tells."""
        return None if self.shape == "level" else max(self._curve.last_slope, 0.0)

    def band(self, steps: int) -> tuple[float, float]:
        """How far T may lie below and above `at`, as shares of it."""
        time, own = self.at(steps), max(self._off, _UNSEEN)
        below = max((each for each in self._seen if each.steps <= steps), key=lambda each: each.steps, default=None)
        above = min((each for each in self._seen if each.steps >= steps), key=lambda each: each.steps, default=None)
        if above is None:
            further = (steps - self._seen[-1].steps) * (self.step_ms or self._seen[-1].cycle_ms * _FIRST_STEP) / time
            return own + further, own + further
        if below is None:
            # Fewer steps never take longer, so the cycle of the lowest measured count is the most it can be.
            return own + _FIRST_STEP, own + max(above.cycle_ms / time - 1, 0.0)
        if below is above:
            return max(self._off, _OWN), max(self._off, _OWN)
        part = (steps - below.steps) / (above.steps - below.steps)
        rise = abs(above.cycle_ms - below.cycle_ms) / time
        # From one step on, which runs no draft graph, both ways are open as far.
        sag = _BULGE if below.steps == 1 else _SAG
        return math.hypot(own, min(part, 1 - part, sag) * rise), math.hypot(own, min(part, 1 - part, _BULGE) * rise)


def _draft_forward(seen: Sequence[Seen]) -> float | None:
    """ms of one draft forward, where there is one point only: its draft phase over the K - 1 forwards in it."""
    only = seen[-1]
    draft = only.event_ms.get("draft")
    return None if draft is None or only.steps < 2 else draft / (only.steps - 1)


def _shaped(points: _Points, draft_forward: float | None, noise: float) -> tuple[Shape, _Points]:
    if len(points) == 1:
        (steps, time), slope = points[0], draft_forward
        return ("level", points) if slope is None else ("draft", [(1.0, time - slope * (steps - 1)), points[0]])
    if len(points) == 2:
        return "line", points
    first = points[:1] if points[0][0] == 1 and len(points) > 3 else []
    fitted = points[len(first) :]
    line = _line(fitted)
    worst = _worst(line, fitted)
    if worst <= noise:
        return "line", [*first, *line.knots]
    floors = [knots for knots in _floors(points) if _worst(Polyline(knots), points) <= _BETTER * worst]
    if floors:
        return "floor", min(floors, key=lambda knots: _worst(Polyline(knots), points))
    return "bent", points


def _floors(points: _Points) -> Iterator[_Points]:
    """max(floor, line) for each number of points on the floor, at least two on the line: knots at both ends and the bend."""
    for flat in range(1, len(points) - 1):
        floor = math.fsum(1 / y for _, y in points[:flat]) / math.fsum(1 / y**2 for _, y in points[:flat])
        line = _line(points[flat:])
        if line.last_slope <= 0:
            continue
        x, y = line.knots[0]
        bend = x + (floor - y) / line.last_slope
        if points[flat - 1][0] <= bend <= points[flat][0]:
            first, last = points[0][0], points[-1][0]
            yield [(min(first, bend - 1), floor), (bend, floor), (last, line.at(last))]


def _line(points: _Points) -> Polyline:
    """The straight that minimises the sum of squared relative errors."""
    weights = [1 / y**2 for _, y in points]
    whole = math.fsum(weights)
    mean_x = math.fsum(w * x for w, (x, _) in zip(weights, points, strict=True)) / whole
    mean_y = math.fsum(w * y for w, (_, y) in zip(weights, points, strict=True)) / whole
    spread = math.fsum(w * (x - mean_x) ** 2 for w, (x, _) in zip(weights, points, strict=True))
    together = math.fsum(w * (x - mean_x) * (y - mean_y) for w, (x, y) in zip(weights, points, strict=True))
    slope = together / spread
    return Polyline([(x, mean_y + slope * (x - mean_x)) for x in (points[0][0], points[-1][0])])


def _worst(curve: Polyline, points: _Points) -> float:
    return max(abs(curve.at(x) / y - 1) for x, y in points)
