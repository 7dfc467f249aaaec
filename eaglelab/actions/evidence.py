"""prove, fetch_logs and report: the evidence brought home, and what it says."""

from __future__ import annotations

import glob
import re
from functools import partial
from pathlib import PurePosixPath
from typing import Any

from eaglelab.actions.base import Action, Arguments, NoArguments
from eaglelab.actions.pull import fetch, lines_from
from eaglelab.context import Context, LogMark
from eaglelab.errors import HostError
from eaglelab.pieces import lines_of
from eaglelab.profile.logfile import record_lines
from eaglelab.profile.records import read_records
from eaglelab.profile.summary import summarise
from eaglelab.report.terminal import profile_table

__all__ = ["FETCH_LOGS", "PROVE", "REPORT", "fetch"]

_PROBE_OFF = re.compile(rb"EAGLE3_PROF probe off: (.*)")


def _seen(context: Context) -> set[tuple[str, int]]:
    """Worker class and rank of each of the patch's lines in the log of the server at hand.

    Raises HostError where the probe says that it is off, and never ran.
    """
    mark = context.log
    status = context.client.call("status")
    record = status["record"] or {}
    # The line stands once in a server's log, at its first decode cycle: before this run, if the server is older.
    if record.get("log") == mark.path:
        mark = LogMark.of_server(record)
    ran = re.compile(context.spec.canary)
    found: set[tuple[str, int]] = set()
    for line in lines_from(context, mark):
        if not found and (off := _PROBE_OFF.search(line)):
            raise HostError(
                f"the probe switched itself off before it timed anything: {off[1].decode(errors='replace').strip()}",
                where=context.host.name,
                hint="its variables are in docs/probe.md; the log is in the bundle",
            )
        found |= {(match["class"], int(match["rank"])) for match in ran.finditer(line.decode(errors="replace"))}
    return found


def _prove(context: Context, _: NoArguments) -> dict[str, Any]:
    found = _seen(context)
    if not found:
        raise HostError(
            "the patched code never ran: its line is not in the server's log after the first request",
            where=context.host.name,
            hint="another worker class or another SGLang installation served it; the log is in the bundle",
        )
    return _say_seen(context, found)


def _say_seen(context: Context, found: set[tuple[str, int]]) -> dict[str, Any]:
    classes, ranks = sorted({name for name, _ in found}), sorted({rank for _, rank in found})
    here = " of this node" if context.node else ""
    context.say.line(f"  the patched code ran in {', '.join(classes)} on {len(ranks)} rank(s){here}")
    return {"classes": classes, "ranks": ranks}


def _prove_here(context: Context, _: NoArguments) -> None:
    """On a node that serves no requests. A patch of one's own may speak on rank 0 only, so silence proves nothing."""
    found = _seen(context)
    if found:
        _say_seen(context, found)
    else:
        context.say.line("  its line is not in the log of this node", style="yellow")


class FetchArguments(Arguments):
    """`folder`: below the bundle; empty for the bundle itself."""

    folder: str = ""


def _fetch_logs(context: Context, args: FetchArguments) -> dict[str, Any]:
    mark, base = context.log, PurePosixPath(args.folder)
    fetched = {str(base / "server.log"): fetch(context, mark, str(base / "server.log"))}
    folder = context.found.probe_folder
    if folder:
        marks = {item.path: item for item in context.found.probe}
        for path in context.client.call("list", pattern=f"{glob.escape(folder)}/*.jsonl")["paths"]:
            name = str(base / "probe" / PurePosixPath(path).name)
            fetched[name] = fetch(context, marks.get(path, LogMark(path, 0)), name)
    records = len(fetched) - 1
    files = f"server.log and {records} file{'' if records == 1 else 's'} of records"
    context.say.line(f"  {files}, {sum(fetched.values()) / 1e3:.0f} kB")
    return {"files": fetched}


class ReportArguments(Arguments):
    """`folder`: where `fetch_logs` put the records; profile.json goes there too. `show`: every setting's table.

    Of a server of several nodes the records of all are in it.
    """

    folder: str = ""
    show: bool = True


def _report(context: Context, args: ReportArguments) -> dict[str, Any]:
    own = context.bundle.folder
    folders = context.node.folders(own) if context.node else (own,)
    files = [file for folder in folders for file in sorted((folder / args.folder).glob("probe/*.jsonl"))]
    profile = summarise(read_records(record_lines(files)), simulated=context.simulated)
    if not any(setting.cycles for setting in profile.settings):
        raise HostError(
            f"the probe wrote no timed cycle{_why_off(context, args.folder)}",
            where=context.host.name,
            hint="see server.log and probe/ in the bundle",
        )
    document = profile.to_json()
    context.bundle.json(str(PurePosixPath(args.folder) / "profile.json"), document)
    if args.show:
        context.say.show(profile_table(profile))
    return document


def _why_off(context: Context, folder: str) -> str:
    """A probe that fails switches itself off and says why, once, in the log."""
    log = context.bundle.folder / folder / "server.log"
    if not log.exists():
        return ""
    with log.open("rb") as file:
        lines = lines_of(iter(partial(file.read, 1 << 16), b""))
        found = next(filter(None, map(_PROBE_OFF.search, lines)), None)
    return f": it switched itself off ({found[1].decode(errors='replace').strip()})" if found else ""


def _would(what: str) -> Any:
    def preview(context: Context, _: Any) -> dict[str, Any]:
        context.say.line(f"  would {what}")
        return {}

    return preview


PROVE = Action(
    "prove",
    NoArguments,
    "see in the log that the patched code ran",
    _prove,
    _would("look in the log for the line of the patched code"),
    nodes="first",
    follow=_prove_here,
)
FETCH_LOGS = Action(
    "fetch_logs",
    FetchArguments,
    "bring home the server's log and the probe's records",
    _fetch_logs,
    _would("fetch the server's log and the probe's records"),
)
REPORT = Action(
    "report", ReportArguments, "make the profile and show it", _report, _would("make the profile"), nodes="first"
)
