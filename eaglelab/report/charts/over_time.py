"""Accept length and tokens per second as the run went on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from eaglelab.profile.stats import describe
from eaglelab.report.cells import MISSING
from eaglelab.report.cells import figure as number
from eaglelab.report.charts.canvas import legend, new_figure, shown
from eaglelab.report.charts.chart import Chart, Table
from eaglelab.report.charts.palette import LIGHT, SERIES, series
from eaglelab.report.charts.throughput import MARKERS, PLAIN
from eaglelab.report.timeline import Moment

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["time_chart"]

_Lines = Mapping[str, Sequence[Moment]]
"""By label."""
_ALONE = 40
"""More points than that are drawn smaller."""


def time_chart(name: str, title: str, lines: _Lines, reading: str) -> Chart:
    """Two panels, a colour a setting; `reading` says what the seconds below are of, and what a point is."""
    drawn = dict(list(lines.items())[:SERIES])
    rows = [_row(label, moments) for label, moments in lines.items()]
    header = ("setting", "points", "seconds", "tok/s a request: lowest", "median", "highest", "accept length: lowest")
    table = Table((*header, "median", "highest"), rows)
    left_out = f" The first {SERIES} settings are drawn, the table has all." if len(lines) > SERIES else ""
    says = f"Tokens per second of a request and accept length over time, for {len(drawn)} settings.{left_out}"
    return Chart(name, title, says, table, lambda: _draw(drawn), f"{reading}{left_out}")


def _row(label: str, moments: Sequence[Moment]) -> list[str]:
    seconds = f"{moments[0].at:.1f} to {moments[-1].at:.1f}"
    rates = _ends([moment.tok_s for moment in moments], 1)
    return [label, str(len(moments)), seconds, *rates, *_ends([moment.accept_length for moment in moments], 2)]


def _ends(values: Sequence[float | None], decimals: int) -> list[str]:
    known = [value for value in values if value is not None]
    stats = describe(known)
    if stats is None:
        return [MISSING] * 3
    return [number(value, decimals) for value in (min(known), stats.median, max(known))]


def _draw(lines: _Lines) -> Figure:
    accepted = any(moment.accept_length is not None for moments in lines.values() for moment in moments)
    figure, panels = new_figure(4.2 if accepted else 2.7, panels=2 if accepted else 1)
    drafting = [label for label in lines if label != PLAIN]
    for label, moments in lines.items():
        # As in the other charts, where the baseline is no line.
        index = drafting.index(label) if label in drafting else None
        joined = len(lines) == 1
        _line(panels[0], [(moment.at, moment.tok_s) for moment in moments], index, shown(label), joined=joined)
        if accepted:
            _line(panels[1], [(moment.at, moment.accept_length) for moment in moments], index, None, joined=joined)
    _scale(panels[0], 0.0, "tok/s a request")
    if accepted:
        _scale(panels[1], 1.0, "accept length")
    panels[-1].set_xlabel("seconds")
    for axes in panels:
        axes.grid(visible=True, axis="y")
    legend(figure, handlelength=1.6)
    return figure


def _scale(axes: Axes, least: float, label: str) -> None:
    highest = axes.get_ylim()[1]
    axes.set_ylim(least, least + 1.05 * max(highest - least, 0.1))
    axes.set_ylabel(label)


def _line(
    axes: Axes, points: Sequence[tuple[float, float | None]], index: int | None, label: str | None, *, joined: bool
) -> None:
    """Settings that took turns are dots: a line between them would show what nobody measured."""
    known = [(at, value) for at, value in points if value is not None]
    if not known:
        return
    axes.plot(
        [at for at, _ in known],
        [value for _, value in known],
        color=LIGHT["other"] if index is None else series(index),
        marker="." if index is None else MARKERS[index % len(MARKERS)],
        markersize=4 if len(known) <= _ALONE else 2,
        linewidth=1.2 if joined else 0,
        label=label,
    )
