"""The evidence that rules are tried on: named values, each with where it is from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from eaglelab.diagnosis.names import NAMES, Value

__all__ = ["Fact", "Facts", "Sheet"]


@dataclass(frozen=True)
class Fact:
    """One value and its source, such as `profile.json` or `line 120 of server.log`."""

    value: Value
    source: str


@dataclass(frozen=True)
class Facts:
    """`whole`: what holds for the host, server or run. `settings`: what holds for each setting, by its words.

    What is not known is not there.
    """

    whole: Mapping[str, Fact] = field(default_factory=dict)
    settings: Mapping[str, Mapping[str, Fact]] = field(default_factory=dict)

    def views(self) -> Iterator[tuple[str, Mapping[str, Fact]]]:
        """What a rule about settings sees: each setting with the whole beside it."""
        for label, facts in self.settings.items():
            yield label, {**self.whole, **facts}


class Sheet:
    """Takes facts one at a time, each checked against the kind of its name; None means not known."""

    def __init__(self) -> None:
        self._facts: dict[str, Fact] = {}

    def put(self, name: str, value: object, source: str) -> None:
        """Note a fact, unless one of that name is there. Raises KeyError for an unknown name, TypeError for the wrong kind."""
        if value is not None and name not in self._facts:
            self._facts[name] = Fact(NAMES[name].checked(value), source)

    def take(self, name: str, value: object, source: str) -> None:
        """The same for a value as it was read somewhere: one of the wrong kind counts as not known."""
        if NAMES[name].fits(value):
            self.put(name, value, source)

    def value(self, name: str) -> Value | None:
        """What is noted under a name; None where nothing is."""
        return self._facts[name].value if name in self._facts else None

    def number(self, name: str) -> float | None:
        """The same as a number; None where it is none."""
        value = self.value(name)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    @property
    def facts(self) -> Mapping[str, Fact]:
        """All that was noted."""
        return MappingProxyType(self._facts)
