"""What is written down of the server: who it is, how it ended, and which living process that proves to be it."""

from __future__ import annotations

import glob
import os
from typing import Any

from eaglelab.remote.agent.processes import boot_id, start_ticks, writes_to
from eaglelab.remote.agent.shapes import is_count, is_number, is_pid, is_port, is_switch, is_text, list_of, optional
from eaglelab.remote.agent.state import StateFolder
from eaglelab.remote.agent.wire import AgentError

__all__ = ["damaged_record", "is_process_of", "lives", "read_exit", "read_record", "same_process", "set_aside"]

_RECORD = {
    "run": is_text,
    "port": is_port,
    "log": is_text,
    "log_offset": is_count,
    "log_device": is_count,
    "log_inode": is_count,
    "boot": is_text,
}
"""Without these a record proves nothing about any server."""

_PROCESS = {
    "session": is_pid,
    "session_start": is_count,
    "pid": optional(is_pid),
    "pid_start": optional(is_count),
}
"""Nor, without these, about one that is a process of this host."""

_ENGINE = {"name": is_text, "launcher": is_text, "mark": is_text}
"""Nor, without these, about one that an engine runs."""

_ALSO = {
    "mark": is_text,
    "mount_ns": optional(is_count),
    "reaper": is_count,
    "reaper_start": optional(is_count),
    "token": is_text,
    "time": is_number,
    "command": list_of(is_text),
    "env": list_of(is_text),
    "log_before": optional(is_text),
    "by": is_text,
    "fingerprint": is_text,
    "steps": optional(is_count),
    "profile": is_switch,
    "probe_folder": optional(is_text),
    "launcher": is_text,
    "name": is_text,
    "job": optional(is_text),
    "apart": is_switch,
    "engine": is_text,
    "unit": is_text,
    "group": is_text,
    "user": is_switch,
    "existing": is_switch,
    "image": is_text,
}
"""What a record may lack: it was written by an earlier version, or nobody needs it."""

_EXIT = {"code": optional(is_count), "signal": optional(is_count)}


def read_record(state: StateFolder) -> tuple[dict[str, Any] | None, str | None]:
    """The record, None if there is none; and what is wrong with it where it is damaged, which counts as none.

    Of a server that an engine runs there is a second one, in its own folder, by which it is found all the same.
    """
    try:
        return _read(state, "server.json"), None
    except AgentError as error:
        if error.code != "bad-state":
            raise
        return _second(state), error.what


def _read(state: StateFolder, name: str) -> dict[str, Any] | None:
    found = state.read(name, _RECORD, _ALSO)
    if found is not None:
        state.read(name, _PROCESS if found.get("launcher", "process") == "process" else _ENGINE, _ALSO)
    return found


def _second(state: StateFolder) -> dict[str, Any] | None:
    for path in sorted(glob.glob(os.path.join(glob.escape(state.folder), "launch", "*", "record.json"))):
        try:
            return _read(state, os.path.relpath(path, state.folder))
        except AgentError:
            continue
    return None


def read_exit(state: StateFolder) -> dict[str, Any] | None:
    """How the server ended; None if that was not written down, or is damaged."""
    try:
        return state.read("server.exit.json", _EXIT, {"pid": is_pid, "time": is_number})
    except AgentError as error:
        if error.code != "bad-state":
            raise
        return None


def damaged_record(state: StateFolder) -> str:
    """The path of a record that was set aside."""
    return os.path.join(state.folder, "server.json.damaged")


def set_aside(state: StateFolder) -> None:
    """Moves a damaged record out of the way, for a person to look at."""
    try:
        os.replace(os.path.join(state.folder, "server.json"), damaged_record(state))
    except OSError:
        pass  # who needs its place removes it, or says that it cannot


def same_process(pid: int | None, start: int | None, record: dict[str, Any]) -> bool:
    """Whether a process of the record lives. A pid alone says nothing: it may be another's by now."""
    if pid is None or start is None or record["boot"] != boot_id():
        return False
    return start_ticks(pid) == start


def lives(record: dict[str, Any] | None) -> bool:
    """Whether the server's first process does."""
    return record is not None and same_process(record["pid"], record["pid_start"], record)


def is_process_of(record: dict[str, Any], pid: int) -> bool:
    """Proof by more than a number: it is the server's first process, or it writes to the server's log."""
    if pid == record["pid"] and start_ticks(pid) == record["pid_start"]:
        return True
    return writes_to(pid, record["log_device"], record["log_inode"])
