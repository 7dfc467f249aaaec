"""What would be gained if one cost were gone: a bar a lever."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from eaglelab.model.explained import Lever
from eaglelab.report.cells import MISSING, tok_s
from eaglelab.report.charts.canvas import new_figure, shown
from eaglelab.report.charts.chart import Chart, Table
from eaglelab.report.charts.palette import LIGHT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["lever_chart"]

_BAR, _FRAME, _NAME = 0.46, 0.25, 56
_SIGN = {"at most": "\N{LESS-THAN OR EQUAL TO}", "at least": "\N{GREATER-THAN OR EQUAL TO}"}


def lever_chart(name: str, title: str, levers: Sequence[Lever]) -> Chart:
    """Bars in the order given, the largest gain on top."""
    header = ("lever", "gain", "tok/s then", "at steps", "what is assumed")
    rows = [
        [
            lever.name,
            f"{lever.bound} {100 * lever.gain:.1f} %",
            tok_s(lever.tok_s),
            MISSING if lever.steps is None else str(lever.steps),
            lever.assumption,
        ]
        for lever in levers
    ]
    first = levers[0]
    says = f"Gain in tokens per second by lever. The largest: {first.name}, {first.bound} {100 * first.gain:.0f} %."
    return Chart(name, title, says, Table(header, rows), lambda: _draw(levers))


def _draw(levers: Sequence[Lever]) -> Figure:
    figure, (axes,) = new_figure(_FRAME + _BAR * len(levers))
    gains = [100 * lever.gain for lever in levers]
    widest = max(*gains, 1.0)
    for row, (lever, gain) in enumerate(zip(levers, gains, strict=True)):
        # What it is worth at most is an outline, what it is worth at least is filled.
        face = LIGHT["good"] if lever.bound == "at least" else "none"
        axes.barh(row, gain, height=0.4, facecolor=face, edgecolor=LIGHT["good"], linewidth=1.4)
        axes.text(widest * 0.012, row - 0.26, shown(lever.name, _NAME), ha="left", va="bottom")
        text = f"{_SIGN[lever.bound]} {gain:.1f} %, {lever.tok_s:.0f} tok/s"
        axes.text(max(gain, 0) + widest * 0.015, row, text, va="center", fontsize=9.5, color=LIGHT["soft"])
    axes.set_yticks([])
    axes.set_xticks([])
    axes.set_ylim(len(levers) - 0.6, -0.75)
    axes.set_xlim(min(0, *gains), widest * 1.5)
    axes.spines["bottom"].set_visible(False)
    axes.spines["left"].set_color(LIGHT["soft"])
    return figure
