"""Work on a stream of items in a thread behind the one that hands them over: hashing and writing need not wait for the network."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Generic, TypeVar

__all__ = ["Behind"]

T = TypeVar("T")

_LOOK_S = 0.1
"""How often it is looked whether the work has failed meanwhile, while there is no room for one more item."""


class _End:
    """The last item."""


class _Dropped(BaseException):
    """Raised in the work where the items end in the middle; nobody else sees it."""


class Behind(Generic[T]):
    """`work` is given an iterator of the items that are `put` while this is entered, at most `ahead` of them at a time.

    Leaving it waits for the work, and raises what that raised. Leaving it by an exception drops what is not worked on yet,
    and waits for the item at work alone.
    """

    def __init__(self, work: Callable[[Iterator[T]], None], ahead: int) -> None:
        self._work = work
        self._items: queue.Queue[T | _End] = queue.Queue(ahead)
        self._failed: BaseException | None = None
        self._dropping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="behind", daemon=True)

    def put(self, item: T) -> None:
        """Hands over one item. Raises what the work has failed with."""
        self._hand(item)
        if self._failed is not None:
            raise self._failed

    def __enter__(self) -> Behind[T]:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._dropping.set()
        self._hand(_End())
        self._thread.join()
        if error is None and self._failed is not None:
            raise self._failed

    def _hand(self, item: T | _End) -> None:
        while self._thread.is_alive():
            try:
                self._items.put(item, timeout=_LOOK_S)
            except queue.Full:
                continue
            return

    def _run(self) -> None:
        try:
            self._work(self._iterate())
        except _Dropped:
            return
        except BaseException as error:  # noqa: BLE001 - it is for whoever hands over
            self._failed = error

    def _iterate(self) -> Iterator[T]:
        while True:
            item = self._items.get()
            if self._dropping.is_set():
                raise _Dropped
            if isinstance(item, _End):
                return
            yield item
