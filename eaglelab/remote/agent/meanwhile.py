"""Something that is found out while something else is waited for."""

from __future__ import annotations

import threading
from typing import Any, Callable

__all__ = ["Meanwhile"]


class Meanwhile:
    """Begins `work` in a thread of its own. Whoever never asks for the result does not wait for it."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._found: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._found = self._work()
        except BaseException as error:
            self._error = error

    def result(self) -> Any:
        """What `work` returned. Raises what it raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._found
