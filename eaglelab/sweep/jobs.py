"""The loads of one sweep, taken by several workers at once; one that came to nothing may be made again."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from eaglelab.sweep.plan import Load

__all__ = ["JobQueue"]

_LOOK_S = 0.2
"""How often a worker that waits looks whether it is to end."""


class JobQueue:
    """Each load is at one worker at a time. A worker that waits calls `idle`, a few times a second and without holding
    anything; it may take long, and raise."""

    def __init__(self, loads: Iterable[Load], workers: Iterable[str]) -> None:
        self._changed = threading.Condition()
        self._workers = set(workers)
        self._waiting = deque(loads)
        self._at_work: dict[str, Load] = {}
        self._again: set[str] = set()
        self._taken: dict[str, int] = {}
        self._closed = False

    def take(self, worker: str, idle: Callable[[], None]) -> Load | None:
        """The next load for a worker; None once none is left and none can come back, or the queue is closed."""
        while True:
            with self._changed:
                if self._closed or not (self._waiting or self._at_work):
                    return None
                if self._waiting:
                    load = self._at_work[worker] = self._waiting.popleft()
                    self._taken[load.folder] = self._taken.get(load.folder, 0) + 1
                    return load
                self._changed.wait(_LOOK_S)
            idle()

    def done(self, worker: str, instead: Sequence[Load] = ()) -> None:
        """A worker is through with its load; `instead` are loads to be made for it, or because of it."""
        with self._changed:
            self._at_work.pop(worker, None)
            self._waiting.extendleft(reversed(instead))
            self._changed.notify_all()

    def once_more(self, load: Load) -> bool:
        """Whether a load that came to nothing through no fault of its own may be made again: it may, once."""
        with self._changed:
            first = load.folder not in self._again
            self._again.add(load.folder)
            return first

    def attempt(self, load: Load) -> int:
        """How often a load that is at a worker was at one before."""
        with self._changed:
            return self._taken.get(load.folder, 1) - 1

    def leave(self, worker: str) -> None:
        """A worker makes no more loads; the one that it was at goes back to the others."""
        with self._changed:
            self._workers.discard(worker)
            load = self._at_work.pop(worker, None)
            if load is not None:
                self._waiting.appendleft(load)
            self._changed.notify_all()

    def close(self) -> None:
        """No load is given out any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def over(self) -> bool:
        """Whether every worker has left."""
        with self._changed:
            return not self._workers

    @property
    def left(self) -> Sequence[Load]:
        """Loads that nobody has made."""
        with self._changed:
            return (*self._at_work.values(), *self._waiting)
