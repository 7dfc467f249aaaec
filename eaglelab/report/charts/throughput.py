"""Throughput against the step count: what was measured, what the model says, and what there is without speculation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eaglelab.report.cells import interval, tok_s
from eaglelab.report.charts.canvas import legend, new_figure, shown
from eaglelab.report.charts.chart import Chart, Table
from eaglelab.report.charts.palette import LIGHT, series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["MARKERS", "PLAIN", "Curve", "Rate", "throughput_chart"]

MARKERS = "osD^vPX*"
PLAIN = "no speculation"


@dataclass(frozen=True)
class Rate:
    """Tokens per second at a step count, with its 95 % interval where there is one."""

    steps: int
    value: float
    ci95: tuple[float, float] | None = None


@dataclass(frozen=True)
class Curve:
    """What belongs together: the rates of one variation, or a prediction."""

    label: str
    rates: Sequence[Rate]


def throughput_chart(
    name: str, title: str, measured: Sequence[Curve], predicted: Curve | None, baseline: Rate | None, unit: str
) -> Chart:
    """One chart. `baseline` has no step count of its own: its is not looked at. `unit` says whose tokens per second."""
    every = [(curve, rate) for curve in (*measured, *([predicted] if predicted else ())) for rate in curve.rates]
    rows = [[curve.label, str(rate.steps), tok_s(rate.value), interval(rate.ci95, 1)] for curve, rate in every]
    if baseline:
        rows.insert(0, ["baseline", "none", tok_s(baseline.value), interval(baseline.ci95, 1)])
    table = Table(("curve", "steps", "tok/s", "95 % interval"), rows)
    says = _says(measured, predicted, baseline)
    return Chart(name, title, says, table, lambda: _draw(measured, predicted, baseline, unit))


def _says(measured: Sequence[Curve], predicted: Curve | None, baseline: Rate | None) -> str:
    told = [curve for curve in (*measured, *([predicted] if predicted else ())) if curve.rates]
    parts = []
    for curve in told[:3]:
        best = max(curve.rates, key=lambda rate: rate.value)
        parts.append(f"{curve.label}: highest at {best.steps} steps with {best.value:.1f} tok/s")
    if baseline:
        parts.append(f"without speculation {baseline.value:.1f} tok/s")
    return f"Tokens per second against the number of draft steps. {'; '.join(parts)}."


def _draw(measured: Sequence[Curve], predicted: Curve | None, baseline: Rate | None, unit: str) -> Figure:
    figure, (axes,) = new_figure(3.3)
    if baseline is not None:
        axes.axhline(baseline.value, color=LIGHT["other"], linewidth=1.4, linestyle=(0, (5, 3)), label=PLAIN)
        if baseline.ci95 is not None:
            axes.axhspan(*baseline.ci95, color=LIGHT["other"], alpha=0.15, linewidth=0)
    if predicted is not None and predicted.rates:
        _prediction(axes, predicted)
    for index, curve in enumerate(measured):
        _measured(axes, index, curve)
    steps = sorted({rate.steps for curve in measured for rate in curve.rates} | _of(predicted, measured))
    axes.set_xticks(steps, [str(count) for count in steps])
    axes.set_xlim(min(steps) - 0.5, max(steps) + 0.5)
    axes.set_ylim(0, 1.08 * axes.get_ylim()[1])
    axes.set_xlabel("draft steps (K)")
    axes.set_ylabel(unit)
    axes.grid(visible=True, axis="y")
    legend(figure, handlelength=2)
    return figure


def _of(predicted: Curve | None, measured: Sequence[Curve]) -> set[int]:
    """Predicted step counts get ticks of their own only where nothing was measured."""
    return set() if predicted is None or measured else {rate.steps for rate in predicted.rates}


def _prediction(axes: Axes, curve: Curve) -> None:
    steps = [rate.steps for rate in curve.rates]
    colour = LIGHT["ink"]
    axes.plot(
        steps, [rate.value for rate in curve.rates], color=colour, linewidth=1.2, linestyle=":", label=curve.label
    )
    ends = [rate.ci95 or (rate.value, rate.value) for rate in curve.rates]
    axes.fill_between(steps, [low for low, _ in ends], [high for _, high in ends], color=colour, alpha=0.1, linewidth=0)


def _measured(axes: Axes, index: int, curve: Curve) -> None:
    values = [rate.value for rate in curve.rates]
    ends = [rate.ci95 or (rate.value, rate.value) for rate in curve.rates]
    below = [value - low for value, (low, _) in zip(values, ends, strict=True)]
    above = [high - value for value, (_, high) in zip(values, ends, strict=True)]
    axes.errorbar(
        [rate.steps for rate in curve.rates],
        values,
        yerr=[below, above],
        color=series(index),
        marker=MARKERS[index % len(MARKERS)],
        capsize=3,
        elinewidth=1.2,
        label=shown(curve.label),
    )
    if index == 0:
        best = max(curve.rates, key=lambda rate: rate.value)
        text = f"{best.value:.1f}"
        place = {"xytext": (0, 9), "textcoords": "offset points", "ha": "center", "fontweight": "bold"}
        axes.annotate(text, (best.steps, best.value), **place)  # type: ignore[arg-type]
