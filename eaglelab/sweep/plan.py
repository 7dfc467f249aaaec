"""Deals the settings of a sweep out to loads: as few as the release allows, each with its reason and expected time."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from eaglelab.server.setting import setting_name
from eaglelab.sweep.matrix import Point, Variation

__all__ = ["Load", "SweepPlan", "plan_loads"]


@dataclass(frozen=True)
class Load:
    """One start of the server. `steps`: the counts that it serves; None is the baseline. `why`: the reason for its extent.

    `on`: the node that is to run it, where it is measured on several; empty for any.
    """

    steps: tuple[int, ...] | None
    variation: Variation
    why: str = ""
    on: str = ""

    @property
    def one_load(self) -> bool:
        """Whether requests choose among several step counts in it."""
        return self.steps is not None and len(self.steps) > 1

    @property
    def points(self) -> list[Point]:
        return [Point(count, self.variation) for count in (self.steps or (None,))]

    @property
    def apart(self) -> list[Load]:
        """A load for each of its step counts."""
        return [replace(self, steps=(count,), why="") for count in self.steps or ()]

    @property
    def name(self) -> str:
        """For people: `k1,2,3` or `baseline`, and what is varied."""
        counts = "baseline" if self.steps is None else "k" + ",".join(map(str, self.steps))
        return " ".join(filter(None, [counts, self.variation.name, self.on and f"on {self.on}"]))

    @property
    def folder(self) -> str:
        """Of its files: the same in letters, digits and dashes, and different for every load of a sweep."""
        counts = setting_name(None) if self.steps is None else "k" + "-".join(map(str, self.steps))
        node = f"-on-{_in_letters(self.on)}" if self.on else ""
        if not self.variation.key:
            return f"{counts}{node}"
        varied = _in_letters(self.variation.name)[:60]
        return f"{counts}-{varied}-{hashlib.sha256(repr(self.variation.key).encode()).hexdigest()[:4]}{node}"


def _in_letters(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")


@dataclass(frozen=True)
class SweepPlan:
    """Loads in the order in which they are made. `load_s`: what one load is expected to take (seconds)."""

    loads: tuple[Load, ...]
    load_s: float

    @property
    def points(self) -> list[Point]:
        return [point for load in self.loads for point in load.points]

    @property
    def loading_s(self) -> float:
        """Seconds of loading to expect in all."""
        return len(self.loads) * self.load_s

    @property
    def saved_s(self) -> float:
        """Seconds of loading that one load for several step counts saves."""
        return (len(self.points) - len(self.loads)) * self.load_s


def plan_loads(
    points: Sequence[Point], why_not: Callable[[Variation], str | None], load_s: float, *, separate: bool = False
) -> SweepPlan:
    """Groups `points` (each once) into loads. `why_not(variation)`: why its step counts cannot share a load, or None.

    `separate`: a load for each, asked for. The baseline is always a load of its own: speculation is a flag of the start.
    """
    loads: list[Load] = []
    for variation in dict.fromkeys(_Keyed(point.variation) for point in points):
        counts = [point.steps for point in points if point.variation.key == variation.of.key]
        if None in counts:
            loads.append(Load(None, variation.of, "without speculation: a load of its own"))
        steps = tuple(count for count in counts if count is not None)
        loads += _loads_of(steps, variation.of, why_not, separate)
    return SweepPlan(tuple(loads), load_s)


def _loads_of(
    steps: tuple[int, ...], variation: Variation, why_not: Callable[[Variation], str | None], separate: bool
) -> list[Load]:
    if len(steps) < 2:
        return [Load((count,), variation) for count in steps]
    reason = "a load for each, as asked for" if separate else why_not(variation)
    if reason is None:
        return [Load(steps, variation, "one load: requests choose among the step counts captured at start")]
    return [Load((count,), variation, reason) for count in steps]


@dataclass(frozen=True)
class _Keyed:
    """A variation that is equal to another which starts the same server."""

    of: Variation

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Keyed) and self.of.key == other.of.key

    def __hash__(self) -> int:
        return hash(self.of.key)
