"""Commands that only look: doctor, status, logs. And stop, which ends our server and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

from eaglelab.actions.doctor import DOCTOR
from eaglelab.actions.ended import bring_home, ended_lines, ended_tasks, log_of
from eaglelab.actions.equal import identity
from eaglelab.actions.evidence import fetch
from eaglelab.actions.owner import started_by
from eaglelab.actions.serve import STOP, StopArguments, end_of
from eaglelab.actions.tasks import task_lines, tasks_of
from eaglelab.actions.undo import NOT_SEEN, say_by_folder, unrecorded
from eaglelab.commands.hosts import Selection, select_hosts
from eaglelab.commands.last_lines import last_lines
from eaglelab.commands.on_hosts import run_on_hosts
from eaglelab.commands.outcome import Outcome
from eaglelab.commands.past import newest_of
from eaglelab.commands.play import require_all
from eaglelab.commands.request import Request
from eaglelab.context import Context, LogMark
from eaglelab.diagnosis import diagnose
from eaglelab.diagnosis.checks import Checked, checked
from eaglelab.diagnosis.of_host import facts_of_host
from eaglelab.errors import HostError
from eaglelab.remote.hints import who_holds
from eaglelab.report.diagnosis_view import checks_table
from eaglelab.say import Say
from eaglelab.server.launching import named
from eaglelab.sweep.deal import differences
from eaglelab.sweep.relevance import is_nccl_setting

__all__ = ["doctor", "logs", "status", "stop"]

_FOREIGN_LOG = 4 << 20


def _select(request: Request) -> Selection:
    return select_hosts(request.project, request.host, request.inventory)


def doctor(request: Request, outcome: Outcome, say: Say) -> None:
    """Reads what the host is and shows every check of it. What the inventory does not say yet is named before anything is
    contacted. Raises HostError where something speaks against a run.
    """
    selection = _select(request)
    for host in selection.hosts:
        require_all(host)
    identities: dict[str, Mapping[str, Any]] = {}

    def work(context: Context) -> dict[str, Any]:
        try:
            found = DOCTOR.run(context, DOCTOR.args(diagnose=False))
            identities[context.host.name] = identity(context)
        except HostError:
            if context.found.facts:  # it was read, and then refused: what else there is belongs beside it
                _show_checks(context)
            raise
        checks = _show_checks(context)
        alarms = [each for each in checks if each.state == "alarm"]
        if alarms:
            what = " ".join(each.sentence for each in alarms)
            raise HostError(what, where=context.host.name, hint=alarms[0].try_next[0])
        context.say.line("  nothing speaks against a run", style="green")
        return {**found, "checks": [each.to_json() for each in checks]}

    run_on_hosts(request, selection, outcome, say, work, looks=True)
    _must_be_equal(selection, identities)


def _must_be_equal(selection: Selection, identities: Mapping[str, Mapping[str, Any]]) -> None:
    """Hosts that are to be one server."""
    told = differences(identities) if selection.server is not None else []
    if told:
        what = f"these hosts are not equal, and one server cannot run on them: {'; '.join(told)}"
        raise HostError(what, where=", ".join(identities), hint="make them equal")


def _show_checks(context: Context) -> tuple[Checked, ...]:
    clocks = context.client.call("gpu_state")["gpus"]
    settings = [*context.host.server.flags, *context.host.server.env]
    topology = context.client.call("topology")["text"] if any(map(is_nccl_setting, settings)) else ""
    facts = facts_of_host(context.facts, context.host, clocks=clocks, topology=topology)
    checks = checked(facts, diagnose(facts))
    context.bundle.json("checks.json", {"checks": [each.to_json() for each in checks]})
    context.say.show(checks_table(checks))
    return checks


def status(request: Request, outcome: Outcome, say: Say) -> None:
    """Which files are patched, which server of ours runs, and what the host remembers."""

    def work(context: Context) -> dict[str, Any]:
        found = context.client.call("status")
        context.say.line(context.host.name, style="bold")
        for line in _server_lines(context, found):
            context.say.line(f"  {line}")
        for line in task_lines(found):
            context.say.line(f"  {line}")
        for line in ended_lines(found):
            context.say.line(f"  {line}: {context.invoke('logs')} brings their logs home")
        if found.get("lock"):
            context.say.line(f"  locked: {who_holds(found['lock'])}")
        say_by_folder(context, [(item["path"], item["state"]) for item in found["states"]])
        if not found["states"]:
            context.say.line(f"  {_nothing_on_record(context)}")
        return found

    run_on_hosts(request, _select(request), outcome, say, work, looks=True)


def _nothing_on_record(context: Context) -> str:
    """What the workers themselves say where the host remembers nothing for this user."""
    try:
        patched = unrecorded(context)
    except HostError as error:
        return f"{NOT_SEEN}: {error.what}"
    return (
        f"patched, and nothing is on record of it for this user: {', '.join(patched)}"
        if patched
        else "every file is original"
    )


def _server_lines(context: Context, found: dict[str, Any]) -> Iterator[str]:
    record, ended = found["record"], found["exit"] or {}
    if found.get("damaged"):
        members, end = len(found["members"]), context.invoke("stop")
        yield f"{found['damaged']}: {members} living processes carry our mark; {end} ends them"
        return
    if record is None:
        yield "no server of ours is running"
        return
    if found.get("unknown"):
        yield f"server: {named(record)}, run {record['run']}; nothing can be said of it: {found['unknown']}"
    elif found["alive"]:
        steps = "no speculation" if record.get("steps") is None else f"{record['steps']} steps"
        probe = "on" if record.get("profile") else "off"
        where = (
            f", queued: {found['queued']}"
            if found.get("queued")
            else f" on {found['node']}"
            if found.get("node")
            else ""
        )
        yield f"server: {named(record)}{where}, {steps}, probe {probe}, run {record['run']}"
        yield started_by(record)
        if node := context.host.node:
            yield f"node {node.rank} of {len(node.names)} of the server {node.server}"
    else:
        how = f"with exit code {ended['code']}" if ended.get("code") is not None else "and nothing says how"
        how = f"by signal {ended['signal']}" if ended.get("signal") is not None else how
        how = f"({ended['why']})" if ended.get("why") else how
        left = f"; {len(found['members'])} of its processes are left" if found["members"] else ""
        yield f"server: ended {how}, run {record['run']}{left}"
    yield f"log: {record['log']}"
    for other in found.get("strangers", ()):
        yield f"carries our mark and is somebody else's: pid {other['pid']} of {other['user']} ({other['command'][:100]})"


def stop(request: Request, outcome: Outcome, say: Say) -> None:
    """Ends the server that eaglelab started; a patch stays in place."""
    perform = STOP.preview if request.check and STOP.preview else STOP.run

    def work(context: Context) -> dict[str, Any]:
        return perform(context, StopArguments(tasks=True))

    run_on_hosts(request, _select(request), outcome, say, work)


def logs(request: Request, lines: int, outcome: Outcome, say: Say) -> None:
    """Brings the server's log home, from the start of the running (or last) server on, and shows its end."""

    def work(context: Context) -> dict[str, Any]:
        status = context.client.call("status")
        tasks = [_show_log_of(context, task, lines) for task in tasks_of(status) if task["record"]]
        if status.get("ended"):
            tasks += _ended_home(context, {(each["run"], each["task"]) for each in tasks})
        mark = _log_mark(context)
        size = fetch(context, mark, "server.log")
        path = context.bundle.path("server.log")
        if not size:
            context.say.line(f"  nothing to read in {mark.path}")
        for line in last_lines(path, lines):
            context.say.line(line)
        return {"log": str(path), "bytes": size, "tasks": tasks, "resume": _resumable(request.logs, context)}

    run_on_hosts(request, _select(request), outcome, say, work, looks=True)


