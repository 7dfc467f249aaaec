"""The runs under logs/: listed newest first with their headline, over time, or exported. No host is contacted."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from eaglelab.commands.outcome import Outcome
from eaglelab.errors import InputError
from eaglelab.report.runs_view import runs_table, trend_table
from eaglelab.runs.export import check_format
from eaglelab.runs.export import export as write
from eaglelab.runs.history import Asked, trends
from eaglelab.runs.index import list_rows
from eaglelab.say import Say

__all__ = ["list_runs", "since"]

_AGO = re.compile(r"(\d{1,6})([hdw])")
_SECONDS = {"h": 3600, "d": 86400, "w": 7 * 86400}


def since(text: str, clock: Callable[[], float] = time.time) -> float:
    """Unix seconds of `7d`, `12h`, `2w` (ago) or of a date, `2026-11-23` or `2026-11-23T18:00`, local time. Raises InputError."""
    match = _AGO.fullmatch(text.strip())
    if match:
        return clock() - int(match[1]) * _SECONDS[match[2]]
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise InputError(f"'{text}' is no time", where="--since", hint="--since 7d, 12h, 2w or 2026-11-23") from error


def list_runs(
    logs: Path,
    asked: Asked,
    most: int | None,
    outcome: Outcome,
    say: Say,
    *,
    trend: bool = False,
    file: str | None = None,
) -> None:
    """Shows the runs that are `asked` for, the newest `most` of them: as a list, each setting over time (`trend`), or as a
    `file` of rows; all of them where `most` is None."""
    if file is not None:
        check_format(file)
    listing = list_rows(logs)
    for name in listing.damaged:
        say.line(f"left out: {logs / name / 'request.json'} is damaged", style="yellow")
    rows = [row for row in listing.rows if asked.passes(row)][:most]
    outcome.more["runs"] = [row.to_json() for row in rows]
    if not rows:
        host = f" on {asked.host}" if asked.host else ""
        say.line(f"no {'such ' if asked != Asked() else ''}runs{host} in {logs}")
        return
    if trend:
        found = trends(rows)
        outcome.more["trend"] = [each.to_json() for each in found]
        say.show(trend_table(found) if found else "none of them measured tok/s")
    elif file is None:
        say.show(runs_table(rows))
    if file is not None:
        say.line(f"written: {file}, {write(rows, file)} rows of {len(rows)} runs")
