"""Deals the loads of one sweep out to several equal hosts, each of which first measures the same reference."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from eaglelab.errors import HostError
from eaglelab.sweep.plan import Load

__all__ = ["Deal", "differences"]

_LOOK_S = 0.2
"""How often a host that waits looks whether it is to end."""


class Deal:
    """The loads of `names`, whose threads share it. The first load is the reference: every host gets it.

    A host that waits calls `idle` (a few times a second), which may raise.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._changed = threading.Condition()
        self._to_come = set(names)
        self._equal: dict[str, Mapping[str, Any]] = {}
        self._waiting: deque[Load] | None = None
        self._reference: Load | None = None
        self._at_work: dict[str, Load] = {}

    def join(self, name: str, identity: Mapping[str, Any], loads: Iterable[Load], idle: Callable[[], None]) -> Load:
        """Waits until every host has joined or left; then the reference.

        `identity` is what must be the same on all. Raises HostError where it is not: nothing was loaded by then.
        """
        with self._changed:
            self._to_come.discard(name)
            self._equal[name] = identity
            if self._waiting is None:
                self._reference, *rest = loads
                self._waiting = deque(rest)
            self._changed.notify_all()
            self._wait(lambda: not self._to_come, idle)
            told = differences({name: self._equal[name] for name in self._names if name in self._equal})
            assert self._reference is not None  # noqa: S101 - set above
        if told:
            raise HostError(
                f"these hosts are not equal, so their figures cannot be compared: {'; '.join(told)}",
                where=name,
                hint="name equal hosts, or leave out --spread: each host then measures all settings",
            )
        return self._reference

    def take(self, name: str, idle: Callable[[], None]) -> Load | None:
        """The next load for a host; None once nothing is left, also at the others, whose loads might come back."""
        with self._changed:
            self._at_work.pop(name, None)
            self._changed.notify_all()
            assert self._waiting is not None  # noqa: S101 - it has joined
            waiting = self._waiting
            self._wait(lambda: bool(waiting) or not self._at_work, idle)
            if not waiting:
                return None
            self._at_work[name] = waiting.popleft()
            return self._at_work[name]

    def again(self, loads: Sequence[Load]) -> None:
        """Loads to be made instead of one that came to nothing."""
        with self._changed:
            if self._waiting is not None:
                self._waiting.extendleft(reversed(loads))
            self._changed.notify_all()

    def leave(self, name: str) -> None:
        """A host makes no more loads; the one that it was at goes back to the others."""
        with self._changed:
            self._to_come.discard(name)
            load = self._at_work.pop(name, None)
            if load is not None and self._waiting is not None:
                self._waiting.appendleft(load)
            self._changed.notify_all()

    @property
    def left(self) -> Sequence[Load]:
        """Loads that nobody has made."""
        return tuple(self._waiting or ())

    def _wait(self, holds: Callable[[], bool], idle: Callable[[], None]) -> None:
        while not holds():
            self._changed.wait(_LOOK_S)
            idle()


def differences(identities: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """In what hosts differ, as `GPUs: 8 x H200 on a, b; 8 x H100 on c`."""
    told = []
    for what in dict.fromkeys(key for identity in identities.values() for key in identity):
        by_value: dict[str, list[str]] = {}
        for name, identity in identities.items():
            by_value.setdefault(str(identity.get(what)), []).append(name)
        if len(by_value) > 1:
            told.append(f"{what}: " + ", ".join(f"{value} on {' and '.join(on)}" for value, on in by_value.items()))
    return told
