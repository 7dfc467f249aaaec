"""What is worked out once for all hosts of a command, whichever of their threads asks first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, TypeVar

__all__ = ["Once"]

T = TypeVar("T")


class Once:
    """Remembers results, and the errors too, for as long as it lives. Equal hosts have equal files to plan for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[Hashable, Future[Any]] = {}

    def __call__(self, work: Callable[..., T], *args: Hashable) -> T:
        """What `work(*args)` gives. It must give the same whoever asks, and nobody may change it."""
        key = (work, *args)
        with self._lock:
            future = self._found.get(key)
            mine = future is None
            if future is None:
                future = self._found[key] = Future()
        if mine:
            try:
                future.set_result(work(*args))
            except KeyboardInterrupt as error:
                with self._lock:  # it is for the next to work out
                    del self._found[key]
                future.set_exception(error)
            except BaseException as error:  # noqa: BLE001 - it is as true for all who ask
                future.set_exception(error)
        found: T = future.result()
        return found
