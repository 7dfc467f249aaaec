"""The runs under logs/, newest first, each with its headline. No host is contacted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.text import Text

from eaglelab.commands.outcome import Outcome
from eaglelab.commands.past import PastRun, all_runs
from eaglelab.printable import printable
from eaglelab.report.cells import left, plain_table
from eaglelab.say import Say

__all__ = ["headline", "list_runs"]


def list_runs(logs: Path, host: str | None, most: int, outcome: Outcome, say: Say) -> None:
    """Shows the newest `most` runs (of `host`, if one is named) that can have figures."""
    rows = [row for run in all_runs(logs, say) for row in _rows(run) if host in (None, row["host"])][:most]
    outcome.more["runs"] = rows
    if not rows:
        say.line(f"no runs{f' on {host}' if host else ''} in {logs}")
        return
    table = left(plain_table("run", "host", "headline", text=3), 2)
    for row in rows:
        table.add_row(row["run"], row["host"], Text(printable(row["headline"])))
    say.show(table)


def _rows(run: PastRun) -> Iterator[dict[str, Any]]:
    for host in run.hosts:
        result = run.result(host)
        stopped = run.stopped_at(host)
        unfinished = f"stopped at '{stopped}'; {run.command_line()} goes on with it" if stopped else "nothing was begun"
        yield {
            "run": run.run,
            "command": run.command,
            "host": host,
            "finished": result is not None,
            "bundle": str(run.folder_of(host)),
            "headline": unfinished if result is None else headline(result),
        }


def headline(result: Mapping[str, Any]) -> str:
    """What a run found, in a line; `result` is its result.json."""
    rankings = result.get("rankings") or []
    if rankings:
        return " ".join(
            f"[{each['batch']}] {each['sentences'][0]}" if len(rankings) > 1 else each["sentences"][0]
            for each in rankings
        )
    if result.get("measurements"):
        return "; ".join(_measured(each) for each in result["measurements"] if not each["profiled"])
    settings = (result.get("profile") or {}).get("settings") or []
    if settings:
        return "; ".join(_profiled(each) for each in settings[:3])
    return "done"


def _measured(found: Mapping[str, Any]) -> str:
    summary = found["summary"]
    steps = "no speculation" if found["steps"] is None else f"{found['steps']} steps"
    return (
        f"{steps}: {summary['tok_s_in_all']:.1f} tok/s at concurrency {found['batch']}"
        if summary["tok_s_in_all"]
        else steps
    )


def _profiled(setting: Mapping[str, Any]) -> str:
    rate, accepted = setting.get("tok_s") or {}, setting.get("acceptance") or {}
    limit = setting.get("limit") or {}
    parts = [
        f"{rate['in_all']:.1f} tok/s" if rate.get("in_all") else "",
        f"accept length {accepted['accept_length']:.2f}" if accepted.get("accept_length") else "",
        f"{limit['phase']} limits" if limit.get("phase") else "",
    ]
    return f"{setting['steps']} steps, batch {setting['batch_size']}: " + ", ".join(filter(None, parts))
