"""What a person sees while a command works: a line a task, progress in between, tables at the end."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from eaglelab.masking import Masker
from eaglelab.plain import Plain, is_plain
from eaglelab.printable import printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.status import Status

    from eaglelab.board import Board

__all__ = ["Say"]

_QUIET_S = 10.0
"""Where nothing can be redrawn (a file, CI), progress is a new line this often."""


class Say:
    """Writes to `console`; secrets that `masker` knows are masked, and what would steer the terminal is spelt out.

    With several hosts each line has its host in front, what is said at once stays together whichever thread says it,
    and progress is on their `board`.
    """

    def __init__(
        self,
        console: Console | Plain,
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
        file = sys.stderr if json else sys.stdout
        if file is None or is_plain(file, os.environ):
            return cls(Plain(file))
        from eaglelab.drawing import console_on

        return cls(console_on(file))

    def for_host(self, name: str, masker: Masker, board: Board | None = None) -> Say:
        """The same for one host; `name` is put before each line, unless it is empty."""
        return Say(self.console, self._clock, masker, name, board)

    def line(self, text: str, style: str = "") -> None:
        """One line (or several) that stays."""
        self.settle()
        if self._board:
            self._board.at(self._host, text.strip())
        self._line(self._shown(text), style)

    def diff(self, text: str) -> None:
        """A unified diff as it is, so that it can be copied; only coloured."""
        self.settle()
        lines = printable(text).splitlines()
        if lines and isinstance(self.console, Plain):
            self._line("\n".join([*filter(None, [self._heading()]), *lines]))
        elif lines:
            from eaglelab.drawing import diff_of

            self._print(diff_of(lines, self._heading()), soft_wrap=True)

    def show(self, renderable: RenderableType) -> None:
        """A table or another picture."""
        self.settle()
        from eaglelab.drawing import below

        self._print(below(self._heading(), renderable))

    def progress(self, text: str, picture: RenderableType | None = None) -> None:
        """What is going on right now: redrawn in place on a terminal, a line every few seconds elsewhere.

        `picture` is what a terminal shows below that line.
        """
        shown = self._shown(text)
        if self._board:
            self._board.at(self._host, self._masker.text(text))
            if not self.console.is_terminal and self._board.turn():
                self._line(self._shown(f"  ... {text}"), "dim")
        elif self.console.is_terminal and not isinstance(self.console, Plain):
            from eaglelab.drawing import line_of, under

            drawn = line_of(shown) if picture is None else under(line_of(shown), picture)
            if self._status is None:
                self._status = self.console.status(drawn)
                self._status.start()
            self._status.update(drawn)
        elif self._clock() - self._said_at >= _QUIET_S:
            self._said_at = self._clock()
            self._line(f"  ... {shown}", "dim")

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

    def _heading(self) -> str:
        """Above what cannot have its host before each line."""
        return self._prefix.rstrip()

    def _line(self, text: str, style: str = "") -> None:
        if not isinstance(self.console, Plain):
            from eaglelab.drawing import line_of

            self._print(line_of(text, style), soft_wrap=True)
            return
        try:
            self.console.line(text)
        except OSError:
            self.console.quiet = True

    def _print(self, renderable: RenderableType, *, soft_wrap: bool = False) -> None:
        try:
            self.console.print(renderable, soft_wrap=soft_wrap)
        except OSError:  # the terminal is gone, or the disk behind stdout is full: the work goes on without a reader
            self.console.quiet = True
