"""Ends what a thread is at, as Ctrl-C ends what the main thread is at: signals reach no other thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

__all__ = ["Interruption"]

_SLICE_S = 0.2
"""How long a sleep lasts before `also` is asked."""


class Interruption:
    """One thread's. Who works there calls `check` before each piece of work and waits by `sleep` or in short slices.

    `begun`: there is something to be put back, so whoever ends this thread has to wait for it. `also` is asked at each
    check, too, and may raise.
    """

    def __init__(self) -> None:
        self.begun = False
        self.also: Callable[[], None] | None = None
        self._asked = threading.Event()

    def ask(self) -> None:
        """Has KeyboardInterrupt raised there, once: what is put back after it is not ended."""
        self._asked.set()

    def check(self) -> None:
        """Raises KeyboardInterrupt if that was asked since the last time."""
        if self._asked.is_set():
            self._asked.clear()
            raise KeyboardInterrupt
        if self.also is not None:
            self.also()

    def forget(self) -> None:
        """What was asked has been answered in another way."""
        self._asked.clear()

    def sleep(self, seconds: float) -> None:
        """As time.sleep, but for the check, which ends it early."""
        end = time.monotonic() + seconds
        while self.also is not None and end - time.monotonic() > _SLICE_S:
            self._asked.wait(_SLICE_S)
            self.check()
        self._asked.wait(max(0.0, end - time.monotonic()) if self.also else seconds)
        self.check()
