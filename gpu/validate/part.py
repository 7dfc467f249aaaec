"""A part of an experiment: what is run in one go and leaves one result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpu.validate.budget import Budget
from gpu.validate.results import Check, Data
from gpu.validate.setting import Setting
from gpu.validate.site import Site

__all__ = ["Experiment", "Part", "in_order"]


@dataclass(frozen=True)
class Part:
    """`setting`: of the server that it needs; parts of one setting share a load, but for those that are `alone`.

    `seconds`: what it takes beside the load, as seen on an H200. None of `setting` means: it starts servers by itself.
    """

    name: str
    seconds: float
    run: Callable[[Site, Budget], Data]
    setting: Setting | None = None
    alone: bool = False


@dataclass(frozen=True)
class Experiment:
    """`checks`: what the results of its parts (by name, those that are there) say; pure."""

    name: str
    parts: Sequence[Part]
    checks: Callable[[Mapping[str, Data]], list[Check]]


def in_order(parts: Sequence[Part]) -> list[Part]:
    """As given, but those that can share a load follow the first of them."""
    place: dict[object, int] = {}
    for number, part in enumerate(parts):
        place.setdefault(_key(part), number)
    return sorted(parts, key=lambda part: place[_key(part)])


def _key(part: Part) -> object:
    return part.name if part.alone or part.setting is None else part.setting
