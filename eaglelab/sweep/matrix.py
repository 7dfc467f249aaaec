"""The settings of a sweep: step counts, and variations of flags and environment, crossed or zipped."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from eaglelab.errors import InputError
from eaglelab.host import FlagValue
from eaglelab.server.setting import setting_name

__all__ = ["Matrix", "Point", "Variation"]

Combine = Literal["cross", "zip"]


@dataclass(frozen=True)
class Variation:
    """What a load is started with beside what the inventory says. Two that start the same server are equal."""

    flags: Mapping[str, FlagValue] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> tuple[tuple[str, str], ...]:
        """Equal where the server would be started alike."""
        flags = [(f"--{name}", repr(value)) for name, value in sorted(self.flags.items())]
        return (*flags, *sorted(self.env.items()))

    @property
    def name(self) -> str:
        """For tables and file names: `NCCL_ALGO=Ring disable-custom-all-reduce`; empty where nothing is varied."""
        flags = [_flag_name(name, value) for name, value in self.flags.items()]
        return " ".join([*(f"{name}={value}" for name, value in self.env.items()), *flags])


@dataclass(frozen=True)
class Point:
    """One setting to measure. `steps` None is the baseline: no speculation."""

    steps: int | None
    variation: Variation = field(default_factory=Variation)

    @property
    def key(self) -> tuple[object, ...]:
        return (self.steps, self.variation.key)

    @property
    def name(self) -> str:
        return " ".join(filter(None, [setting_name(self.steps), self.variation.name]))


@dataclass(frozen=True)
class Matrix:
    """Values to try. `combine`: every flag and variable with every other (`cross`), or the n-th of each together (`zip`).

    Step counts are crossed with all of that in either case, and so is the baseline.
    """

    steps: Sequence[int]
    baseline: bool = True
    env: Mapping[str, Sequence[str]] = field(default_factory=dict)
    flags: Mapping[str, Sequence[FlagValue]] = field(default_factory=dict)
    combine: Combine = "cross"

    def variations(self) -> list[Variation]:
        """Every combination once, in the order of the values. Raises InputError where a zip does not fit."""
        names = [("env", name) for name in self.env] + [("flag", name) for name in self.flags]
        values: list[Sequence[FlagValue]] = [*self.env.values(), *self.flags.values()]
        if not names:
            return [Variation()]
        rows: Iterable[tuple[FlagValue, ...]] = itertools.product(*values)
        if self.combine == "zip":
            self._must_be_as_long()
            rows = zip(*values, strict=True)
        return _unique(_variation(names, row) for row in rows)

    def points(self) -> list[Point]:
        """The baseline of a variation first, then its step counts. A setting that comes up twice stands there once."""
        steps: list[int | None] = [None] if self.baseline else []
        steps += dict.fromkeys(self.steps)
        return [Point(count, variation) for variation in self.variations() for count in steps]

    def _must_be_as_long(self) -> None:
        lengths = {name: len(values) for name, values in [*self.env.items(), *self.flags.items()]}
        if len(set(lengths.values())) > 1:
            counts = ", ".join(f"{name} has {count}" for name, count in lengths.items())
            raise InputError(
                f"zipped values must be as many for each: {counts}",
                where="sweep",
                hint="give each the same number of values, or combine them with cross",
            )


def _variation(names: Sequence[tuple[str, str]], row: Sequence[FlagValue]) -> Variation:
    chosen = list(zip(names, row, strict=True))
    return Variation(
        flags={name: value for (kind, name), value in chosen if kind == "flag"},
        env={name: str(value) for (kind, name), value in chosen if kind == "env"},
    )


def _unique(variations: Iterable[Variation]) -> list[Variation]:
    found: dict[tuple[tuple[str, str], ...], Variation] = {}
    for variation in variations:
        found.setdefault(variation.key, variation)
    return list(found.values())


def _flag_name(name: str, value: FlagValue) -> str:
    if isinstance(value, bool):
        return name if value else f"no {name}"
    shown = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return f"{name}={shown}"
