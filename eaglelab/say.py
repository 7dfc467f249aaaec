"""What a person sees while a command works: a line a task, progress in between, tables at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from rich.console import Console, RenderableType
from rich.status import Status
from rich.text import Text

__all__ = ["Say"]

_QUIET_S = 10.0
"""Where nothing can be redrawn (a file, CI), progress is a new line this often."""


class Say:
    """Writes to `console`. With several hosts each line is prefixed by its host (`for_host`)."""

    def __init__(self, console: Console, prefix: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        self.console = console
        self._prefix = prefix
        self._clock = clock
        self._status: Status | None = None
        self._said_at = clock()

    @classmethod
    def on(cls, *, json: bool) -> Say:
        """For a command line: stdout belongs to the one JSON line where `--json` asks for it."""
        return cls(Console(file=sys.stderr if json else sys.stdout, highlight=False))

    def for_host(self, name: str) -> Say:
        return Say(self.console, f"{name}: ", self._clock)

    def line(self, text: str, style: str = "") -> None:
        """One line (or several) that stays."""
        self.settle()
        self.console.print(Text(self._prefix + text, style=style), soft_wrap=True)

    def show(self, renderable: RenderableType) -> None:
        """A table, a diff or another picture."""
        self.settle()
        self.console.print(renderable)

    def progress(self, text: str) -> None:
        """What is going on right now: redrawn in place on a terminal, a line every few seconds elsewhere."""
        if self.console.is_terminal:
            if self._status is None:
                self._status = self.console.status(Text(self._prefix + text))
                self._status.start()
            self._status.update(Text(self._prefix + text))
        elif self._clock() - self._said_at >= _QUIET_S:
            self._said_at = self._clock()
            self.console.print(Text(f"{self._prefix}  ... {text}", style="dim"), soft_wrap=True)

    def settle(self) -> None:
        """Ends the redrawn line, so that what follows stands below it."""
        if self._status is not None:
            self._status.stop()
            self._status = None
        self._said_at = self._clock()
