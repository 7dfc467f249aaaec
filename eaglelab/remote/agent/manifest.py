"""The manifest of a state folder: which files may be changed, and what each may be. Read only if it is whole."""

from __future__ import annotations

import json
import os
import re
import shlex
from typing import Any, Callable

from eaglelab.remote.agent.files import open_regular
from eaglelab.remote.agent.shapes import is_count, is_number, is_text, list_of, misfit, optional
from eaglelab.remote.agent.state import StateFolder
from eaglelab.remote.agent.wire import AgentError

__all__ = ["manifest_entries", "read_manifest"]

_NOBODY = (1 << 32) - 1
"""To the kernel, -1: the owner is to stay as it is."""


def _is_sha256(digest: Any) -> bool:
    return isinstance(digest, str) and re.match(r"[0-9a-f]{64}\Z", digest) is not None


def _is_path(path: Any) -> bool:
    return is_text(path) and os.path.isabs(path)


def _is_owner(number: Any) -> bool:
    return is_count(number) and number < _NOBODY


def _is_mode(mode: Any) -> bool:
    return is_count(mode) and mode <= 0o7777


def _is_run(name: Any) -> bool:
    return isinstance(name, str) and re.match(r"[\w.-]+\Z", name) is not None


# The run names a file of the history, and an original's sha256 one of the objects: neither may lead elsewhere.
_MANIFEST: dict[str, Callable[[Any], bool]] = {"run": _is_run, "files": list_of(lambda entry: isinstance(entry, dict))}

_ENTRY: dict[str, Callable[[Any], bool]] = {
    "path": _is_path,
    "original": optional(_is_sha256),
    "patched": list_of(_is_sha256),
    "mode": _is_mode,
    "uid": _is_owner,
    "gid": _is_owner,
}
"""What an entry holds. A missing `original` is never taken for None, which lets a rollback remove the file."""


def read_manifest(state: StateFolder) -> dict[str, Any] | None:
    """The manifest; None if there is none.

    Raises `bad-state` where it is not as a backup writes it; `mend` then says how to go on by hand.
    """
    path = os.path.join(state.folder, "manifest.json")
    try:
        found = state.read("manifest.json", _MANIFEST, {"patch": is_text, "by": is_text, "time": is_number})
        for entry in found["files"] if found else ():
            wrong = misfit(entry, _ENTRY, {"link": optional(is_text)})
            if wrong:
                raise AgentError("bad-state", "%s: an entry of its files %s" % (path, wrong), path=path)
        return found
    except AgentError as error:
        if error.code == "bad-state":
            error.details["mend"] = _by_hand(state)
        raise


def manifest_entries(state: StateFolder) -> list[dict[str, Any]]:
    """The manifest's files, none if there is no manifest. Raises as `read_manifest`."""
    found = read_manifest(state)
    return [] if found is None else list(found["files"])


def _is_original(path: Any, original: Any) -> bool:
    return _is_path(path) and (original is None or _is_sha256(original))


_LATEST = 1 << 20
"""Bytes of the journal's end in which the backups are looked for; a backup takes some hundred."""


def _by_hand(state: StateFolder) -> str:
    """Commands that put the originals back without a manifest, from what the journal says was stored last."""
    commands = []
    for path, original in _stored(state).items():
        stored = os.path.join(state.folder, "objects", original or "")
        if original is None:
            commands.append("rm -f %s" % shlex.quote(path))
        elif os.path.exists(stored):
            # Into the file that is there, so that its mode and its owner stay.
            commands.append("cat %s > %s" % (shlex.quote(stored), shlex.quote(path)))
    damaged = shlex.quote(os.path.join(state.folder, "manifest.json"))
    return " && ".join(commands + ["mv %s %s.damaged" % (damaged, damaged)])


def _stored(state: StateFolder) -> dict[str, str | None]:
    """Path -> sha256 of its original, by the backups in the journal since the last rollback that left nothing behind."""
    found: dict[str, str | None] = {}
    for line in _latest_lines(os.path.join(state.folder, "journal.jsonl")):
        try:
            note = json.loads(line)
            if note["op"] == "backup":
                found.update({path: original for path, original in note["files"] if _is_original(path, original)})
            elif note["op"] == "rollback" and all(became not in ("foreign", "failed") for _, became in note["files"]):
                found.clear()
        except (ValueError, TypeError, KeyError, RecursionError):
            continue  # half a line, or somebody else's
    return found


def _latest_lines(path: str) -> list[bytes]:
    try:
        with os.fdopen(open_regular(path, os.O_NOFOLLOW), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LATEST))
            return file.read(_LATEST).splitlines()
    except (OSError, AgentError):
        return []
