"""How far drafts survive: S_k, and each one's chance given that the one before was right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eaglelab.profile.acceptance import Acceptance
from eaglelab.report.cells import figure as number
from eaglelab.report.charts.canvas import legend, new_figure, shown
from eaglelab.report.charts.chart import Chart, Table
from eaglelab.report.charts.palette import series
from eaglelab.report.charts.throughput import MARKERS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Survival", "survival_chart"]


@dataclass(frozen=True)
class Survival:
    """The acceptance of one setting."""

    label: str
    found: Acceptance


def survival_chart(name: str, title: str, settings: Sequence[Survival]) -> Chart:
    """S_k above, the conditional below, a line a setting."""
    reach = max(len(each.found.survival) for each in settings)
    header = ("setting", "figure", *(f"k = {k}" for k in range(1, reach + 1)), "accept length", "verifies")
    rows = [row for each in settings for row in _rows(each, reach)]
    first = settings[-1]
    says = (
        "Share of verifies in which at least k drafts were right, and the chance of the k-th given the one before. "
        f"{first.label}: first draft right in {100 * first.found.survival[0]:.0f} % of verifies, "
        f"accept length {first.found.length:.2f} with the bonus token."
    )
    return Chart(name, title, says, Table(header, rows, text=2), lambda: _draw(settings))


def _rows(each: Survival, reach: int) -> list[list[str]]:
    found = each.found
    total = [number(found.length, 2), str(found.verifies)]
    gap = [""] * (reach - len(found.survival))
    return [
        [each.label, "S_k", *(number(share, 3) for share in found.survival), *gap, *total],
        [each.label, "given k-1", *(number(share, 3) for share in found.conditional), *gap, "", ""],
    ]


def _draw(settings: Sequence[Survival]) -> Figure:
    figure, (above, below) = new_figure(4.2, panels=2)
    for index, each in enumerate(settings):
        # Where lines lie on each other, the one of fewest steps is on top, since it is the shortest.
        look = {"color": series(index), "marker": MARKERS[index % len(MARKERS)], "zorder": 3 - index / 100}
        reach = range(1, len(each.found.survival) + 1)
        above.plot([0, *reach], [1.0, *each.found.survival], label=shown(each.label), **look)  # type: ignore[arg-type]
        known = [(k, share) for k, share in zip(reach, each.found.conditional, strict=True) if share is not None]
        below.plot([k for k, _ in known], [share for _, share in known], **look)  # type: ignore[arg-type]
    reach = range(max(len(each.found.survival) for each in settings) + 1)
    for axes, label in ((above, "S_k"), (below, "given k - 1")):
        axes.set_ylim(0, 1.04)
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
        axes.set_ylabel(label)
        axes.grid(visible=True, axis="y")
    below.set_xticks(list(reach))
    below.set_xlabel("draft k")
    legend(figure, handlelength=1.6)
    return figure
