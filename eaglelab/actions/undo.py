"""rollback and fail: every byte back where it was, and the failure that led to it."""

from __future__ import annotations

from typing import Any

from eaglelab.actions.base import Action, Arguments
from eaglelab.context import Context
from eaglelab.errors import AttentionError, HostError

__all__ = ["FAIL", "ROLLBACK"]


class RollbackArguments(Arguments):
    """`grace`: seconds that the server gets between TERM and KILL."""

    grace: float = 30.0


class FailArguments(Arguments):
    """`message`: why. In a `rescue` the failure that led there is what is reported."""

    message: str = "the playbook says so"


def _rollback(context: Context, args: RollbackArguments) -> dict[str, Any]:
    stopped = context.client.call("stop", silence=90, run=context.run, grace=args.grace)
    result = context.client.call("rollback", run=context.run)
    foreign = [item for item in result["files"] if item["state"] == "foreign"]
    restored = [item["path"] for item in result["files"] if item["state"] in ("restored", "removed")]
    context.bundle.json("rollback.json", {"server": stopped, **result})
    if foreign:
        item = foreign[0]
        kept = f"; the original is kept at {item['kept']}" if item["kept"] else ""
        raise AttentionError(
            f"{item['path']} is neither the original ({item['original']}) nor what eaglelab wrote: its sha256 is {item['found']}. It was left alone{kept}",
            where=context.host.name,
            hint="put the version you want there, then: invoke rollback --host " + context.host.name,
        )
    if stopped["stopped"]:
        context.say.line(f"  {len(stopped['stopped'])} processes of the server ended")
    for path in restored:
        context.say.line(f"  back to the original: {path}")
    nothing = not restored and not stopped["stopped"]
    if nothing:
        context.say.line("  nothing to do: every file is original and no server of ours is running")
    return {"nothing": nothing, "restored": restored, "stopped": stopped["stopped"]}


def _rollback_preview(context: Context, _: RollbackArguments) -> dict[str, Any]:
    status = context.client.call("status")
    patched = [item["path"] for item in status["states"] if item["state"] != "original"]
    for path in patched:
        context.say.line(f"  would put the original of {path} back")
    if status["members"]:
        context.say.line(f"  would end {len(status['members'])} processes of our server")
    if not patched and not status["members"]:
        context.say.line("  nothing to do: every file is original and no server of ours is running")
    return {"nothing": not patched and not status["members"]}


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
