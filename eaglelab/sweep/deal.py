"""Deals the loads of one sweep out to several equal hosts, each of which first measures the same reference."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eaglelab.errors import NotOurs
from eaglelab.sweep.deck import Deck
from eaglelab.sweep.plan import Load

__all__ = ["Deal", "Kept", "differences"]

_LOOK_S = 0.2
"""How often a host that waits looks whether it is to end."""


@dataclass(frozen=True)
class Kept:
    """What a host has of earlier tries of this run. `loads`: those that it measured, by folder. `claim`: the folder of the
    load that it was at in the end.
    """

    loads: Collection[str] = ()
    claim: str | None = None


class Deal:
    """The loads of `names`, whose threads share it. The first load is the reference: every host gets it.

    A host that waits calls `idle`, a few times a second and without holding anything; it may take long, and raise.
    `absent(identity)` says, once all who come are known, which loads the others need not make since hosts of that
    identity, not among them, measured them before.
    """

    def __init__(
        self,
        names: Sequence[str],
        absent: Callable[[Mapping[str, Any], Collection[str]], Collection[str]] = lambda _identity, _joined: (),
        hint: str = "",
    ) -> None:
        self._names = tuple(names)
        self._absent = absent
        self._hint = hint
        self._changed = threading.Condition()
        self._to_come = set(names)
        self._equal: dict[str, Mapping[str, Any]] = {}
        self._kept: dict[str, Kept] = {}
        self._loads: list[Load] = []
        self._gone: set[str] = set()
        self._refused = ""
        self._deck: Deck | None = None

    def join(
        self,
        name: str,
        identity: Mapping[str, Any],
        loads: Iterable[Load],
        idle: Callable[[], None],
        kept: Kept = Kept(),
    ) -> Load:
        """Waits until every host has joined or left; then the reference.

        `identity` is what must be the same on all. Raises NotOurs where it is not: nothing was loaded by then, and what
        an earlier try has left there stays.
        """
        with self._changed:
            self._to_come.discard(name)
            self._equal[name], self._kept[name] = identity, kept
            self._loads = self._loads or list(loads)
            self._changed.notify_all()
        self._until(lambda: not self._to_come, idle)
        with self._changed:
            told = differences({name: self._equal[name] for name in self._names if name in self._equal})
            if self._refused or told:
                raise self._unequal(name, told)
            if self._deck is None:
                self._deck = self._dealt(identity)
            return self._loads[0]

    def take(self, name: str, idle: Callable[[], None]) -> Load | None:
        """The next load for a host; None once nothing is left, also at the others, whose loads might come back."""
        with self._changed:
            deck = self._dealing
            deck.made(name)
            self._changed.notify_all()
        found: list[Load] = []

        def given() -> bool:
            found.extend(filter(None, [deck.take(name)]))
            return bool(found) or deck.over

        self._until(given, idle)
        return found[0] if found else None

    def again(self, loads: Sequence[Load]) -> None:
        """Loads to be made instead of one that came to nothing."""
        with self._changed:
            self._dealing.instead(loads)
            self._changed.notify_all()

    def instead(self, reference: Load, loads: Sequence[Load]) -> Load:
        """The reference of all who have none yet, where the server of `reference` died of its several step counts.

        `loads` are to be made instead of it: the first is the new reference, the rest is dealt out, once for all hosts.
        """
        with self._changed:
            if self._loads[0] == reference:
                self._loads[:1] = loads
                self._dealing.instead(loads[1:])
                self._changed.notify_all()
            return self._loads[0]

    def disclaim(self, name: str) -> None:
        """The load that a host was at in an earlier try does not go on there: another may make it as well."""
        with self._changed:
            self._dealing.disclaim(name)
            self._changed.notify_all()

    def refuse(self, why: str) -> None:
        """A host is not the one that an earlier try measured on: nobody who has not begun yet begins."""
        with self._changed:
            self._refused = self._refused or why
            self._changed.notify_all()

    def leave(self, name: str) -> None:
        """A host makes no more loads; the one that it was at goes back to the others. It may never have joined."""
        with self._changed:
            self._to_come.discard(name)
            self._gone.add(name)
            if self._deck is not None:
                self._deck.leave(name)
            self._changed.notify_all()

    @property
    def left(self) -> Sequence[Load]:
        """Loads that nobody has made."""
        return tuple(self._deck.waiting) if self._deck is not None else tuple(self._loads[1:])

    @property
    def _dealing(self) -> Deck:
        assert self._deck is not None  # noqa: S101 - whoever asks has joined
        return self._deck

    def _dealt(self, identity: Mapping[str, Any]) -> Deck:
        kept = {folder for each in self._kept.values() for folder in each.loads}
        kept |= set(self._absent(identity, self._equal.keys()))
        claims = {name: self._kept[name].claim for name in self._names if name in self._kept and name not in self._gone}
        return Deck.of(self._loads[1:], kept, {name: claim for name, claim in claims.items() if claim})

    def _unequal(self, name: str, told: Sequence[str]) -> NotOurs:
        what = f"these hosts are not equal, so their figures cannot be compared: {'; '.join(told)}"
        if self._refused:
            what = f"nothing was begun, because {self._refused}"
        return NotOurs(what, where=name, hint=self._hint)

    def _until(self, holds: Callable[[], bool], idle: Callable[[], None]) -> None:
        while True:
            with self._changed:
                if holds():
                    self._changed.notify_all()  # what it took may be what others wait for
                    return
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
