"""Where the time of a cycle goes: a bar a setting, stacked in the order of the cycle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eaglelab.profile.definitions import PHASES
from eaglelab.profile.summary import Setting
from eaglelab.report.cells import MISSING, ms, percent
from eaglelab.report.charts.canvas import legend, new_figure, shown
from eaglelab.report.charts.chart import Chart, Table
from eaglelab.report.charts.palette import LIGHT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PARTS", "PhaseBar", "phase_chart"]

PARTS = PHASES[:-1]

_LEGIBLE = 0.11
"""Share of the longest bar that a segment needs to hold its figure."""
_BAR, _FRAME = 0.34, 1.0
"""Inches that a bar, and all around the bars, take."""
_BESIDE, _ABOVE = 16, 58
"""Letters of a label that have room beside the bars, and above them."""


@dataclass(frozen=True)
class PhaseBar:
    """One bar: mean ms a cycle by phase, `half` of the 95 % interval of their sum (None: not known), kept `cycles`."""

    label: str
    ms: Mapping[str, float]
    half: float | None = None
    cycles: int | None = None

    @property
    def total(self) -> float:
        """The whole cycle, ms."""
        return self.ms.get("total", sum(self.ms.values()))

    @classmethod
    def of(cls, label: str, setting: Setting) -> PhaseBar:
        """From the probe's GPU times."""
        phases = {phase.name: phase.event for phase in setting.phases}
        total = phases["total"]
        return cls(label, {name: each.mean for name, each in phases.items()}, total.half_width, setting.cycles)


def phase_chart(name: str, title: str, bars: Sequence[PhaseBar], clock: str = "GPU time") -> Chart:
    """One chart of all bars, the first on top."""
    longest = max(bars, key=lambda bar: bar.total)
    largest = max(PARTS, key=lambda part: longest.ms.get(part, 0.0))
    share = 100 * longest.ms.get(largest, 0.0) / longest.total if longest.total else 0.0
    says = (
        f"Stacked bars of {clock} a cycle for {len(bars)} settings. The longest is {longest.label}: "
        f"{longest.total:.2f} ms, of which {largest} takes {share:.0f} %."
    )
    header = ("setting", *(f"{part} ms" for part in PARTS), "total ms", "+/-95 %", "verify %", "cycles")
    return Chart(name, title, says, Table(header, [_row(bar) for bar in bars]), lambda: _draw(bars, clock))


def _row(bar: PhaseBar) -> list[str]:
    verify = bar.ms.get("verify")
    return [
        bar.label,
        *(ms(bar.ms.get(part)) for part in PARTS),
        ms(bar.total),
        ms(bar.half),
        percent(verify / bar.total if verify is not None and bar.total else None),
        MISSING if bar.cycles is None else str(bar.cycles),
    ]


def _draw(bars: Sequence[PhaseBar], clock: str) -> Figure:
    above = any(len(bar.label) > _BESIDE for bar in bars)
    figure, (axes,) = new_figure(_FRAME + (1.6 if above else 1) * _BAR * len(bars))
    longest = max(bar.total for bar in bars) or 1.0
    rows = range(len(bars))
    begin = [0.0] * len(bars)
    for part in PARTS:
        widths = [bar.ms.get(part, 0.0) for bar in bars]
        colour = LIGHT[part]
        drawn = axes.barh(
            rows,
            widths,
            left=begin,
            height=0.46 if above else 0.72,
            color=colour,
            edgecolor=LIGHT["surface"],
            label=part,
        )
        for width, patch in zip(widths, drawn, strict=True):
            if width / longest >= _LEGIBLE:
                middle = patch.get_x() + width / 2, patch.get_y() + patch.get_height() / 2
                axes.text(*middle, f"{width:.2f}", color=LIGHT["on-phase"], ha="center", va="center", fontsize=9.5)
        begin = [start + width for start, width in zip(begin, widths, strict=True)]
    for row, bar in enumerate(bars):
        axes.text(bar.total + longest * 0.012, row, f"{bar.total:.2f}", ha="left", va="center", fontweight="bold")
    axes.set_yticks(list(rows), ["" if above else shown(bar.label) for bar in bars], color=LIGHT["ink"])
    for row, bar in enumerate(bars if above else ()):
        axes.text(0, row - 0.27, shown(bar.label, _ABOVE), ha="left", va="bottom", fontsize=9.5)
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set_xlim(0, longest * 1.17)
    axes.set_xlabel(f"ms a cycle, mean {clock}")
    axes.spines["left"].set_visible(False)
    axes.grid(visible=True, axis="x")
    legend(figure, handlelength=1, handleheight=1)
    return figure
