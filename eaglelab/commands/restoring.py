"""Leaves a host as a command found it, whatever became of the command: measuring is no reason to change a machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from eaglelab.actions import ACTIONS
from eaglelab.actions.as_found import AT_REST
from eaglelab.actions.serve import SettingArguments
from eaglelab.actions.undo import RollbackArguments, files_back
from eaglelab.context import Context
from eaglelab.errors import AttentionError, EaglelabError, Interrupted, NotOurs

__all__ = ["found_before", "leave", "named", "put_back"]


def found_before(context: Context) -> dict[str, Any]:
    """How the host was when this run first began."""
    earlier = context.bundle.read("before.json") if context.resumed else None
    if earlier is not None:
        return earlier
    before = context.client.call("status")
    if not context.options.check:
        context.bundle.json("before.json", before)
    return before


def leave(context: Context, before: dict[str, Any], *, keep: bool, apart: bool = False) -> None:
    """After the last setting. Whoever interrupts that gets the originals back and no server.

    `apart`: servers had places of their own and have ended; the one that was there before was not touched.
    """
    if context.node is not None:
        context.node.again(context)
    with _or_attention(context, "all was measured, but"):
        try:
            if apart:
                _put_files_back(context, before)
            else:
                _restore(context, before, keep=keep)
        except KeyboardInterrupt as error:
            _put_back(context, before, apart=apart)
            raise named(context, error) from error


def put_back(context: Context, before: dict[str, Any], failure: EaglelabError, *, apart: bool = False) -> None:
    """After what no setting's own `rescue` saw: an earlier setting may have patched files and started a server.

    A host that needs a person's attention is left to that person, and one that is somebody else's by now to them.
    """
    if not context.options.check and not isinstance(failure, AttentionError | NotOurs):
        with _or_attention(context, f"{failure.what}; then"):
            _put_back(context, before, apart=apart)


def named(context: Context, error: EaglelabError | KeyboardInterrupt) -> EaglelabError:
    """An interrupt as an error of ours."""
    return error if isinstance(error, EaglelabError) else Interrupted("interrupted", where=context.host.name)


def _put_files_back(context: Context, before: dict[str, Any]) -> None:
    if context.client.call("status")["states"] != before["states"] and _at_rest(before):
        context.say.line("Put everything back as it was", style="bold")
        files_back(context)


def _put_back(context: Context, before: dict[str, Any], *, apart: bool = False) -> None:
    """An interrupt in the middle of it does not keep it from being done."""

    def once() -> None:
        if apart:
            _put_files_back(context, before)
            return
        now = context.client.call("status")
        if (now["record"], now["states"]) != (before["record"], before["states"]):
            context.say.line("Roll back", style="bold")
            ACTIONS["rollback"].run(context, RollbackArguments(keep_found=True))

    try:
        once()
    except KeyboardInterrupt:
        once()


@contextmanager
def _or_attention(context: Context, after: str) -> Iterator[None]:
    """A host that cannot be put back is a person's business."""
    try:
        yield
    except (NotOurs, Interrupted):
        raise
    except (EaglelabError, KeyboardInterrupt) as error:
        host = context.host.name
        raise AttentionError(
            f"{after} the host could not be put back: {named(context, error).what}",
            where=host,
            hint=context.invoke("rollback"),
        ) from error


def _restore(context: Context, before: dict[str, Any], *, keep: bool) -> None:
    """What ran then runs again, what was original is original."""
    if keep:
        context.say.line(f"the server stays up (--keep); {context.invoke('rollback')} puts everything back")
        return
    now, then = context.client.call("status")["record"], before["record"]
    if _on_all(context, "a server ran before", before["alive"]):
        if _on_all(context, "it runs still", bool(now) and now["fingerprint"] == then["fingerprint"]):
            return
        context.say.line(
            f"the server that ran before ({then['steps']} steps) is started again; its load goes on by itself",
            style="bold",
        )
        ACTIONS["stop"].run(context, ACTIONS["stop"].args())
        _files_as_before(context, before)
        if context.node is not None:
            context.node.meet(context, "start it again")
        ACTIONS["start"].run(
            context,
            SettingArguments(
                steps="baseline" if then["steps"] is None else then["steps"], profile=then["profile"], folder="before"
            ),
        )
        if context.client.call("status")["record"]["fingerprint"] != then["fingerprint"]:
            what = "its flags, variables or worker files are not all what they were: its run was"
            context.say.line(f"  {what} {then['run']}", style="yellow")
    elif _at_rest(before):
        context.say.line("Put everything back as it was", style="bold")
        ACTIONS["rollback"].run(context, RollbackArguments())
    else:
        context.say.line("Stop the server, as it was before", style="bold")
        ACTIONS["stop"].run(context, ACTIONS["stop"].args())


def _on_all(context: Context, at: str, here: bool) -> bool:
    """Whether something holds on this host, and where it is one node of a server on all of them."""
    return here if context.node is None else context.node.agreed(context, at, here)


def _files_as_before(context: Context, before: dict[str, Any]) -> None:
    """A load that failed has rolled back what the server that ran before was started with; one that went well has patched."""
    was, now = (_patched(status) for status in (before, context.client.call("status")))
    if was and not now:
        for name in ("doctor", "plan", "backup", "patch"):
            ACTIONS[name].run(context, ACTIONS[name].args())
    elif now and not was:
        ACTIONS["rollback"].run(context, RollbackArguments())
        context.found.patched = False
        ACTIONS["doctor"].run(context, ACTIONS["doctor"].args())  # the files are others than when it last looked


def _at_rest(status: dict[str, Any]) -> bool:
    return all(item["state"] in AT_REST for item in status["states"])


def _patched(status: dict[str, Any]) -> bool:
    return any(item["state"] == "patched" for item in status["states"])
