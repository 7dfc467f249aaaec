"""check_server, start and stop: the host's server, as a setting wants it."""

from __future__ import annotations

import glob
import hashlib
import json
import shlex
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any

from pydantic import Field, PlainValidator

from eaglelab.actions.base import Action, Arguments
from eaglelab.actions.ended import clear_ended
from eaglelab.actions.needed import needed_on_all
from eaglelab.actions.owner import refuse_other, say_ending, started_by
from eaglelab.actions.patch import operator
from eaglelab.actions.tasks import end_tasks, would_end
from eaglelab.context import Context, LogMark
from eaglelab.server.launching import ended, is_there, launching, named, what_runs
from eaglelab.server.setting import Setting
from eaglelab.sweep.one_load import adaptive_config

__all__ = [
    "CHECK_OWNER",
    "CHECK_SERVER",
    "START",
    "STOP",
    "SettingArguments",
    "StopArguments",
    "end_of",
    "mark_records",
    "probe_files",
    "say_damaged",
    "wanted_fingerprint",
]


def _steps(value: object) -> object:
    counts = value if isinstance(value, list) and value else [value]
    if all(isinstance(count, int) and not isinstance(count, bool) and count >= 1 for count in counts):
        return value
    if value not in ("inventory", "baseline"):
        raise ValueError(f"must be a step count (1 or more), several, `inventory` or `baseline`, not {value!r}")
    return value


class SettingArguments(Arguments):
    """`steps`: a number, `inventory` for the inventory's, `baseline` for no speculation; or several numbers, among which
    requests then choose (SGLang 0.5.11 and later). `profile`: with the probe on.

    `folder`: where server.json goes, below the bundle; empty for the bundle itself.
    """

    steps: Annotated[int | str | list[int], PlainValidator(_steps)] = "inventory"
    profile: bool = True
    flags: dict[str, Any] = {}
    env: dict[str, str] = {}
    folder: str = ""

    def setting(self, context: Context) -> Setting:
        steps = self._launched(context)
        probed = self.profile and steps is not None
        return Setting(
            steps=steps,
            gate=context.spec.gate if probed else None,
            probe_folder=f"{context.facts['state']}/runs/{context.run}/probe"
            if probed and context.spec.records
            else None,
            flags=self.flags,
            env=self.env,
            candidates=self._candidates(context),
        )

    def _launched(self, context: Context) -> int | None:
        """Of several counts the largest: room in the KV cache is kept for it from the start, and in 0.5.15 to 0.5.18 that for logits."""
        if isinstance(self.steps, list):
            return max(self.steps)
        if self.steps == "inventory":
            speculative = context.host.server.speculative
            return speculative.num_steps if speculative else None
        return None if self.steps == "baseline" else int(self.steps)

    def _candidates(self, context: Context) -> str | None:
        data = self.candidates_config(context)
        return None if data is None else f"{context.facts['state']}/files/{hashlib.sha256(data).hexdigest()[:16]}.json"

    def candidates_config(self, context: Context) -> bytes | None:
        """What the file holds that names the step counts; None where there is but one."""
        if not isinstance(self.steps, list) or len(self.steps) < 2:
            return None
        return json.dumps(adaptive_config(context.facts["sglang_version"], self.steps)).encode()


class StopArguments(Arguments):
    """`grace`: seconds between TERM and KILL. `tasks`: those servers too that run in places of their own."""

    grace: Annotated[float, Field(ge=0)] = 30.0
    tasks: bool = False


def _files(context: Context, *, patched: bool) -> dict[str, str]:
    """Worker files as a server that starts now would load them; if `patched`, with the plan carried out."""
    planned = {plan.path: plan.patched_sha256 for plan in context.found.plans if patched}
    return {found["path"]: planned.get(name, found["sha256"]) for name, found in context.facts["files"].items()}


def wanted_fingerprint(context: Context, args: SettingArguments, *, patched: bool) -> str:
    """What tells a server of this setting from any other."""
    files = _files(context, patched=patched)
    return args.setting(context).fingerprint(context.host, files, context.facts.get("machine"))


