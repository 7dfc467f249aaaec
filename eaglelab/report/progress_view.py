"""The settings of a load while they are measured."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType

from eaglelab.report.cells import Bar, figure, plain_table, tok_s
from eaglelab.sweep.progress import SettingSoFar

__all__ = ["progress_table"]


def progress_table(settings: Sequence[SettingSoFar]) -> RenderableType:
    """One row a setting: how far it is, tokens/s with the probe off, accept length; all of it still to change."""
    table = plain_table("steps", "", "req", "tok/s so far", "accept len", text=2)
    for found in settings:
        table.add_row(
            "server's" if found.steps is None else str(found.steps),
            Bar(found.ended / found.wanted),
            f"{found.ended}/{found.wanted}",
            tok_s(found.tok_s),
            figure(found.accept_length, 2),
        )
    return table
