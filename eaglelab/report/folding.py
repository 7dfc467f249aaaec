"""A table with more columns than the terminal has room for: it goes on below, its first columns repeated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from eaglelab.report.cells import plain_table

__all__ = ["Column", "Folding"]

_GAP = 2


@dataclass(frozen=True)
class Column:
    """A header and a cell for each row. `text`: left-aligned, and wrapped beyond that many characters."""

    header: str
    cells: Sequence[str]
    text: int | None = None

    @property
    def width(self) -> int:
        """Characters that it takes on the terminal, without the gap."""
        lines = [*self.header.split("\n"), *self.cells]
        width = max(cell_len(line) for line in lines)
        return width if self.text is None else min(width, max(self.text, cell_len(self.header)))


class Folding:
    """`keys` say what a row is and stand in every part; `figures` are dealt out to as many parts as it takes."""

    def __init__(self, keys: Sequence[Column], figures: Sequence[Column]) -> None:
        self._keys = keys
        self._figures = figures

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = options.max_width - sum(column.width + _GAP for column in self._keys)
        for number, part in enumerate(_dealt(self._figures, room)):
            if number:
                yield ""
            yield _table([*self._keys, *part])


def _dealt(figures: Sequence[Column], room: int) -> Iterator[list[Column]]:
    """As many columns as fit, at least one."""
    part: list[Column] = []
    for column in figures:
        if part and sum(each.width + _GAP for each in part) + column.width > room:
            yield part
            part = []
        part.append(column)
    yield part


def _table(columns: Sequence[Column]) -> Table:
    table = plain_table(*(column.header for column in columns), text=0)
    for made, column in zip(table.columns, columns, strict=True):
        if column.text is not None:
            made.justify, made.no_wrap, made.overflow, made.max_width = "left", False, "fold", column.width
    for row in zip(*(column.cells for column in columns), strict=True):
        # As Text, so that a bracket in a name is no markup.
        table.add_row(*(Text(cell) for cell in row))
    return table
