"""A chart as data: what it is called, what it says in words, its figures as a table, and how it is drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Chart", "Table"]


@dataclass(frozen=True)
class Table:
    """Figures as text. The first `text` columns are words, the others numbers."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    text: int = 1


@dataclass(frozen=True)
class Chart:
    """One picture.

    `name` is its file's and begins every id in its SVG: letters, digits, dashes. `title` heads it, `says` tells one who
    cannot see it what is there to see, `reading` how it is to be read. `draw` makes the figure; it imports matplotlib,
    which no other part of the program waits for, and is called within `canvas.style`.
    """

    name: str
    title: str
    says: str
    table: Table
    draw: Callable[[], Figure]
    reading: str = ""
