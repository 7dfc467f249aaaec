"""Which living processes are our server's: those of its session, and those that left it but carry our mark.

The mark alone proves nothing. A shell that was given our server's environment, to look into a problem, carries it; and
in a container the same path is another folder.
"""

from __future__ import annotations

import os
import re
from typing import Any, Callable, Iterator

from eaglelab.remote.agent.keeper import HELPERS, KEEPER
from eaglelab.remote.agent.lineage import ancestors, find_reaper
from eaglelab.remote.agent.processes import (
    boot_id,
    descendants,
    listener,
    process_ids,
    process_name,
    session_members,
    start_ticks,
)
from eaglelab.remote.agent.record import is_process_of, same_process

__all__ = ["MARK", "find_members", "identity", "mount_namespace", "port_holder"]

MARK = "EAGLELAB_SERVER"
"""Environment variable that every process of a server of ours inherits; its value is that of `identity`'s `mark`."""

_WORD = re.compile(r"#[0-9a-f]{16}\Z")
"""What follows the state folder in a mark: one server's alone. Marks of earlier versions lack it."""


def identity(folder: str) -> dict[str, Any]:
    """What a server about to be started here is known by later: its mark, its mount namespace and who takes in orphans."""
    reaper = find_reaper()
    return {
        "mark": "%s#%s" % (folder, os.urandom(8).hex()),
        "mount_ns": mount_namespace(os.getpid()),
        "reaper": reaper,
        "reaper_start": start_ticks(reaper),
    }


def port_holder(port: int, folder: str) -> dict[str, Any] | None:
    """As `listener`; `state` is the other state folder of eaglelab from which it was started, if any."""
    found = listener(port)
    if found is not None:
        state = _folder_of(_mark_of(found["pid"]) or "")
        if state and state != folder:
            found["state"] = state
    return found


def find_members(folder: str, record: dict[str, Any] | None, damaged: bool) -> tuple[set[int], set[int]]:
    """Living processes of the server of this state folder, and strangers who carry its mark.

    `record`: of that server. Without one, whatever was started from this folder counts as its; where it is `damaged`,
    nothing names the session, and what our processes started is ours, also where it hides its environment.
    """
    present = record if record is not None and record["boot"] == boot_id() else None
    if record is not None and present is None:
        return set(), set()  # from before a reboot
    own = {os.getpid(), *(ancestors(os.getpid()) or ())}
    wanted = _is_mark(folder, record)
    carriers = {pid for pid, mark in _carriers() if wanted(mark)} - own
    session: set[int] = set()
    if present:
        session = session_members(
            present["session"],
            present["session_start"],
            lambda pid: pid in carriers or is_process_of(present, pid),
        )
    candidates = carriers - session
    spaces = {mount_namespace(pid) for pid in [os.getpid(), *session]} | {(present or {}).get("mount_ns"), None}
    candidates = {pid for pid in candidates if mount_namespace(pid) in spaces}
    reapers = _reapers(present) if candidates else set()
    ours, strangers = set(session), set()
    for pid in candidates:
        above = ancestors(pid)
        if above is None:
            continue
        early = present is not None and (start_ticks(pid) or 0) < present["session_start"]
        if not early and _is_ours(
            above, session, reapers, lambda parent: parent not in own and wanted(_mark_of(parent))
        ):
            ours.add(pid)
        else:
            strangers.add(pid)
    if damaged:
        for pid in list(ours):
            ours |= descendants(pid)
    return ours - own, strangers - ours


def mount_namespace(pid: int) -> int | None:
    """The number of the namespace in which the process sees files; None where this user may not know."""
    try:
        return os.stat("/proc/%d/ns/mnt" % pid).st_ino
    except OSError:
        return None


def _is_ours(above: list[int], session: set[int], reapers: set[int], is_marked: Callable[[int], bool]) -> bool:
    """Whether a process with these parents was left behind by our server, and not started by somebody else.

    What a server's daemon has above it is marked as well, up to the process that takes in orphans.
    """
    if session.intersection(above):
        return True
    for parent in above:
        if parent in reapers or process_name(parent) == KEEPER:
            return True
        if not is_marked(parent):
            return False
    return False


def _reapers(present: dict[str, Any] | None) -> set[int]:
    """Who may have taken in what our server left behind."""
    noted = present.get("reaper") if present else None
    if present and same_process(noted, present.get("reaper_start"), present):
        return {1, present["reaper"]}
    return {1, find_reaper()}


def _is_mark(folder: str, record: dict[str, Any] | None) -> Callable[[str | None], bool]:
    if record is not None:
        return lambda mark: mark == record.get("mark", folder)
    return lambda mark: mark is not None and _folder_of(mark) == folder


def _folder_of(mark: str) -> str:
    return _WORD.sub("", mark)


def _mark_of(pid: int) -> str | None:
    """The mark in the environment that a process was started with. One that sets its title may overwrite that."""
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            for variable in file.read().split(b"\0"):
                name, _, value = variable.partition(b"=")
                if name == MARK.encode():
                    return os.fsdecode(value)
    except OSError:
        pass
    return None


def _carriers() -> Iterator[tuple[int, str]]:
    """Living processes with a mark. Our own helpers have one where an agent does, and say nothing about servers."""
    for pid in process_ids():
        mark = _mark_of(pid)
        if mark is not None and start_ticks(pid) is not None and process_name(pid) not in HELPERS:
            yield pid, mark