def _show_log_of(context: Context, task: dict[str, Any], lines: int) -> dict[str, Any]:
    """The log of a server that has a place of its own, which is a file of its own."""
    name = log_of(task)
    context.say.line(f"task {task['task']} of run {task['run']}:", style="bold")
    size = fetch(context, LogMark.of_server(task["record"]), name)
    if not size:
        context.say.line("  nothing is in its log yet")
    for line in last_lines(context.bundle.path(name), lines) if size else ():
        context.say.line(f"  {line}")
    return {"run": task["run"], "task": task["task"], "log": str(context.bundle.path(name)), "bytes": size}


def _ended_home(context: Context, but: AbstractSet[tuple[str, str]]) -> list[dict[str, Any]]:
    """The logs of servers that are gone, which may be many: they are brought home, and not shown."""
    found = []
    for task in ended_tasks(context):
        if (task["run"], task["task"]) not in but and (size := bring_home(context, task)):
            path = context.bundle.path(log_of(task))
            context.say.line(f"task {task['task']} of run {task['run']}, ended: {path} ({size / 1e3:.0f} kB)")
            found.append({"run": task["run"], "task": task["task"], "log": str(path), "bytes": size})
    return found


def _resumable(logs: Path, context: Context) -> str | None:
    """The command that goes on with the last run on this host, which is said; None where that one has come to its end."""
    host = context.host.name
    past = newest_of(logs, host, context.say)
    if past is None or past.result(host) is not None:
        return None
    holder = context.client.call("status").get("lock") or {}
    if holder.get("run") == past.run:
        context.say.line(f"run {past.run} is at work")
        return None
    context.say.line(f"run {past.run} stopped at '{past.stopped_at(host)}': {past.command_line()} goes on with it")
    return past.command_line()


def _log_mark(context: Context) -> LogMark:
    """Where the log of our server begins; of a log that is not ours, which may be huge, only the end."""
    record = context.client.call("status")["record"]
    if record:
        return LogMark.of_server(record)
    end = end_of(context, context.host.log)
    return LogMark(end.path, max(0, end.offset - _FOREIGN_LOG), end.inode)
