"""Diagnoses and doctor's checks as text: what is wrong, what says so, what to try."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from eaglelab.diagnosis import Diagnosis
from eaglelab.diagnosis.checks import Checked
from eaglelab.printable import printable

__all__ = ["checks_table", "diagnosis_lines", "diagnosis_view"]

_STYLES = {"alarm": "bold red", "warning": "yellow", "note": "cyan", "ok": "green", "not known": "dim"}
_TOLD = ("alarm", "warning")
_MOST_SETTINGS = 4
_INDENT = (0, 0, 0, 4)


def diagnosis_view(found: Sequence[Diagnosis]) -> RenderableType:
    """Each diagnosis, the gravest first: its sentence, the figures behind it and what to try. A note is its sentence only."""
    if not found:
        return Text("Diagnosis: no rule has anything to say of these figures.")
    return Group(Text("Diagnosis", style="bold"), *(line for each in found for line in _lines(each)))


def diagnosis_lines(each: Diagnosis) -> RenderableType:
    """One of them."""
    return Group(*_lines(each))


def checks_table(checks: Sequence[Checked]) -> RenderableType:
    """One row a check: its state and what was found; below, for what is not in order, the figures and what to try."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("check", "state", "what was found"):
        table.add_column(name, no_wrap=name != "what was found")
    for check in checks:
        table.add_row(check.title, Text(check.state, style=_STYLES[check.state]), Text(printable(check.sentence)))
    return Group(table, *(line for check in checks if check.state in _TOLD for line in _details(check)))


def _details(check: Checked) -> Iterator[RenderableType]:
    head = Text(f"{check.state}: ", style=_STYLES[check.state])
    yield head.append(f"{check.title} ({check.code}, {check.certainty})", style="default")
    yield from (_more(f"- {line}") for line in check.evidence)
    yield from (_more(f"try: {line}", style="") for line in check.try_next)


def _lines(each: Diagnosis) -> Iterator[RenderableType]:
    head = Text(f"{each.severity}: ", style=_STYLES[each.severity])
    yield head.append(printable(each.sentence), style="default")
    yield _more(f"{each.code}, {each.certainty}{_places(each.at)}")
    if each.severity not in _TOLD:
        return
    for line in each.evidence:
        yield _more(f"- {line}")
    for line in each.try_next:
        yield _more(f"try: {line}", style="")


def _more(text: str, style: str = "dim") -> Padding:
    return Padding(Text(printable(text), style=style), _INDENT)


def _places(at: Sequence[str]) -> str:
    if not at:
        return ""
    left = len(at) - _MOST_SETTINGS
    shown = "; ".join(at[:_MOST_SETTINGS])
    return f", at {shown}" + (f" and {left} more" if left > 0 else "")
