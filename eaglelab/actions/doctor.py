"""doctor: everything that can be known of a host before anything on it is changed."""

from __future__ import annotations

import glob
from typing import TYPE_CHECKING, Any

from eaglelab.actions.base import Action, Arguments
from eaglelab.actions.installation import refuse_unwritable, say_installation
from eaglelab.context import Context, LogMark, Options
from eaglelab.errors import HostError, OtherMachine
from eaglelab.host import Host
from eaglelab.patching.folder import find_patch
from eaglelab.patching.spec import PatchSpec, load_patch
from eaglelab.server.command import server_env
from eaglelab.server.launching import launching

if TYPE_CHECKING:
    from eaglelab.diagnosis.rule import Rule

__all__ = ["DOCTOR", "read_facts"]

_NEEDED_DISK = 64 << 20
_SAID_HERE = ("port-taken", "too-few-gpus", "disk-full")
"""Diagnoses that the checks below say in words of their own."""


class DoctorArguments(Arguments):
    """`patch` tells which worker files to look for. `require_free_port`: a server that is not ours on the port is an
    error (else it is only named). `anyway`: go on where a load is pointless, too. `diagnose`: look for that at all."""

    patch: str = "eagle3-profile"
    require_free_port: bool = True
    anyway: bool = False
    diagnose: bool = True


def _patch_of(options: Options, patch: str) -> PatchSpec:
    return options.once(load_patch, find_patch(options.project, patch))


def read_facts(context: Context, patch: str, *, models: bool = False) -> dict[str, Any]:
    """What the agent knows of the host, with the worker files that `patch` names; nothing is changed.

    `models`: also what the models' configs say, and which of the server's flags this release does not know.
    """
    host = context.host
    about: dict[str, Any] = {"models": _model_paths(host), "flags": sorted(host.server.flags)} if models else {}
    targets = [target.path for target in _patch_of(context.options, patch).targets]
    return context.client.call(
        "facts",
        silence=90,
        python=host.python,
        sglang=host.sglang,
        targets=targets,
        port=host.server.port,
        log=host.log,
        env=server_env(host),
        **about,
        **launching(host, facts=True),
    )


def _model_paths(host: Host) -> dict[str, str]:
    """Folders of the target and the draft on the host."""
    server = host.server
    draft = None if server.speculative is None else server.speculative.draft_model_path
    return {name: path for name, path in (("target", server.model_path), ("draft", draft)) if path}


def _run(context: Context, args: DoctorArguments) -> dict[str, Any]:
    host = context.host
    facts = read_facts(context, args.patch, models=True)
    _refuse_other_machine(context, facts)
    context.found.facts = facts
    context.found.log = LogMark.of_facts(facts)
    context.host = host.at_home(facts["home"])
    context.bundle.json("facts.json", facts)
    context.say.line(
        f"  {facts['user']}@{facts['hostname']}: SGLang {facts['sglang_version']} in {facts['package']}, "
        f"Python {facts['python_version']}, {_gpus(facts)}"
    )
    say_installation(context, facts)
    _check(context, facts, args)
    if args.diagnose:
        _refuse_pointless(context, facts, args)
    return {key: facts[key] for key in ("sglang_version", "python_version", "package", "gpus")}


def _refuse_pointless(context: Context, facts: dict[str, Any], args: DoctorArguments) -> None:
    """A load costs minutes: what makes it pointless is said before, and stops it where that is certain."""
    from eaglelab.diagnosis.engine import diagnose  # here, so that the host is asked before this is loaded
    from eaglelab.diagnosis.of_host import facts_of_host

    for each in diagnose(facts_of_host(facts, context.host), _rules(context.options)):
        if each.stops and not args.anyway:
            raise HostError(
                each.sentence,
                where=context.host.name,
                hint=f"{each.try_next[0]}; or spend the load all the same: --anyway of invoke sweep, `anyway: true` of a playbook",
            )
        if each.severity in ("alarm", "warning") and each.code not in _SAID_HERE:
            context.say.line(f"  {each.severity}: {each.sentence}", style="yellow")


def _rules(options: Options) -> tuple[Rule, ...]:
    from eaglelab.diagnosis.rule import BEFORE_A_LOAD, known_rules

    return options.once(known_rules, BEFORE_A_LOAD)


