"""rollback and fail: every byte back where it was, and the failure that led to it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import Field

from eaglelab.actions.as_found import AT_REST, Left, left_as_found
from eaglelab.actions.base import Action, Arguments
from eaglelab.actions.doctor import read_facts
from eaglelab.actions.ended import clear_ended
from eaglelab.actions.installation import say_gone
from eaglelab.actions.owner import say_ending
from eaglelab.actions.serve import say_damaged
from eaglelab.actions.tasks import EndedTasks, end_tasks, would_end
from eaglelab.context import Context
from eaglelab.errors import AttentionError, EaglelabError, HostError
from eaglelab.patching.folder import find_patch
from eaglelab.patching.known import load_known
from eaglelab.remote.hints import AgentFailure
from eaglelab.server.launching import ended, is_there, what_runs

__all__ = ["FAIL", "NOT_SEEN", "ROLLBACK", "files_back", "say_by_folder", "unrecorded"]

NOT_SEEN = "nothing is on record here for this user, and the workers could not be looked at"
_NOTHING = "  nothing to do: every file is original and no server of ours is running"
_NONE_STOPPED: Mapping[str, Any] = MappingProxyType({"stopped": [], "how": "none"})


class RollbackArguments(Arguments):
    """`grace`: seconds that the server gets between TERM and KILL.

    `keep_found`: only what this run has changed goes back; a server of another run, and files that were patched before,
    stay. For a `rescue`: a run that failed must not cost somebody else a load.
    """

    grace: Annotated[float, Field(ge=0)] = 30.0
    keep_found: bool = False


class FailArguments(Arguments):
    """`message`: why. In a `rescue` the failure that led there is what is reported."""

    message: str = "the playbook says so"


def _rollback(context: Context, args: RollbackArguments) -> dict[str, Any]:
    left = left_as_found(context) if args.keep_found else Left()
    if left:
        context.say.line(f"  left as found: {left}", style="yellow")
    if left.files:
        return {"nothing": True, "restored": [], "stopped": [], "left": str(left)}
    try:
        stopped, kept = (_NONE_STOPPED, False) if left.server else _stop(context, args)
    except EaglelabError:
        # A server that does not end keeps the code it has loaded; the files need not wait for it.
        context.client.call("rollback", run=context.run)
        raise
    say_damaged(context, stopped)
    restored, known = files_back(context, stopped)
    if not known:
        _refuse_unrecorded(context)
    if kept:
        clear_ended(context)  # last, for nothing depends on it
    nothing = not restored and not stopped["stopped"]
    if nothing and not left:
        context.say.line(_NOTHING)
    return {"nothing": nothing, "restored": restored, "stopped": stopped["stopped"], "left": str(left) if left else ""}


def files_back(context: Context, stopped: Mapping[str, Any] = _NONE_STOPPED) -> tuple[list[str], bool]:
    """Puts every original back, after what was `stopped`. Which files changed, and whether any are on record.

    Raises AttentionError where one could not be put back, or is somebody else's by now.
    """
    try:
        result = context.client.call("rollback", run=context.run)
    except AgentFailure as error:
        raise _half_way(context, error) from error
    context.bundle.json("rollback.json", {"server": stopped, **result})
    if stopped["stopped"]:
        context.say.line(f"  {ended(stopped, 'of the server ')}")
    words = {"restored": "back to the original", "removed": "removed"}
    changed = [item for item in result["files"] if item["state"] in words]
    say_by_folder(context, [(item["path"], words[item["state"]]) for item in changed])
    say_gone(context, result["files"])
    _refuse_foreign(context, [item for item in result["files"] if item["state"] == "foreign"])
    return [item["path"] for item in changed], bool(result["files"])


def _stop(context: Context, args: RollbackArguments) -> tuple[dict[str, Any], bool]:
    """What was stopped, and whether anything of ended tasks is kept."""

    def news(beat: Mapping[str, Any]) -> None:
        context.say.progress(f"waiting for {len(beat['stopping'])} processes to end")

    say_ending(context)
    stopped = context.client.call("stop", silence=90, news=news, run=context.run, grace=args.grace)
    tasks = EndedTasks([]) if args.keep_found else end_tasks(context, None, args.grace)
    return {**stopped, "stopped": [*stopped["stopped"], *tasks.stopped]}, tasks.kept


def _half_way(context: Context, error: AgentFailure) -> AttentionError:
    """Which files are back and which are not, after one that could not be put back."""
    states = context.client.call("status")["states"]
    say_by_folder(context, [(item["path"], item["state"]) for item in states])
    left = [item["path"] for item in states if item["state"] not in AT_REST]
    what = f"{error.what}; {len(left)} of {len(states)} files are not back yet" if left else error.what
    return AttentionError(
        what, where=context.host.name, hint=f"mend that on the host, then: {context.invoke('rollback')}"
    )


def unrecorded(context: Context) -> list[str]:
    """Worker files that hold lines of a patch. Raises HostError where they cannot be looked at."""
    files = read_facts(context, "eagle3-profile")["files"]
    return [found["path"] for found in files.values() if found.get("marked")]


def _refuse_unrecorded(context: Context) -> None:
    """Nothing on record is not the same as nothing patched: another user, or a lost state folder, may be behind it."""
    try:
        patched = unrecorded(context)
    except HostError as error:
        why = error.hint or "`python` and `sglang` of this host in inventory.yaml say where they are"
        hint = f"{why}; then {context.invoke('rollback')} tells whether there is anything to put back"
        raise HostError(f"{NOT_SEEN}: {error.what}", where=context.host.name, hint=hint) from error
    if patched:
        raise AttentionError(
            f"lines of eaglelab are in {', '.join(patched)}, and nothing is on record of it for this user",
            where=context.host.name,
            hint="log in as the user who deployed it; or "
            f"{context.invoke('deploy-profiling')}, then {context.invoke('rollback')}",
        )


def _refuse_foreign(context: Context, foreign: Sequence[Mapping[str, Any]]) -> None:
    """A file that somebody else wrote meanwhile is theirs; the command that mends it is theirs to type.

    But for a released one: it came with another SGLang, whose place the original must not take.
    """
    if not foreign:
        return
    known = load_known(find_patch(context.options.project, "eagle3-profile"))
    released = {item["path"]: file.releases for item in foreign if (file := known.find(item["found"] or ""))}
    found = "\n".join(f"  {item['path']}: {_stands_there(item, released.get(item['path']))}" for item in foreign)
    mend = " && ".join(
        f"cp {shlex.quote(item['kept'])} {shlex.quote(item['path'])}"
        if item["kept"]
        else f"rm {shlex.quote(item['path'])}"
        for item in foreign
        if item["path"] not in released
    )
    back = context.invoke("rollback")
    hints = [f"to have the original back, on the host: {mend}, then: {back}"] if mend else []
    if released:
        hints.append(
            f"of an upgraded SGLang nothing is to be put back: {context.invoke('deploy-profiling')} and then "
            f"{back} take the new files for the originals"
        )
    raise AttentionError(
        f"left alone, for it is neither the original nor what eaglelab wrote:\n{found}",
        where=context.host.name,
        hint="; ".join(hints),
    )


def _stands_there(item: Mapping[str, Any], releases: Sequence[str] | None) -> str:
    if releases:
        return f"the file of SGLang {' and '.join(releases)}, installed since the patch went in"
    return f"sha256 {item['found'] or 'none, the file is gone'}, the original has {item['original'] or 'none'}"


def say_by_folder(context: Context, files: Sequence[tuple[str, str]]) -> None:
    """Long paths once a folder, then each name with what became (or would become) of it."""
    split = sorted((str(PurePosixPath(path).parent), PurePosixPath(path).name, what) for path, what in files)
    for folder, group in groupby(split, key=lambda item: item[0]):
        context.say.line(f"  in {folder}:")
        for _, name, what in group:
            context.say.line(f"    {name}: {what}")


def _rollback_preview(context: Context, _: RollbackArguments) -> dict[str, Any]:
    status = context.client.call("status")
    patched = [item for item in status["states"] if item["state"] not in AT_REST]
    say_by_folder(context, [(item["path"], _would_become(item)) for item in patched])
    say_gone(context, status["states"])
    if is_there(status):
        context.say.line(f"  would end {what_runs(status)}")
    tasks = would_end(context, status)
    if not status["states"]:
        _refuse_unrecorded(context)
    nothing = not patched and not is_there(status) and not tasks
    if nothing:
        context.say.line(_NOTHING)
    return {"nothing": nothing}


def _would_become(item: Mapping[str, Any]) -> str:
    if item["state"] == "foreign":
        return "would be left alone: it is neither the original nor what eaglelab wrote"
    return "would go back to the original" if item["original"] else "would be removed"


def _fail(context: Context, args: FailArguments) -> dict[str, Any]:
    raise HostError(args.message, where=context.host.name)


ROLLBACK = Action(
    "rollback",
    RollbackArguments,
    "stop our server and put every original back",
    _rollback,
    _rollback_preview,
    restores=True,
)
FAIL = Action("fail", FailArguments, "end the run as failed", _fail)