def _check_server(context: Context, args: SettingArguments) -> dict[str, Any]:
    """Whether a load is needed: a server that already is what is wanted is worth minutes."""
    status = context.client.call("status")
    record, wanted = status["record"], wanted_fingerprint(context, args, patched=context.found.patched)
    if not status["alive"]:
        why = "no server of ours is running"
    elif record.get("fingerprint") != wanted:
        why = f"the server of run {record['run']} has another setting"
    else:
        why = ""
    if why and status["alive"]:
        refuse_other(context, record)
        why = f"{why} ({started_by(record)})"
    if why:
        context.say.line(f"  a load is needed: {why}")
    else:
        context.say.line(f"  the server of run {record['run']} already has this setting: no load is needed")
        _follow(context, record, status, args.folder)
    return {"needed": bool(why), "why": why}


def _check_owner(context: Context, args: SettingArguments) -> dict[str, Any]:
    status = context.client.call("status")
    record = status["record"]
    if status["alive"] and record.get("fingerprint") != wanted_fingerprint(context, args, patched=True):
        refuse_other(context, record)
    return {}


def _follow(context: Context, record: dict[str, Any], status: Mapping[str, Any], folder: str) -> None:
    """From here on, what the running server adds to its log and to the probe's files belongs to this run.

    If this run has started it, in an earlier try, all of it does.
    """
    if context.begun_before and record["run"] == context.run:
        context.found.log = _log_of(record)
    else:
        context.found.log = end_of(context, record["log"], record.get("log_inode"))
    context.found.steps, context.found.started = record["steps"], False
    context.found.record, context.found.folder = record, folder
    context.found.address, context.found.port = status.get("address"), status.get("port")
    context.bundle.json(str(PurePosixPath(folder) / "server.json"), record)
    context.found.probe_folder = record.get("probe_folder")
    mark_records(context)


def mark_records(context: Context) -> None:
    """What the probe has written up to now is not of this run."""
    if context.found.probe_folder:
        context.found.probe = tuple(end_of(context, path) for path in probe_files(context))


def probe_files(context: Context) -> list[str]:
    """The probe's files on the host, one a rank; none where there is no probe."""
    folder = context.found.probe_folder
    return list(context.client.call("list", pattern=f"{glob.escape(folder)}/*.jsonl")["paths"]) if folder else []


def end_of(context: Context, path: str, inode: int | None = None) -> LogMark:
    """What is written to a file of the host from now on; to the one that was `inode`, if another lies at `path` now."""
    found = context.client.call("tail", path=path, offset=-1, limit=0, inode=inode)
    return LogMark(path, found["offset"], found["inode"] or None, found["before"])


def _start(context: Context, args: SettingArguments) -> dict[str, Any]:
    host = context.host
    setting = args.setting(context)
    command, env = setting.command(host, context.api_key), setting.environment(host)
    config = args.candidates_config(context)
    if config is not None:
        context.client.call("keep", config, suffix=".json")
    about = {"run": context.run, "command": command, "log": context.facts["log"], "steps": setting.steps}
    context.bundle.json(str(PurePosixPath(args.folder) / "server.json"), {**about, "env": env})
    context.found.touched, context.found.address, context.found.port = True, None, None
    record = context.client.call(
        "start",
        silence=60,
        run=context.run,
        command=command,
        env=env,
        log=context.facts["log"],
        port=context.port,
        cwd=context.facts["state"],  # not home: a folder named sglang there would come before the package
        about={
            "fingerprint": wanted_fingerprint(context, args, patched=context.found.patched),
            "steps": setting.steps,
            "profile": args.profile,
            "by": operator(),
            "probe_folder": setting.probe_folder,
        },
        **launching(host, more=context.start_options),
    )
    context.found.log = _log_of(record)
    context.found.probe_folder, context.found.probe = setting.probe_folder, ()
    context.found.steps, context.found.started = setting.steps, True
    context.found.record, context.found.folder = record, args.folder
    context.say.line(f"  {_shown(context, command, env)}")
    context.say.line(f"  {named(record)}, log {record['log']}")
    return {"pid": record.get("pid"), "steps": setting.steps}


