"""Commands that only look: doctor, status, logs. And stop, which ends our server and nothing else."""

from __future__ import annotations

import os
from typing import Any

from rich.table import Table

from eaglelab.actions.doctor import DOCTOR
from eaglelab.actions.evidence import fetch
from eaglelab.actions.serve import STOP, StopArguments
from eaglelab.commands.hosts import Selection, select_hosts
from eaglelab.commands.outcome import Outcome
from eaglelab.commands.play import Request, run_on_hosts
from eaglelab.context import Context, LogMark
from eaglelab.errors import InputError
from eaglelab.host import Host
from eaglelab.say import Say

__all__ = ["doctor", "logs", "status", "stop"]


def _select(request: Request) -> Selection:
    return select_hosts(request.project, request.host, request.inventory)


def doctor(request: Request, outcome: Outcome, say: Say) -> None:
    """Reads what the host is and checks it. What the inventory does not say yet is named before anything is contacted."""
    selection = _select(request)
    for host in selection.hosts:
        _require_all(host)

    def work(context: Context) -> dict[str, Any]:
        found = DOCTOR.run(context, DOCTOR.args())
        context.say.line("  nothing speaks against a run", style="green")
        return found

    run_on_hosts(request, selection, outcome, say, work)


def _require_all(host: Host) -> None:
    missing = host.unset()
    host.api_key(os.environ)
    if len(missing) < 2:
        host.require()
        return
    try:
        host.require()
    except InputError as first:
        raise InputError(
            f"not set for host '{host.name}': {', '.join(missing)}",
            where=first.where,
            hint="write these values into inventory.yaml",
        ) from first


def status(request: Request, outcome: Outcome, say: Say) -> None:
    """Which files are patched, which server of ours runs, and what the host remembers."""
    selection = _select(request)

    def work(context: Context) -> dict[str, Any]:
        found = context.client.call("status")
        context.say.show(_status_table(context.host.name, found))
        return found

    run_on_hosts(request, selection, outcome, say, work)


def _status_table(name: str, found: dict[str, Any]) -> Table:
    table = Table(title=name, title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0))
    record = found["record"]
    if found["alive"]:
        steps = "no speculation" if record["steps"] is None else f"{record['steps']} steps"
        table.add_row(
            "server", f"pid {record['pid']}, {steps}, probe {'on' if record['profile'] else 'off'}, run {record['run']}"
        )
        table.add_row("log", record["log"])
    elif record:
        table.add_row("server", f"ended: {found['exit'] or 'nobody saw how'}; run {record['run']}")
    else:
        table.add_row("server", "none of ours")
    for item in found["states"]:
        table.add_row(item["state"], item["path"])
    if not found["states"]:
        table.add_row("files", "all original")
    return table


def stop(request: Request, outcome: Outcome, say: Say) -> None:
    """Ends the server that eaglelab started; a patch stays in place."""
    perform = STOP.preview if request.check and STOP.preview else STOP.run

    def work(context: Context) -> dict[str, Any]:
        return perform(context, StopArguments())

    run_on_hosts(request, _select(request), outcome, say, work)


def logs(request: Request, lines: int, outcome: Outcome, say: Say) -> None:
    """Brings the server's log home, from the start of the running (or last) server on, and shows its end."""

    def work(context: Context) -> dict[str, Any]:
        record = context.client.call("status")["record"]
        mark = LogMark(record["log"], record["log_offset"]) if record else LogMark(context.host.log, 0)
        size = fetch(context, mark, "server.log")
        path = context.bundle.path("server.log")
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:] if lines else []:
            context.say.line(line)
        return {"log": str(path), "bytes": size}

    run_on_hosts(request, _select(request), outcome, say, work)
