"""Where charts are drawn: matplotlib without pyplot, so without a window, a display or state that figures share."""

from __future__ import annotations

import io
import math
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eaglelab.errors import EaglelabError
from eaglelab.printable import printable
from eaglelab.report.charts.chart import Chart
from eaglelab.report.charts.palette import LIGHT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["WIDTH", "legend", "new_figure", "shown", "style", "to_png", "to_svg"]

WIDTH = 5.2
"""Inches. A page shows it 300 (a phone) to 600 pixels wide: text has to be readable at both."""

_DPI = 200
_ONE_AT_A_TIME = threading.RLock()
"""Runs on several hosts may draw in several threads, and matplotlib's settings are those of the process."""
_LONGEST = 50
_ACROSS = 57
_STYLE: Any = {
    "font.family": ["DejaVu Sans"],
    "font.size": 10.5,
    "text.color": LIGHT["ink"],
    "text.parse_math": False,
    "axes.labelcolor": LIGHT["soft"],
    "axes.labelsize": 10.5,
    "axes.edgecolor": LIGHT["rule"],
    "axes.facecolor": "none",
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": False,
    "grid.color": LIGHT["rule"],
    "grid.linewidth": 0.7,
    "xtick.color": LIGHT["rule"],
    "ytick.color": LIGHT["rule"],
    "xtick.labelcolor": LIGHT["soft"],
    "ytick.labelcolor": LIGHT["soft"],
    "legend.frameon": False,
    "legend.fontsize": 10,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "figure.facecolor": "none",
    "svg.fonttype": "none",
    "svg.hashsalt": "eaglelab",
    "path.simplify": True,
}


@contextmanager
def style() -> Iterator[None]:
    """How every chart looks. Raises EaglelabError where matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError as error:
        raise EaglelabError("charts need matplotlib, which is not installed", hint="pip install matplotlib") from error
    with _ONE_AT_A_TIME, matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        # Names come from elsewhere; a letter that the measuring font lacks is drawn by the reader's.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def new_figure(height: float, panels: int = 1) -> tuple[Figure, list[Axes]]:
    """An empty figure, `height` in inches, with so many panels one below the other that share the axis below."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.subplots(panels, 1, sharex=True, squeeze=False)
    return figure, [row[0] for row in axes]


def legend(figure: Figure, **look: Any) -> None:
    """A legend above the panels, in as few rows as its longest label allows."""
    labels = list(dict.fromkeys(label for axes in figure.axes for label in axes.get_legend_handles_labels()[1]))
    if labels:
        most = max(1, _ACROSS // (max(map(len, labels)) + 5))
        columns = math.ceil(len(labels) / math.ceil(len(labels) / most))
        figure.legend(loc="outside upper left", ncols=columns, columnspacing=1.1, **look)


def shown(text: str, most: int = _LONGEST) -> str:
    """Text from elsewhere as a label: on one line, and no longer than fits."""
    line = " ".join(printable(text).split())
    return line if len(line) <= most else f"{line[: most - 1]}\N{HORIZONTAL ELLIPSIS}"


def to_svg(chart: Chart) -> str:
    """The chart as an SVG document that is the same whenever it is drawn; text stays text."""
    out = io.StringIO()
    with style():
        nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
        chart.draw().savefig(out, format="svg", metadata=nothing)
    return out.getvalue()


def to_png(chart: Chart, path: Path) -> None:
    """The chart as a picture on white."""
    with style():
        chart.draw().savefig(path, format="png", dpi=_DPI, facecolor=LIGHT["surface"], metadata={"Software": None})
