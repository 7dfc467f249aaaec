"""Lets the hosts of one server, each in a thread of its own, begin each task together, and fail together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eaglelab.errors import HostError

__all__ = ["Apart", "Failure", "Lockstep"]

_LOOK_S = 0.1
"""How often one that waits looks whether it is to end."""

Idle = Callable[[], None]


class Apart(HostError):
    """The hosts of a server are not together any more: one has failed, and the others are to end."""


@dataclass(frozen=True)
class Failure:
    """Who failed, how, and whether that host is out for good."""

    name: str
    error: BaseException
    out: bool


@dataclass
class _Meeting:
    at: str
    words: dict[str, Any] = field(default_factory=dict)


class Lockstep:
    """The hosts `names` of one server, in the order of their ranks; their threads share it.

    One that waits calls `idle`, a few times a second and without holding anything; what that raises ends the waiting.
    """

    def __init__(self, names: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        self.names = tuple(names)
        self._clock = clock
        self._changed = threading.Condition()
        self._met = dict.fromkeys(names, 0)
        self._meetings: dict[int, _Meeting] = {}
        self._failure: Failure | None = None
        self.cause: str | None = None
        """Whose error tells most of why this try failed, once that is known; the others only followed."""
        self._gone: dict[str, BaseException | None] = {}
        self._again: set[str] = set()
        self._tries = 0
        self._accounts: dict[str, Any] = {}

    @property
    def failure(self) -> Failure | None:
        """The first failure of this try."""
        return self._failure

    @property
    def to_blame(self) -> str | None:
        """Whose error says why this try failed."""
        return self.cause or (self._failure.name if self._failure else None)

    def meet(self, name: str, at: str, word: Any, idle: Idle) -> Mapping[str, Any]:
        """Waits until all have come to their meeting of this number; what each of them said there.

        Raises Apart where one has failed, has ended, or has come to something else than `at`.
        """
        with self._changed:
            number = self._met[name]
            self._met[name] += 1
            here = self._meetings.setdefault(number, _Meeting(at))
            self._meetings.pop(number - 2, None)  # all have left it
            if here.at != at:
                self._note(
                    Failure(name, HostError(f"came to '{at}', and others to '{here.at}'", where=name), out=False)
                )
            else:
                here.words[name] = word
            self._changed.notify_all()
        self._until(lambda: len(here.words) == len(self.names), idle)
        return {each: here.words[each] for each in self.names}

    def fail(self, name: str, error: BaseException, *, out: bool = False) -> None:
        """One has failed in this try: the others' meetings come to nothing. `out`: it makes no other one."""
        with self._changed:
            self._note(Failure(name, error, out))
            if out:
                self._gone.setdefault(name, error)
            self._changed.notify_all()

    def leave(self, name: str, error: BaseException | None = None) -> None:
        """One has come to its end. Whoever would wait for it later does so in vain."""
        with self._changed:
            self._gone.setdefault(name, error)
            if error is not None:
                self._note(Failure(name, error, out=True))
            self._changed.notify_all()

    def again(self, name: str, idle: Idle) -> None:
        """Waits until all have come here, having put back what the last try left; then the next one begins."""
        with self._changed:
            tries = self._tries
            self._again.add(name)
            if len(self._again) == len(self.names) and not self._gone:
                self._again.clear()
                self._meetings.clear()
                self._accounts.clear()
                self._met = dict.fromkeys(self.names, 0)
                self._failure = self.cause = None
                self._tries += 1
            self._changed.notify_all()
        self._until(lambda: self._tries > tries, idle, failing=False)

    def account(self, name: str, found: Any, patience: float) -> Mapping[str, Any]:
        """What each found out about its own end, as far as all say it within `patience` seconds or are gone."""
        end = self._clock() + patience
        with self._changed:
            self._accounts[name] = found
            self._changed.notify_all()
            while len({*self._accounts, *self._gone}) < len(self.names) and self._clock() < end:
                self._changed.wait(_LOOK_S)
            return dict(self._accounts)

    def _note(self, failure: Failure) -> None:
        self._failure = self._failure or failure

    def _until(self, found: Callable[[], Any], idle: Idle, *, failing: bool = True) -> Any:
        """What `found` says once that is something."""
        while True:
            with self._changed:
                if result := found():  # also where one has failed since: all that met are to go on alike
                    return result
                if failing and self._failure is not None:
                    raise self._apart(self._failure.name)
                if self._gone:
                    raise self._apart(next(iter(self._gone)))
                self._changed.wait(_LOOK_S)
            idle()

    def _apart(self, name: str) -> Apart:
        return Apart(f"ended, because {name} failed" if self._failure else f"{name} has come to its end already")
