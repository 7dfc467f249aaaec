"""The runs in the terminal: a line each, or each setting over time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.text import Text

from eaglelab.printable import printable
from eaglelab.report.cells import MISSING, figure, left, note, plain_table, tok_s
from eaglelab.runs.history import Series
from eaglelab.runs.rows import RunRow

__all__ = ["Spark", "runs_table", "trend_table"]

_LONGEST = 14
"""With more marks a terminal of 80 columns has no room for what the newest comes to."""
_NARROWEST = 12
_STYLES = {"better": "green", "worse": "bold red"}


class Spark:
    """Figures as a line of marks, the lowest to the highest; plain ASCII where the terminal cannot show more."""

    def __init__(self, values: Sequence[float]) -> None:
        self._values = values[-_LONGEST:]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        marks = "_.-=^" if options.ascii_only or options.legacy_windows else "▁▂▃▄▅▆▇█"
        low, high = min(self._values), max(self._values)
        width = high - low
        levels = [(value - low) / width if width else 0.5 for value in self._values]
        yield Segment("".join(marks[min(int(level * len(marks)), len(marks) - 1)] for level in levels))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(len(self._values), len(self._values))


def runs_table(rows: Sequence[RunRow]) -> RenderableType:
    """Run, host, headline."""
    table = left(plain_table("run", "host", "headline", text=3), 2)
    for row in rows:
        table.add_row(Text(printable(row.run)), Text(printable(row.host)), Text(printable(row.headline)))
    return table


def trend_table(found: Sequence[Series]) -> RenderableType:
    """What is like with like together: a row a setting, its runs from old to new, the newest against those before."""
    parts: list[RenderableType] = []
    for about, group in itertools.groupby(found, key=_about):
        rows = list(group)
        releases = dict.fromkeys(each.release for each in rows if each.release)
        parts += [Text(printable(about), style="bold"), _table(rows)]
        parts += [*(note(printable(f"the newest ran another sglang: {release}")) for release in releases), ""]
    return Group(
        *parts,
        note("tok/s: of all requests together; before: median of the earlier runs"),
        note("noise: how far the newest may lie from there by what the earlier runs differ among themselves"),
        note(
            "without it (fewer than three earlier runs) the newest's own interval decides: another load may differ by more"
        ),
    )


def _about(series: Series) -> str:
    """Host, model, hardware, what was sent, whose figures."""
    return ", ".join(
        filter(
            None,
            [
                series.host,
                series.model,
                series.gpu if series.simulated is None else series.simulated,
                f"tp {series.tp}" if series.tp else "",
                series.workload,
                "" if series.source == "requests" else f"by {series.source.replace('_', ' ')}",
            ],
        )
    )


def _table(group: Sequence[Series]) -> RenderableType:
    headers = ["setting", "conc", "runs", "over time", "newest\ntok/s", "before", "change\n%", "noise\n+/- %", ""]
    table = left(plain_table(*headers), 0)
    table.columns[0].min_width = _NARROWEST
    table.columns[3].justify = table.columns[8].justify = "left"
    for each in group:
        table.add_row(
            Text(printable(each.key.words)),
            str(each.batch),
            str(len(each.points)),
            Spark([point.tok_s for point in each.points]),
            tok_s(each.points[-1].tok_s),
            tok_s(each.before),
            MISSING if each.percent is None else f"{each.percent:+.1f}",
            figure(each.noise, 1),
            Text(each.judged, style=_STYLES.get(each.judged, "")),
        )
    return table
