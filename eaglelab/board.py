"""What many hosts are at, as one table that is redrawn on a terminal."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from eaglelab.plain import Plain
from eaglelab.printable import printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.live import Live

__all__ = ["Board"]

_QUIET_S = 10.0
"""Where nothing can be redrawn, one host's progress is a line this often, whichever host's it is."""


class Board:
    """While it is entered, the hosts at work are shown below what is printed; the others only as numbers.

    Its methods are called from the threads of the hosts.
    """

    def __init__(
        self, console: Console | Plain, names: Sequence[str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.width = max(map(len, names), default=0)
        self._console = console
        self._clock = clock
        self._left = len(names)
        self._ended: dict[str, int] = {}
        self._now: dict[str, str] = {}
        self._lock = threading.Lock()
        self._said_at = clock()
        self._live: Live | None = None

    def __enter__(self) -> Board:
        if self._console.is_terminal and not isinstance(self._console, Plain):
            from rich.live import Live

            self._live = Live(self, console=self._console, transient=True, refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def at(self, name: str, what: str) -> None:
        """What a host is at."""
        with self._lock:
            if name not in self._now:
                self._left -= 1
            self._now[name] = what

    def ended(self, name: str, how: str) -> None:
        """A host is through; `how` in a word or two."""
        with self._lock:
            if self._now.pop(name, None) is None:
                self._left -= 1
            self._ended[how] = self._ended.get(how, 0) + 1

    def turn(self) -> bool:
        """Whether it is time for a line of progress where nothing can be redrawn."""
        with self._lock:
            if self._clock() - self._said_at < _QUIET_S:
                return False
            self._said_at = self._clock()
            return True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.table import Table
        from rich.text import Text

        with self._lock:
            now, ended, left = dict(self._now), dict(self._ended), self._left
        room = max(3, (options.height or console.height) - 4)
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, overflow="ellipsis")
        for name in list(now)[:room]:
            table.add_row(Text(name, style="bold"), Text(printable(now[name])))
        yield table
        more = [f"{len(now) - room} more at work"] if len(now) > room else []
        counts = [*more, *(f"{count} {how}" for how, count in ended.items()), *([f"{left} to come"] if left else [])]
        if counts:
            yield Text(", ".join(counts), style="dim")
