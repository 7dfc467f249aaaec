"""check_server, start and stop: the host's server, as a setting wants it."""

from __future__ import annotations

import glob
import shlex
from pathlib import PurePosixPath
from typing import Annotated, Any

from pydantic import Field, PlainValidator

from eaglelab.actions.base import Action, Arguments
from eaglelab.context import Context, LogMark
from eaglelab.server.setting import Setting

__all__ = ["CHECK_SERVER", "START", "STOP", "SettingArguments", "StopArguments", "end_of", "mark_records"]


def _steps(value: object) -> object:
    count = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    if not count and value not in ("inventory", "baseline"):
        raise ValueError(f"must be a step count (1 or more), `inventory` or `baseline`, not {value!r}")
    return value


class SettingArguments(Arguments):
    """`steps`: a number, `inventory` for the inventory's, `baseline` for no speculation. `profile`: with the probe on.

    `folder`: where server.json goes, below the bundle; empty for the bundle itself.
    """

    steps: Annotated[int | str, PlainValidator(_steps)] = "inventory"
    profile: bool = True
    flags: dict[str, Any] = {}
    env: dict[str, str] = {}
    folder: str = ""

    def setting(self, context: Context) -> Setting:
        speculative = context.host.server.speculative
        steps: int | None
        if self.steps == "inventory":
            steps = speculative.num_steps if speculative else None
        else:
            steps = None if self.steps == "baseline" else int(self.steps)
        probed = self.profile and steps is not None
        return Setting(
            steps=steps,
            gate=context.spec.gate if probed else None,
            probe_folder=f"{context.facts['state']}/runs/{context.run}/probe"
            if probed and context.spec.records
            else None,
            flags=self.flags,
            env=self.env,
        )


class StopArguments(Arguments):
    """`grace`: seconds between TERM and KILL."""

    grace: Annotated[float, Field(ge=0)] = 30.0


def _files(context: Context) -> dict[str, str]:
    """Worker files as a server that starts now would load them."""
    planned = {plan.path: plan.patched_sha256 for plan in context.found.plans if context.found.patched}
    return {found["path"]: planned.get(name, found["sha256"]) for name, found in context.facts["files"].items()}


def _check_server(context: Context, args: SettingArguments) -> dict[str, Any]:
    """Whether a load is needed: a server that already is what is wanted is worth minutes."""
    status = context.client.call("status")
    record, wanted = status["record"], args.setting(context).fingerprint(context.host, _files(context))
    if not status["alive"]:
        why = "no server of ours is running"
    elif record.get("fingerprint") != wanted:
        why = f"the server of run {record['run']} has another setting"
    else:
        why = ""
    if why:
        context.say.line(f"  a load is needed: {why}")
    else:
        context.say.line(f"  the server of run {record['run']} already has this setting: no load is needed")
        _follow(context, record, args.folder)
    return {"needed": bool(why), "why": why}


def _follow(context: Context, record: dict[str, Any], folder: str) -> None:
    """From here on, what the running server adds to its log and to the probe's files belongs to this run."""
    context.found.log = end_of(context, record["log"])
    context.found.steps, context.found.started = record["steps"], False
    context.bundle.json(str(PurePosixPath(folder) / "server.json"), record)
    context.found.probe_folder = record.get("probe_folder")
    mark_records(context)


def mark_records(context: Context) -> None:
    """What the probe has written up to now is not of this run."""
    if context.found.probe_folder:
        paths = context.client.call("list", pattern=f"{glob.escape(context.found.probe_folder)}/*.jsonl")["paths"]
        context.found.probe = tuple(end_of(context, path) for path in paths)


def end_of(context: Context, path: str) -> LogMark:
    """What is written to a file of the host from now on."""
    return LogMark(path, context.client.call("tail", path=path, offset=1 << 62, limit=0)["size"])


def _start(context: Context, args: SettingArguments) -> dict[str, Any]:
    host = context.host
    setting = args.setting(context)
    command, env = setting.command(host, context.api_key), setting.environment(host)
    about = {"run": context.run, "command": command, "log": context.facts["log"], "steps": setting.steps}
    context.bundle.json(str(PurePosixPath(args.folder) / "server.json"), {**about, "env": env})
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
            "fingerprint": setting.fingerprint(host, _files(context)),
            "steps": setting.steps,
            "profile": args.profile,
            "probe_folder": setting.probe_folder,
        },
    )
    context.found.log = LogMark(record["log"], record["log_offset"])
    context.found.probe_folder, context.found.probe = setting.probe_folder, ()
    context.found.steps, context.found.started = setting.steps, True
    context.say.line(f"  {_shown(context, command, env)}")
    context.say.line(f"  pid {record['pid']}, log {record['log']}")
    return {"pid": record["pid"], "steps": setting.steps}


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
    result = context.client.call("stop", silence=90, news=news, run=context.run, grace=args.grace)
    if result["stopped"]:
        context.say.line(
            f"  {len(result['stopped'])} processes ended after {result['seconds']:.1f} s ({result['how'].upper()}); port and GPU are free"
        )
    else:
        context.say.line("  no server of ours is running")
    return result


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


def _stop_preview(context: Context, _: StopArguments) -> dict[str, Any]:
    members = context.client.call("status")["members"]
    context.say.line(
        f"  would end {len(members)} processes of our server" if members else "  no server of ours is running"
    )
    holder = context.facts["port_holder"] if context.found.facts else None
    if holder and context.options.takeover and not context.facts["port_is_ours"]:
        context.say.line(
            f"  would take over port {context.port}: end pid {holder['pid']}: {holder['command']}", style="yellow"
        )
    return {"stopped": members}


CHECK_SERVER = Action(
    "check_server", SettingArguments, "see whether the running server already has the wanted setting", _check_server
)
START = Action("start", SettingArguments, "start the server in a session of its own", _start, _start_preview)
STOP = Action(
    "stop", StopArguments, "end our server, all of it, and see that port and GPU are free", _stop, _stop_preview
)