def _warm(options: Options) -> None:
    from eaglelab.diagnosis import engine, of_host

    _rules(options)
    del engine, of_host  # they are loaded


def _refuse_other_machine(context: Context, facts: dict[str, Any]) -> None:
    """A run that is taken up again goes on with figures of its first try: they must be of this very machine."""
    earlier = (context.bundle.read("facts.json") if context.resumed else None) or {}
    names = {"machine": "the machine", "sglang_version": "its SGLang"}
    changed = [key for key in names if earlier.get(key) and facts.get(key) and earlier[key] != facts[key]]
    if changed:
        changes = ", ".join(f"{names[key]} was {earlier[key]} and is {facts[key]}" for key in changed)
        raise OtherMachine(
            f"this is not the host that run {context.run} began on: {changes}",
            where=context.host.name,
            hint="figures of two machines do not go together: begin a new run; nothing was changed",
        )


def _gpus(facts: dict[str, Any]) -> str:
    names = [gpu["name"] for gpu in facts["gpus"]]
    return f"{len(names)} x {names[0]}" if names else "no GPU seen"


def _check(context: Context, facts: dict[str, Any], args: DoctorArguments) -> None:
    _check_files(context, facts)
    _check_models(context)
    _check_gpus(context, facts)
    _check_port(context, facts, args)


def _check_files(context: Context, facts: dict[str, Any]) -> None:
    where = context.host.name
    if not facts["files"]:
        raise HostError(
            f"SGLang {facts['sglang_version']} in {facts['package']} has no EAGLE worker",
            where=where,
            hint="eaglelab needs SGLang 0.4.1.post4 or later",
        )
    for name, free in facts["disk_free"].items():
        if free < _NEEDED_DISK:
            raise HostError(
                f"only {free >> 20} MiB of disk are free for {name}",
                where=where,
                hint="free some space there; nothing was changed",
            )
    if not facts["log_writable"]:
        raise HostError(
            f"{facts['user']} may not write the server's log {facts['log']}, or it is a folder",
            where=where,
            hint="set `log` of this host in inventory.yaml to a file that can be written; nothing was changed",
        )
    refuse_unwritable(context, facts)


def _check_models(context: Context) -> None:
    """A path that is not there costs a load to find out. A name of a hub (no path) is the server's business."""
    server = context.host.server
    paths = {"server.model_path": server.model_path}
    if server.speculative is not None:
        paths["server.speculative.draft_model_path"] = server.speculative.draft_model_path
    for key, path in paths.items():
        if path and path.startswith("/") and not context.client.call("list", pattern=glob.escape(path))["paths"]:
            raise HostError(
                f"{key}: there is no {path}", where=context.host.name, hint=f"correct {key} in inventory.yaml"
            )


def _check_gpus(context: Context, facts: dict[str, Any]) -> None:
    server, seen = context.host.server, len(facts["gpus"])
    wanted = server.gpus_a_node
    if 0 < seen < wanted:
        stages = f", {server.gpus} GPUs with all pipeline stages" if server.gpus != server.tp_size else ""
        share = f"{stages}, {wanted} a node" if server.nnodes > 1 else stages
        context.say.line(f"  tp_size is {server.tp_size}{share}, and only {seen} GPUs are seen there", style="yellow")


def _check_port(context: Context, facts: dict[str, Any], args: DoctorArguments) -> None:
    holder = facts["port_holder"]
    if holder and not facts["port_is_ours"]:
        who = f"pid {holder['pid']} of {holder['user']}: {holder['command']}"
        state = holder.get("state")
        whose = f"started by eaglelab from the state folder {state}" if state else "that eaglelab did not start"
        what = f"port {context.port} is taken by a server {whose}: {who}"
        if args.require_free_port and not context.options.takeover:
            raise HostError(
                what,
                where=context.host.name,
                hint="stop it yourself, set another `server.port` in inventory.yaml, or take it over: --takeover",
            )
        context.say.line(f"  {what}", style="yellow")


def _check_patch(options: Options, args: DoctorArguments) -> None:
    _patch_of(options, args.patch)


DOCTOR = Action(
    "doctor",
    DoctorArguments,
    "read what the host is, and refuse what cannot work",
    _run,
    check=_check_patch,
    warm=_warm,
)
