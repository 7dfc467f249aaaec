"""Ends what a thread is at, as Ctrl-C ends what the main thread is at: signals reach no other thread."""

from __future__ import annotations

import threading

__all__ = ["Interruption"]


class Interruption:
    """One thread's. Who works there calls `check` before each piece of work and waits by `sleep` or in short slices.

    `begun`: there is something to be put back, so whoever ends this thread has to wait for it.
    """

    def __init__(self) -> None:
        self.begun = False
        self._asked = threading.Event()

    def ask(self) -> None:
        """Has KeyboardInterrupt raised there, once: what is put back after it is not ended."""
        self._asked.set()

    def check(self) -> None:
        """Raises KeyboardInterrupt if that was asked since the last time."""
        if self._asked.is_set():
            self._asked.clear()
            raise KeyboardInterrupt

    def sleep(self, seconds: float) -> None:
        """As time.sleep, but for the check, which ends it early."""
        self._asked.wait(seconds)
        self.check()
