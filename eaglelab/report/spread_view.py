"""Which host measured what, beside the reference of that host."""

from __future__ import annotations

from rich.console import Group, RenderableType

from eaglelab.printable import printable
from eaglelab.profile.spread import Spread
from eaglelab.report.cells import figure, note, plain_table, tok_s

__all__ = ["spread_table"]


def spread_table(spread: Spread) -> RenderableType:
    """One row a setting and host, those with the best ratio to the reference first."""
    table = plain_table("setting", "host", "conc", "tok/s", "to reference", text=2)
    for each in spread.placed:
        ratio = figure(each.ratio, 3)
        table.add_row(printable(each.key.words), each.host, str(each.batch), tok_s(each.tok_s), ratio)
    return Group(table, note(f"to reference: tok/s / that of {spread.reference.words} on the same host, probe off"))
