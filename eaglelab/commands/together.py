"""The same work on many hosts at once: how many at a time, in which batches, and what a failure on one means for the rest."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from eaglelab.errors import InputError
from eaglelab.interruption import Interruption

__all__ = ["FORKS", "ON_FAILURE", "Ended", "Manner", "Together"]

FORKS = 32
"""Hosts at work at once. A load is minutes of waiting: what bounds this is memory here, not work."""

ON_FAILURE = ("stop", "continue", "rollback")

_PATIENCE_S = 2.0
"""How long a host on which nothing was begun may take to end after an interrupt: it may hang in a connection."""


@dataclass(frozen=True)
class Manner:
    """`forks`: hosts at once. `serial`: hosts a batch, None for one batch of all; a batch begins when the one before it ended.

    `on_failure`, what a failure on one host means for the others. `stop`: those at work come to their end, no further
    one is begun. `continue`: all are begun. `rollback`: none is begun, those at work are ended, and all are put back.
    """

    forks: int = FORKS
    serial: int | None = None
    on_failure: str = "stop"

    def __post_init__(self) -> None:
        if self.on_failure not in ON_FAILURE:
            what = f"'{self.on_failure}' is nothing that a failure can mean"
            raise InputError(what, where="--on-failure", hint=f"one of {', '.join(ON_FAILURE)}")

    def batches(self, names: Sequence[str]) -> Iterator[Sequence[str]]:
        size = self.serial or max(len(names), 1)
        return (names[start : start + size] for start in range(0, len(names), size))


@dataclass(frozen=True)
class Ended:
    """How one host's work ended, after how long (s)."""

    error: BaseException | None
    seconds: float


class Together:
    """Does `work` for each of `names`, each in a thread of its own. `ended` hears of each, in one thread, as it ends.

    `work` is given the name, and what it must ask whether it is to end.
    """

    def __init__(
        self,
        names: Sequence[str],
        work: Callable[[str, Interruption], None],
        manner: Manner,
        ended: Callable[[str, Ended], None] = lambda _name, _end: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._names = names
        self._work = work
        self._manner = manner
        self._tell = ended
        self._clock = clock
        self._found: dict[str, Ended] = {}
        self._at_work: dict[str, tuple[Interruption, float]] = {}
        self._ends: queue.SimpleQueue[tuple[str, BaseException | None]] = queue.SimpleQueue()
        self._dealing = threading.Lock()
        self._closed = threading.Event()
        self._interrupted = threading.Event()
        self._over = threading.Event()

    def run(self) -> dict[str, Ended]:
        """How each ended, in the order of `names`; those that were not begun are not in it.

        A Ctrl-C (KeyboardInterrupt) ends all that are at work, as it would end each alone. It is raised in the end
        where none of them was ended by it.
        """
        interrupt: KeyboardInterrupt | None = None
        while True:
            try:
                self._see_through()
                break
            except KeyboardInterrupt as error:
                interrupt = error
                self._interrupted.set()
                self._end_all()
                self._ends.put(("", None))  # wakes who deals
        found = {name: self._found[name] for name in self._names if name in self._found}
        if interrupt and all(ended.error is None for ended in found.values()):
            raise interrupt
        return found

    def _see_through(self) -> None:
        """A Ctrl-C may come anywhere in it: also while the thread that deals is made, which may be at work by then."""
        if not self._dealing.locked():
            threading.Thread(target=self._deal, name="hosts", daemon=True).start()
        self._over.wait()

    def _deal(self) -> None:
        if not self._dealing.acquire(blocking=False):
            return  # made twice, around a Ctrl-C
        try:
            for batch in self._manner.batches(self._names):
                self._batch(deque(batch))
        finally:
            self._over.set()

    def _batch(self, waiting: deque[str]) -> None:
        while True:
            while waiting and len(self._at_work) < self._manner.forks and not self._closed.is_set():
                self._begin(waiting.popleft())
            if not self._at_work:
                return
            try:
                name, error = self._ends.get(timeout=_PATIENCE_S if self._interrupted.is_set() else None)
            except queue.Empty:
                self._give_up_idle()
            else:
                self._note(name, error)

    def _begin(self, name: str) -> None:
        stop = Interruption()
        self._at_work[name] = stop, self._clock()
        if self._closed.is_set():  # meanwhile
            stop.ask()

        def work() -> None:
            error: BaseException | None = None
            try:
                self._work(name, stop)
            except BaseException as raised:  # noqa: BLE001 - it is for whoever waits for all of them
                error = raised
            self._ends.put((name, error))

        threading.Thread(target=work, name=f"host {name}", daemon=True).start()

    def _note(self, name: str, error: BaseException | None) -> None:
        if name not in self._at_work:
            return  # given up before, or only a wake-up
        _, began = self._at_work.pop(name)
        self._found[name] = Ended(error, self._clock() - began)
        if error is not None and self._manner.on_failure != "continue":
            self._closed.set()
            if self._manner.on_failure == "rollback":
                self._end_all()
        self._tell(name, self._found[name])

    def _end_all(self) -> None:
        self._closed.set()
        for stop, _ in list(self._at_work.values()):
            stop.ask()

    def _give_up_idle(self) -> None:
        """A name look-up or a login that hangs cannot be ended; nothing was begun there, so nobody waits for it."""
        for name, (stop, _) in list(self._at_work.items()):
            if not stop.begun:
                self._note(name, KeyboardInterrupt())
