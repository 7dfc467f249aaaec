"""What a person sees while a command works: a line a task, progress in between, tables at the end."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.text import Text

from eaglelab.masking import Masker
from eaglelab.printable import printable

if TYPE_CHECKING:
    from rich.status import Status

    from eaglelab.board import Board

__all__ = ["Say"]

_QUIET_S = 10.0
"""Where nothing can be redrawn (a file, CI), progress is a new line this often."""


_DIFF_STYLES = (("+++", "bold"), ("---", "bold"), ("@@", "cyan"), ("+", "green"), ("-", "red"))


class _Console(Console):
    """Whoever reads along may go away; that must not end what is at work on a host."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())  # for what Python flushes at its end


class _Harmless:
    """A picture whose text, which may come from a server's log, cannot steer the terminal."""

    def __init__(self, renderable: RenderableType) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self._renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, self._renderable)


class Say:
    """Writes to `console`; secrets that `masker` knows are masked, and what would steer the terminal is spelt out.

    With several hosts each line has its host in front, what is said at once stays together whichever thread says it,
    and progress is on their `board`.
    """

    def __init__(
        self,
        console: Console,
        clock: Callable[[], float] = time.monotonic,
        masker: Masker | None = None,
        host: str = "",
        board: Board | None = None,
    ) -> None:
        self.console = console
        self._host = host
        self._board = board
        self._prefix = f"{host:<{board.width if board else 0}} | " if host else ""
        self._clock = clock
        self._masker = masker or Masker()
        self._status: Status | None = None
        self._said_at = clock()

    @classmethod
    def on(cls, *, json: bool) -> Say:
        """For a command line: stdout belongs to the one JSON line where `--json` asks for it."""
        return cls(_Console(file=sys.stderr if json else sys.stdout, highlight=False, markup=False, emoji=False))

    def for_host(self, name: str, masker: Masker, board: Board | None = None) -> Say:
        """The same for one host; `name` is put before each line, unless it is empty."""
        return Say(self.console, self._clock, masker, name, board)

    def line(self, text: str, style: str = "") -> None:
        """One line (or several) that stays."""
        self.settle()
        if self._board:
            self._board.at(self._host, text.strip())
        self._print(Text(self._shown(text), style=style), soft_wrap=True)

    def diff(self, text: str) -> None:
        """A unified diff as it is, so that it can be copied; only coloured."""
        self.settle()
        lines = [
            Text(line, style=next((style for start, style in _DIFF_STYLES if line.startswith(start)), ""))
            for line in printable(text).splitlines()
        ]
        if lines:
            self._print(Text("\n").join([*self._heading(), *lines]), soft_wrap=True)

    def show(self, renderable: RenderableType) -> None:
        """A table or another picture."""
        self.settle()
        self._print(Group(*self._heading(), _Harmless(renderable)))

    def progress(self, text: str, picture: RenderableType | None = None) -> None:
        """What is going on right now: redrawn in place on a terminal, a line every few seconds elsewhere.

        `picture` is what a terminal shows below that line.
        """
        shown = self._shown(text)
        if self._board:
            self._board.at(self._host, self._masker.text(text))
            if not self.console.is_terminal and self._board.turn():
                self._print(Text(self._shown(f"  ... {text}"), style="dim"), soft_wrap=True)
        elif self.console.is_terminal:
            drawn = Text(shown) if picture is None else Group(Text(shown), _Harmless(picture))
            if self._status is None:
                self._status = self.console.status(drawn)
                self._status.start()
            self._status.update(drawn)
        elif self._clock() - self._said_at >= _QUIET_S:
            self._said_at = self._clock()
            self._print(Text(f"  ... {shown}", style="dim"), soft_wrap=True)

    def settle(self) -> None:
        """Ends the redrawn line, so that what follows stands below it."""
        if self._status is not None:
            with contextlib.suppress(OSError):
                self._status.stop()
            self._status = None
        self._said_at = self._clock()

    def _shown(self, text: str) -> str:
        shown = printable(self._masker.text(text))
        return "\n".join(self._prefix + line for line in shown.split("\n")) if self._prefix else shown

    def _heading(self) -> list[Text]:
        """Above what cannot have its host before each line."""
        return [Text(self._prefix.rstrip(), style="bold")] if self._prefix else []

    def _print(self, renderable: RenderableType, *, soft_wrap: bool = False) -> None:
        try:
            self.console.print(renderable, soft_wrap=soft_wrap)
        except OSError:  # the terminal is gone, or the disk behind stdout is full: the work goes on without a reader
            self.console.quiet = True