def _log_of(record: dict[str, Any]) -> LogMark:
    """The part of the log that this server has written."""
    return LogMark.of_server(record)


def _shown(context: Context, command: list[str], env: dict[str, str]) -> str:
    masker = context.bundle.masker
    variables = [f"{name}={shlex.quote(value)}" for name, value in masker.mapping(env).items()]
    return " ".join([*variables, shlex.join(masker.argv(command))])


def _start_preview(context: Context, args: SettingArguments) -> dict[str, Any]:
    setting = args.setting(context)
    command, env = setting.command(context.host, context.api_key), setting.environment(context.host)
    context.say.line(f"  would start: {_shown(context, command, env)}")
    return {"steps": setting.steps}


def _stop(context: Context, args: StopArguments) -> dict[str, Any]:
    def news(beat: dict[str, Any]) -> None:
        context.say.progress(f"waiting for {len(beat['stopping'])} processes to end")

    if context.options.takeover:
        _take_over(context, args)
    say_ending(context)
    context.found.touched = True
    result = context.client.call("stop", silence=90, news=news, run=context.run, grace=args.grace)
    say_damaged(context, result)
    if result["stopped"]:
        context.say.line(
            f"  {ended(result)} after {result['seconds']:.1f} s ({result['how'].upper()}); port and GPU are free"
        )
    else:
        context.say.line("  no server of ours is running")
    if args.tasks:
        tasks = end_tasks(context, None, args.grace)
        if tasks.stopped:
            context.say.line(f"  ended: {', '.join(tasks.stopped)}")
            result = {**result, "stopped": [*result["stopped"], *tasks.stopped]}
        if tasks.kept:
            clear_ended(context)
    return result


def say_damaged(context: Context, stopped: Mapping[str, Any]) -> None:
    """Names a record of the server that could not be read, and who carries our mark and is none of ours."""
    if stopped.get("damaged"):
        context.say.line(f"  set aside as server.json.damaged: {stopped['damaged']}", style="yellow")
    for other in stopped.get("strangers", ()):
        what = f"pid {other['pid']} of {other['user']} ({other['command'][:100]})"
        context.say.line(f"  left alone, for somebody else started it: {what}", style="yellow")


def _take_over(context: Context, args: StopArguments) -> None:
    holder = context.facts["port_holder"]
    if holder and not context.facts["port_is_ours"]:
        taken = context.client.call("stop_foreign", silence=90, run=context.run, port=context.port, grace=args.grace)
        if taken["stopped"]:
            context.bundle.json("taken-over.json", taken["holder"])
            context.say.line(
                f"  took over port {context.port}: ended pid {taken['holder']['pid']}: {taken['holder']['command']}",
                style="yellow",
            )


def _stop_preview(context: Context, args: StopArguments) -> dict[str, Any]:
    status = context.client.call("status")
    if args.tasks:
        would_end(context, status)
    context.say.line(f"  would end {what_runs(status)}" if is_there(status) else "  no server of ours is running")
    holder = context.facts["port_holder"] if context.found.facts else None
    if holder and context.options.takeover and not context.facts["port_is_ours"]:
        context.say.line(
            f"  would take over port {context.port}: end pid {holder['pid']}: {holder['command']}", style="yellow"
        )
    return {"stopped": status["members"]}


CHECK_SERVER = Action(
    "check_server",
    SettingArguments,
    "see whether the running server already has the wanted setting",
    _check_server,
    agree=needed_on_all,
)
CHECK_OWNER = Action(
    "check_owner",
    SettingArguments,
    "refuse where a load would end a server that another operator started, before anything is changed",
    _check_owner,
)
START = Action(
    "start", SettingArguments, "start the server in a session of its own", _start, _start_preview, nodes="in turn"
)
STOP = Action(
    "stop", StopArguments, "end our server, all of it, and see that port and GPU are free", _stop, _stop_preview
)
