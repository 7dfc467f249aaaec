"""The results as a table: kind of fault, tried, survived, time to a clear end."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from play import Result

__all__ = ["headline", "loss", "losses", "table"]


def table(results: Sequence[Result]) -> str:
    rows = [("kind of fault", "tried", "survived", "skipped", "median s", "worst s")]
    for kind in dict.fromkeys(result.point.kind for result in results):
        of_kind = [result for result in results if result.point.kind == kind]
        played = [result for result in of_kind if not result.skipped]
        survived = [result for result in played if not result.wrong]
        seconds = [result.seconds for result in played]
        times = (f"{statistics.median(seconds):.1f}", f"{max(seconds):.1f}") if seconds else ("", "")
        rows.append((kind, str(len(played)), str(len(survived)), str(len(of_kind) - len(played)), *times))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if not at else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def loss(result: Result) -> str:
    """What is wrong with a point that was lost, and the command that plays it again."""
    wrong = "".join(f"\n    {what}" for what in result.wrong)
    said = "".join(f"\n    | {line}" for line in result.said.splitlines()[-12:])
    return f"LOST {result.point.name}  (exit {result.code}){wrong}{said}\n    again: make faults FAULTS='--point {result.point.name}'"


def losses(results: Sequence[Result]) -> str:
    """What was lost and what was skipped."""
    lines = [loss(result) for result in results if result.wrong]
    for reason in dict.fromkeys(result.skipped for result in results if result.skipped):
        names = [result.point.name for result in results if result.skipped == reason]
        lines.append(f"skipped, {reason}: {', '.join(names)}")
    return "\n".join(lines)


def headline(results: Sequence[Result]) -> str:
    played = [result for result in results if not result.skipped]
    return f"{len(played)} fault points, {sum(bool(result.wrong) for result in played)} lost"
