"""What the model says in the terminal: a row a step count, the levers as bars, then the sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from eaglelab.model.explained import Explained, Lever, Point
from eaglelab.printable import printable
from eaglelab.report.cells import MISSING, Bar, figure, note, plain_table, tok_s
from eaglelab.report.folding import Column, Folding

__all__ = ["model_view"]

_NAME_WIDTH = 38


def model_view(explained: Sequence[Explained]) -> RenderableType:
    """One part for each batch size (and variation)."""
    parts: list[RenderableType] = []
    for index, found in enumerate(explained):
        parts += [""] if index else []
        parts += _one(found)
    if explained:
        parts += ["", *_legend(explained)]
    return Group(*parts)


def _one(found: Explained) -> Iterator[RenderableType]:
    requests = "one request at a time" if found.batch == 1 else f"{found.batch} requests at a time"
    variation = f", {printable(found.variation)}" if found.variation else ""
    yield Text(f"model, {requests}{variation}:", style="bold")
    yield _points(found)
    if found.levers:
        yield ""
        yield _levers(found.levers)
    yield ""
    yield from (note(printable(sentence)) for sentence in found.sentences)
    yield from (note(printable(f"note: {sentence}")) for sentence in found.notes)


def _points(found: Explained) -> RenderableType:
    points = found.points
    columns = [
        Column("measured\ntok/s", [tok_s(point.measured_tok_s) for point in points]),
        Column("predicted\ntok/s", [tok_s(point.predicted_tok_s) for point in points]),
        Column("band", [_band(point) for point in points]),
        Column(
            "accept\nlen", [figure(_first(point.measured_accept_length, point.accept_length), 3) for point in points]
        ),
        Column("break\neven", [figure(point.break_even, 2) for point in points]),
        Column("cycle\nms", [figure(_first(point.measured_cycle_ms, point.cycle_ms), 2) for point in points]),
        Column("step\n%", [_signed(point.marginal) for point in points]),
    ]
    return Folding([Column("steps", [_steps(point) for point in points])], columns)


def _steps(point: Point) -> str:
    name = "?" if point.steps is None else str(point.steps)
    return f"{name}{' *' if point.rival else '  '}{'~' if point.extrapolated else ' '}"


def _band(point: Point) -> str:
    return MISSING if point.low is None or point.high is None else f"{point.low:.0f} to {point.high:.0f}"


def _first(measured: float | None, predicted: float | None) -> float | None:
    return predicted if measured is None else measured


def _signed(share: float | None) -> str:
    return MISSING if share is None else f"{100 * share:+.1f}"


def _levers(levers: Sequence[Lever]) -> Table:
    table = plain_table("what if", "tok/s", "% more", "at steps", "", text=1)
    table.columns[-1].justify = "left"
    table.columns[0].max_width = _NAME_WIDTH
    most = max(lever.gain for lever in levers)
    for lever in levers:
        sign = ">=" if lever.bound == "at least" else "<="
        table.add_row(
            Text(lever.name),
            f"{sign} {lever.tok_s:.1f}",
            f"{100 * lever.gain:.1f}",
            MISSING if lever.steps is None else str(lever.steps),
            Bar(lever.gain / most if most else 0.0),
        )
    return table


def _legend(explained: Sequence[Explained]) -> Iterator[RenderableType]:
    points = [point for found in explained for point in found.points]
    yield note("tok/s: of all requests together; accept len and cycle: measured where they were")
    yield note("step: gain of this step over one less; break even: accept length that equals the baseline")
    if any(point.rival for point in points):
        yield note("*: may be the fastest, as far as intervals and bands tell")
    if any(point.extrapolated for point in points):
        yield note("~: outside of what was measured")
