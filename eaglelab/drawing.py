"""What is drawn by rich: lines with a style, tables, and what is redrawn in place on a terminal."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.text import Text

from eaglelab.printable import printable

__all__ = ["below", "console_on", "diff_of", "line_of", "under"]

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


def console_on(file: TextIO) -> Console:
    """A console that shows text as it is."""
    return _Console(file=file, highlight=False, markup=False, emoji=False)


def line_of(text: str, style: str = "") -> Text:
    return Text(text, style=style)


def diff_of(lines: Sequence[str], heading: str) -> Text:
    """Lines of a diff, coloured; `heading` above them, unless it is empty."""
    drawn = [
        Text(line, style=next((style for start, style in _DIFF_STYLES if line.startswith(start)), "")) for line in lines
    ]
    return Text("\n").join([*_headings(heading), *drawn])


def below(heading: str, picture: RenderableType) -> RenderableType:
    """A picture below its heading (none, if that is empty)."""
    return Group(*_headings(heading), _Harmless(picture))


def under(line: Text, picture: RenderableType) -> RenderableType:
    """A picture below a line of progress."""
    return Group(line, _Harmless(picture))


def _headings(text: str) -> list[Text]:
    return [Text(text, style="bold")] if text else []
