"""A link whose waits can be ended from another thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from eaglelab.interruption import Interruption
from eaglelab.remote.pipe import Late, Link, Pipe, Silent

__all__ = ["InterruptibleLink"]

_SLICE_S = 0.25
"""How long a wait may last before it is looked whether it is to end."""


class InterruptibleLink:
    """`link`, on which sending, receiving and opening raise KeyboardInterrupt once `stop` was asked."""

    def __init__(self, link: Link, stop: Interruption, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = link.name
        self.sudo_user = link.sudo_user
        self._link = link
        self._stop = stop
        self._clock = clock

    def open(self, command: Sequence[str]) -> Pipe:
        self._stop.check()
        return _InterruptiblePipe(self._link.open(command), self.name, self._stop, self._clock)

    def close(self) -> None:
        self._link.close()


class _InterruptiblePipe:
    def __init__(self, pipe: Pipe, name: str, stop: Interruption, clock: Callable[[], float]) -> None:
        self._pipe = pipe
        self._name = name
        self._stop = stop
        self._clock = clock

    def send(self, data: bytes, timeout: float) -> None:
        self._stop.check()
        self._pipe.send(data, timeout)

    def receive(self, timeout: float) -> bytes:
        end = self._clock() + timeout
        while True:
            self._stop.check()
            left = end - self._clock()
            try:
                return self._pipe.receive(min(_SLICE_S, max(left, 0.0)))
            except Late as error:
                if left <= _SLICE_S:
                    raise Silent(f"no answer for {timeout:g} s", where=self._name) from error

    def ended(self) -> tuple[int | None, str]:
        return self._pipe.ended()

    def close(self) -> None:
        self._pipe.close()
