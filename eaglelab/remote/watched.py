"""A connected socket that breaks where it would hang: Paramiko waits for ever in places, and never asks who is still there."""

from __future__ import annotations

import contextlib
import errno
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

__all__ = ["Patience", "WatchedSocket"]


@dataclass(frozen=True)
class Patience:
    """When a line is given up (s); both together stay below half a minute.

    `probe`: how often the other end of a line on which nothing passes is asked for a sign of life. `dead`: how long
    it may owe an answer, or take nothing.
    """

    probe: float = 5.0
    dead: float = 20.0


def _acknowledge(sock: socket.socket) -> None:
    """At once what just came: sshd does not send the second of two short answers before, and Linux waits 40 ms with it.

    The kernel forgets it after a while, so it is asked for each time.
    """
    with contextlib.suppress(AttributeError, OSError):  # another system, or no TCP
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


class WatchedSocket:
    """Wraps `sock`, whose timeout must be short: it is then that the clock is looked at.

    A line that is given up raises ConnectionAbortedError; `reason` then says why, in words. A pause of the program
    itself is no silence of the other end: only what was asked and not answered counts.
    """

    def __init__(self, sock: socket.socket, dead: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.reason = ""
        self._sock = sock
        self._dead = dead
        self._clock = clock
        self._asked: float | None = None
        self._stuck: float | None = None
        self._limit: float | None = None
        self._conversing = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def asked(self) -> None:
        """A question was sent that the other end answers if it lives."""
        if self._asked is None:
            self._asked = self._clock()

    @contextmanager
    def conversing(self) -> Iterator[None]:
        """Meanwhile the other end always owes the next word, as in a login."""
        self._conversing = True
        self._asked = self._clock()
        try:
            yield
        finally:
            self._conversing = False
            self._asked = None

    @contextmanager
    def in_time(self) -> Iterator[None]:
        """What is done meanwhile must be over in time, whatever else comes."""
        self._limit = self._clock() + self._dead
        _acknowledge(self._sock)
        try:
            yield
        finally:
            self._limit = None

    def recv(self, size: int) -> bytes:
        try:
            data = self._sock.recv(size)
        except TimeoutError:
            self._look()
            raise
        self._asked = self._clock() if self._conversing else None
        if self._conversing or self._limit is not None:
            _acknowledge(self._sock)
        return data

    def send(self, data: bytes) -> int:
        try:
            sent = self._sock.send(data)
        except TimeoutError:
            now = self._clock()
            self._stuck = now if self._stuck is None else self._stuck
            if now - self._stuck >= self._dead:
                raise self._given_up(f"the host took nothing for {self._dead:g} s") from None
            raise
        self._stuck = None
        return sent

    def _look(self) -> None:
        now = self._clock()
        if self._asked is not None and now - self._asked >= self._dead:
            raise self._given_up(f"no sign of life for {self._dead:g} s")
        if self._limit is not None and now >= self._limit:
            raise self._given_up(f"no answer within {self._dead:g} s")

    def _given_up(self, reason: str) -> ConnectionAbortedError:
        self.reason = reason
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        return ConnectionAbortedError(errno.ECONNABORTED, reason)  # Paramiko wants both
