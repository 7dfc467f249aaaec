"""rollback and fail: every byte back where it was, and the failure that led to it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import PurePosixPath
from typing import Annotated, Any

from pydantic import Field

from eaglelab.actions.base import Action, Arguments
from eaglelab.actions.doctor import read_facts
from eaglelab.actions.serve import say_damaged
from eaglelab.context import Context
from eaglelab.errors import AttentionError, EaglelabError, HostError
from eaglelab.patching.folder import find_patch
from eaglelab.patching.known import load_known
from eaglelab.remote.hints import AgentFailure

__all__ = ["FAIL", "ROLLBACK", "say_by_folder", "unrecorded"]


_NOTHING = "  nothing to do: every file is original and no server of ours is running"


class RollbackArguments(Arguments):
    """`grace`: seconds that the server gets between TERM and KILL."""

    grace: Annotated[float, Field(ge=0)] = 30.0


class FailArguments(Arguments):
    """`message`: why. In a `rescue` the failure that led there is what is reported."""

    message: str = "the playbook says so"


def _rollback(context: Context, args: RollbackArguments) -> dict[str, Any]:
    def news(beat: Mapping[str, Any]) -> None:
        context.say.progress(f"waiting for {len(beat['stopping'])} processes to end")

    try:
        stopped = context.client.call("stop", silence=90, news=news, run=context.run, grace=args.grace)
    except EaglelabError:
        # A server that does not end keeps the code it has loaded; the files need not wait for it.
        context.client.call("rollback", run=context.run)
        raise
    say_damaged(context, stopped)
    try:
        result = context.client.call("rollback", run=context.run)
    except AgentFailure as error:
        raise _half_way(context, error) from error
    context.bundle.json("rollback.json", {"server": stopped, **result})
    if stopped["stopped"]:
        context.say.line(f"  {len(stopped['stopped'])} processes of the server ended")
    words = {"restored": "back to the original", "removed": "removed"}
    changed = [item for item in result["files"] if item["state"] in words]
    say_by_folder(context, [(item["path"], words[item["state"]]) for item in changed])
    _refuse_foreign(context, [item for item in result["files"] if item["state"] == "foreign"])
    if not result["files"]:
        _refuse_unrecorded(context)
    nothing = not changed and not stopped["stopped"]
    if nothing:
        context.say.line(_NOTHING)
    return {"nothing": nothing, "restored": [item["path"] for item in changed], "stopped": stopped["stopped"]}


def _half_way(context: Context, error: AgentFailure) -> AttentionError:
    """Which files are back and which are not, after one that could not be put back."""
    states = context.client.call("status")["states"]
    say_by_folder(context, [(item["path"], item["state"]) for item in states])
    left = [item["path"] for item in states if item["state"] != "original"]
    what = f"{error.what}; {len(left)} of {len(states)} files are not back yet" if left else error.what
    host = context.host.name
    return AttentionError(what, where=host, hint=f"mend that on the host, then: invoke rollback --host {host}")


def unrecorded(context: Context) -> list[str]:
    """Worker files that hold lines of a patch. Raises HostError where they cannot be looked at."""
    files = read_facts(context, "eagle3-profile")["files"]
    return [found["path"] for found in files.values() if found.get("marked")]


def _refuse_unrecorded(context: Context) -> None:
    """Nothing on record is not the same as nothing patched: another user, or a lost state folder, may be behind it."""
    try:
        patched = unrecorded(context)
    except HostError as error:
        context.say.line(f"  nothing is on record here, and the workers could not be looked at: {error.what}")
        return
    if patched:
        host = context.host.name
        raise AttentionError(
            f"lines of eaglelab are in {', '.join(patched)}, and nothing is on record of it for this user",
            where=host,
            hint=f"log in as the user who deployed it; or invoke deploy-profiling --host {host}, then invoke rollback",
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
    host = context.host.name
    hints = [f"to have the original back, on the host: {mend}, then: invoke rollback --host {host}"] if mend else []
    if released:
        hints.append(
            f"of an upgraded SGLang nothing is to be put back: invoke deploy-profiling --host {host} and then "
            f"invoke rollback --host {host} take the new files for the originals"
        )
    raise AttentionError(
        f"left alone, for it is neither the original nor what eaglelab wrote:\n{found}",
        where=host,
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
    patched = [item for item in status["states"] if item["state"] != "original"]
    say_by_folder(context, [(item["path"], _would_become(item)) for item in patched])
    if status["members"]:
        context.say.line(f"  would end {len(status['members'])} processes of our server")
    if not patched and not status["members"]:
        context.say.line(_NOTHING)
    return {"nothing": not patched and not status["members"]}


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
