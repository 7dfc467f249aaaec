"""A comparison as Markdown, for a pull request or a job's summary."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from eaglelab.compare.comparison import Compared, Comparison
from eaglelab.compare.difference import Difference
from eaglelab.compare.explained import Explanation
from eaglelab.compare.metrics import METRICS, signed
from eaglelab.compare.verdicts import Verdict
from eaglelab.compare.words import interval_words, sentences
from eaglelab.printable import printable

__all__ = ["markdown"]

# What begins markup in GitHub's Markdown, wherever it stands.
_MARKUP = re.compile(r"([\\`*_{}\[\]<>|~#@&])")
_SHOWN = ("tok_s", "accept_length", "ttft_ms", "itl_ms", "total_ms", "draft_ms", "verify_ms", "extend_ms", "other_ms")


def markdown(judged: Sequence[tuple[Comparison, Sequence[Verdict]]], why: Sequence[Sequence[Explanation]]) -> str:
    """A section a candidate: sentences, what may explain the difference, the gates, a row for each setting and figure,
    what changed. `why`: the explanations of each comparison.
    """
    sections = (_section(*each, explained) for each, explained in zip(judged, why, strict=True))
    return "\n".join(line for section in sections for line in section)


def _section(comparison: Comparison, verdicts: Sequence[Verdict], why: Sequence[Explanation]) -> Iterator[str]:
    a, b = comparison.reference, comparison.candidate
    yield f"## {_text(b.label)} against {_text(a.label)}"
    yield ""
    yield from (f"- {side.label}: {_text(side.names)}" for side in (a, b))
    yield ""
    yield from (f"{_text(sentence)}\n" for sentence in sentences(comparison))
    if why:
        cells = [
            [
                each.words(comparison),
                f"{each.diagnosis.code}, {each.diagnosis.certainty}",
                "; ".join(each.diagnosis.evidence),
            ]
            for each in why
        ]
        yield from _table(["on the difference", "rule", "evidence"], [list(map(_text, row)) for row in cells])
    if verdicts:
        rows = [[verdict.name, "held" if verdict.held else "**missed**", verdict.what] for verdict in verdicts]
        yield from _table(["gate", "verdict", "difference"], [[_text(r[0]), r[1], _text(r[2])] for r in rows])
    if comparison.settings:
        header = ["setting", "figure", a.label, b.label, "difference", "%", "95 % interval of the %", "over"]
        yield from _table(header, [row for each in comparison.settings for row in _rows(each)])
    if comparison.changes:
        rows = [[change.what, change.reference, change.candidate] for change in comparison.changes]
        yield from _table(["changed", a.label, b.label], [[_text(cell) for cell in row] for row in rows])
    if comparison.simulated:
        yield f"All figures: {_text(comparison.simulated)}.\n"


def _rows(compared: Compared) -> Iterator[list[str]]:
    for name in _SHOWN:
        if name in compared.differences:
            yield [_text(compared.place.words), *_figures(name, compared.differences[name])]


def _figures(name: str, difference: Difference) -> list[str]:
    metric, percent = METRICS[name], difference.percent
    tie = " (tie)" if difference.verdict == "tie" else ""
    return [
        f"{metric.words}{f' ({metric.unit})' if metric.unit not in ('', metric.words) else ''}",
        f"{difference.reference:.{metric.decimals}f}",
        f"{difference.candidate:.{metric.decimals}f}",
        signed(difference.absolute.value, metric.decimals),
        "-" if percent is None else f"{signed(percent.value, 2)}{tie}",
        "-" if percent is None or percent.ci95 is None else interval_words(percent, 2),
        difference.how,
    ]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield f"|{'|'.join(' --- ' for _ in header)}|"
    yield from (f"| {' | '.join(row)} |" for row in rows)
    yield ""


def _text(text: str) -> str:
    """As plain text in one cell of one line."""
    return _MARKUP.sub(r"\\\1", " ".join(printable(text).split()))
