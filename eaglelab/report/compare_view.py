"""A comparison in the terminal: sentences, a row a setting, what changed, the gates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from eaglelab.compare.comparison import Compared, Comparison
from eaglelab.compare.difference import Change, Difference
from eaglelab.compare.explained import Explanation
from eaglelab.compare.metrics import METRICS, PHASE_METRICS, Metric, signed
from eaglelab.compare.verdicts import Verdict
from eaglelab.compare.words import interval_words, sentences
from eaglelab.printable import printable
from eaglelab.report.cells import MISSING, figure, note
from eaglelab.report.diagnosis_view import diagnosis_lines
from eaglelab.report.folding import Column, Folding

__all__ = ["comparison_view"]

_REQUESTS = ("tok_s", "accept_length", "ttft_ms", "itl_ms")
_CYCLES = ("total_ms", *PHASE_METRICS)
_BOTH = ("tok_s", "accept_length", "total_ms")
"""Shown for both sides; of the others the reference's and the difference."""
_SHORT = {"accept_length": "acc len"}
_VARIATION_WIDTH = 25
_MOST_CHANGES = 20


def comparison_view(
    comparison: Comparison, verdicts: Sequence[Verdict], why: Sequence[Explanation] = ()
) -> RenderableType:
    """All of it. `why`: what may explain the differences."""
    first, *others = sentences(comparison)
    parts: list[RenderableType] = [Text(printable(first), style="bold"), ""]
    parts += [note(printable(f"{side.label}: {side.names}")) for side in (comparison.reference, comparison.candidate)]
    parts += [
        Padding(Text(printable(sentence), style="yellow" if sentence in comparison.warnings else ""), (0, 0, 0, 2))
        for sentence in others
    ]
    for names in (_REQUESTS, _CYCLES):
        rows = [each for each in comparison.settings if any(name in each.differences for name in names)]
        if rows:
            parts += ["", _table(comparison, rows, names)]
    parts += [*_legend(comparison), *_changes(comparison), *_why(comparison, why), *_gates(verdicts)]
    return Group(*parts)


def _table(comparison: Comparison, rows: Sequence[Compared], names: Sequence[str]) -> RenderableType:
    keys = [Column("steps", ["none" if row.place.key.steps is None else str(row.place.key.steps) for row in rows])]
    if any(row.place.key.variation for row in rows):
        keys.append(Column("with", [printable(row.place.key.variation) for row in rows], text=_VARIATION_WIDTH))
    keys.append(Column("conc", [str(row.place.batch) for row in rows]))
    columns = []
    for name in names:
        found = [row.differences.get(name) for row in rows]
        if any(found):
            columns += _columns(METRICS[name], found, (comparison.reference.label, comparison.candidate.label))
    return Folding(keys, columns)


def _columns(metric: Metric, found: Sequence[Difference | None], labels: tuple[str, str]) -> list[Column]:
    """The reference's figure, the candidate's too where that is what is looked for, then the difference with its interval:
    in percent for tok/s, in the figure's own unit for the others."""
    decimals, in_percent = metric.decimals, metric.name == "tok_s"
    words = _SHORT.get(metric.name, metric.words)
    unit = f" {metric.unit}" if metric.unit not in ("", metric.words) else ""
    values = {
        labels[0]: [None if each is None else each.reference for each in found],
        labels[1]: [None if each is None else each.candidate for each in found],
    }
    changes = [None if each is None else each.percent if in_percent else each.absolute for each in found]
    shown = 1 if in_percent else decimals
    return [
        *(
            Column(f"{words}{unit}\n{label}", [figure(value, decimals) for value in values[label]])
            for label in (labels if metric.name in _BOTH else labels[:1])
        ),
        Column(
            f"{words}\n{'diff %' if in_percent else 'diff'}",
            [MISSING if each is None else signed(each.value, shown) for each in changes],
        ),
        Column("\n95 % interval", [_interval(*pair, shown) for pair in zip(found, changes, strict=True)]),
    ]


def _interval(difference: Difference | None, change: Change | None, decimals: int) -> str:
    if difference is None or change is None or change.ci95 is None:
        return MISSING
    return f"{interval_words(change, decimals)}{' =' if difference.verdict == 'tie' else '  '}"


def _legend(comparison: Comparison) -> Iterator[RenderableType]:
    if not comparison.settings:
        return
    over = dict.fromkeys(each.how for row in comparison.settings for each in row.differences.values())
    yield ""
    yield note(f"=: a tie; diff: {comparison.candidate.label} - {comparison.reference.label}; acc len: accept length")
    yield note(f"intervals are over {_listed(list(over))}")
    yield note("phases: mean GPU time of a cycle, requests that the probe measured; all else: requests it left alone")
    if comparison.simulated:
        yield note(printable(f"all figures: {comparison.simulated}"))


def _listed(kinds: Sequence[str]) -> str:
    """The cycles of every setting are another number, so that only the unit is named where there are many."""
    units = dict.fromkeys(kind.partition(" ")[2] for kind in kinds)
    return ", ".join(kinds if len(kinds) <= len(units) else units)


def _changes(comparison: Comparison) -> Iterator[RenderableType]:
    if not comparison.changes:
        return
    yield ""
    yield Text("changed:", style="bold")
    for change in comparison.changes[:_MOST_CHANGES]:
        text = f"{change.what}: {change.reference} -> {change.candidate}"
        yield Padding(Text(printable(text), style="yellow" if change.unlike else ""), (0, 0, 0, 2))
    more = len(comparison.changes) - _MOST_CHANGES
    if more > 0:
        yield note(f"and {more} more: --json has them all")


def _why(comparison: Comparison, why: Sequence[Explanation]) -> Iterator[RenderableType]:
    if not why:
        return
    yield ""
    yield Text("on the difference:", style="bold")
    for each in why:
        yield diagnosis_lines(replace(each.diagnosis, sentence=each.words(comparison)))


def _gates(verdicts: Sequence[Verdict]) -> Iterator[RenderableType]:
    if not verdicts:
        return
    yield ""
    yield Text("gates:", style="bold")
    for verdict in verdicts:
        word, style = ("held", "green") if verdict.held else ("missed", "bold red")
        yield Padding(Text(printable(f"{word:6s}  {verdict.name}: {verdict.what}"), style=style), (0, 0, 0, 2))
