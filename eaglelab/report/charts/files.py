"""Charts as files, for a slide or a ticket."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from eaglelab.errors import InputError
from eaglelab.report.charts.canvas import to_png, to_svg
from eaglelab.report.charts.chart import Chart

__all__ = ["write_plots"]


def write_plots(charts: Iterable[Chart], folder: Path) -> list[Path]:
    """Each chart as `NAME.svg` and `NAME.png` in `folder`, which is made. Raises InputError where that cannot be written."""
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for chart in charts:
            vector, picture = folder / f"{chart.name}.svg", folder / f"{chart.name}.png"
            vector.write_text(to_svg(chart), encoding="utf-8")
            to_png(chart, picture)
            written += [vector, picture]
    except OSError as error:
        what = f"the charts cannot be written: {error.strerror}"
        raise InputError(what, where=str(folder), hint="--plots takes a folder that you may write to") from error
    return written
