"""Where nothing is coloured or redrawn: a file, a pipe, CI. Lines go out as they are, and rich is loaded for a table only."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

__all__ = ["Plain", "is_plain"]

_DRAWN_BY = ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "JUPYTER_COLUMNS", "JUPYTER_LINES")
"""Variables by which rich may take for a terminal what is none: then it decides."""


def is_plain(file: TextIO, env: Mapping[str, str]) -> bool:
    """Whether `file` is certain to be no terminal."""
    return not file.isatty() and not any(name in env for name in _DRAWN_BY)


class Plain:
    """As much of a console as lines need. `file`: None where the stream was closed before this began."""

    is_terminal = False

    def __init__(self, file: TextIO | None) -> None:
        self.file = file
        self.quiet = file is None
        self._lock = threading.Lock()
        self._console: Console | None = None

    def line(self, text: str) -> None:
        """One line, or several that stay together. A reader that goes away ends nothing. Raises OSError for a full disk."""
        with self._lock:
            if self.quiet or self.file is None:
                return
            try:
                self.file.write(f"{text}\n")
                self.file.flush()
            except BrokenPipeError:
                self.quiet = True
                os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())  # for what Python flushes at its end

    def print(self, picture: RenderableType, *, soft_wrap: bool = False) -> None:
        """A picture, drawn by rich."""
        if self.quiet or self.file is None:
            return
        if self._console is None:
            from eaglelab.drawing import console_on

            self._console = console_on(self.file)
        self._console.print(picture, soft_wrap=soft_wrap)
        self.quiet = self._console.quiet
