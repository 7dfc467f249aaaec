"""How the ranks of a tensor-parallel server differ: each one's mean time in each phase."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eaglelab.profile.summary import Rank, Setting
from eaglelab.report.cells import ms
from eaglelab.report.charts.canvas import legend, new_figure
from eaglelab.report.charts.chart import Chart, Table
from eaglelab.report.charts.palette import LIGHT
from eaglelab.report.charts.phases import PARTS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["rank_chart"]


def rank_chart(name: str, title: str, setting: Setting) -> Chart | None:
    """Distance of every rank from the mean of the ranks, by phase; None with fewer than two ranks that kept cycles."""
    skew = setting.skew_ms
    if skew is None:
        return None
    ranks = [rank for rank in setting.ranks if rank.event_ms]
    widest = max(PARTS, key=lambda part: skew[part])
    slow = min(ranks, key=lambda rank: rank.event_ms["verify"])
    says = (
        f"Mean GPU time of {len(ranks)} ranks by phase, as distance from their mean. They differ most in {widest}, by "
        f"{skew[widest]:.3f} ms; rank {slow.rank} has the shortest verify, so the others wait for it."
    )
    rows = [
        [str(rank.rank), *(ms(rank.event_ms[part]) for part in (*PARTS, "total")), str(rank.cycles)] for rank in ranks
    ]
    rows.append(["skew", *(ms(skew[part]) for part in (*PARTS, "total")), ""])
    table = Table(("rank", *(f"{part} ms" for part in (*PARTS, "total")), "cycles"), rows)
    return Chart(name, title, says, table, lambda: _draw(ranks))


def _draw(ranks: list[Rank]) -> Figure:
    figure, (axes,) = new_figure(3.0)
    width = 0.8 / len(PARTS)
    for place, part in enumerate(PARTS):
        mean = sum(rank.event_ms[part] for rank in ranks) / len(ranks)
        at = [row + (place - (len(PARTS) - 1) / 2) * width for row in range(len(ranks))]
        axes.bar(at, [rank.event_ms[part] - mean for rank in ranks], width * 0.92, color=LIGHT[part], label=part)
    axes.axhline(0, color=LIGHT["soft"], linewidth=0.8)
    axes.set_xticks(range(len(ranks)), [str(rank.rank) for rank in ranks])
    axes.set_xlabel("rank")
    axes.set_ylabel("ms from the mean of the ranks")
    axes.grid(visible=True, axis="y")
    legend(figure, handlelength=1, handleheight=1)
    return figure
