"""What a failed run leaves alone: what was on the host before it, and which it has not changed."""

from __future__ import annotations

from dataclasses import dataclass

from eaglelab.context import Context
from eaglelab.server.launching import is_there

__all__ = ["AT_REST", "Left", "left_as_found"]

AT_REST = ("original", "gone")
"""States of a file in which there is nothing to put back: it is what it was, or its whole installation is gone."""


@dataclass(frozen=True)
class Left:
    """`server`, `files`: whether that stays. `run`: which one started the server, where its record says so."""

    server: bool = False
    files: bool = False
    run: str = ""

    def __bool__(self) -> bool:
        return self.server or self.files

    def __str__(self) -> str:
        server = f"the server of run {self.run}" if self.run else "the server of ours"
        if self.server and self.files:
            return f"{server} and its patch were there before"
        return f"{server if self.server else 'the patch'} was there before"


def left_as_found(context: Context) -> Left:
    """Looks at the host. A server that another run started, and that this one has not begun to stop, is none of its
    business; nor are files that were patched before. What this run has changed, in whichever try, is not left.
    """
    if context.found.touched:
        return Left()
    status = context.client.call("status")
    record = status["record"] or {}
    if record.get("run") == context.run:  # an earlier try of this run started it
        return Left()
    server = is_there(status)
    patched = any(item["state"] not in AT_REST for item in status["states"])
    changed = context.found.changed or (not server and _changed_before(context))
    return Left(server=server, files=patched and not changed, run=str(record.get("run", "")))


def _changed_before(context: Context) -> bool:
    """Whether an earlier try changed files that were not put back since. One that was killed meanwhile may have."""
    changed = before = False
    for event in context.bundle.events() if context.resumed else ():
        done = event["action"], event["state"]
        if done == ("patch", "started"):
            before, changed = changed, True
        elif done == ("patch", "ok"):
            changed = before or bool((event.get("result") or {}).get("changed", True))
        elif done == ("rollback", "ok"):
            changed = changed and bool((event.get("result") or {}).get("left"))
    return changed
