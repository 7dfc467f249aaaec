"""The manifest of a state folder: which files may be changed, and what each may be. Read only if it is whole."""

from __future__ import annotations

import os
from typing import Any

from eaglelab.remote.agent.state import StateFolder
from eaglelab.remote.agent.wire import AgentError

__all__ = ["manifest_entries", "read_manifest"]

_ENTRY: dict[str, Any] = {
    "path": str,
    "original": (str, type(None)),
    "patched": list,
    "mode": int,
    "uid": int,
    "gid": int,
}
"""What an entry holds. A missing `original` is never taken for None, which lets a rollback remove the file."""


def read_manifest(state: StateFolder) -> dict[str, Any] | None:
    """The manifest; None if there is none. Raises `bad-state` where it is not as a backup writes it."""
    found = state.read("manifest.json", "run", "files")
    if found is not None and not (isinstance(found["files"], list) and all(map(_is_entry, found["files"]))):
        path = os.path.join(state.folder, "manifest.json")
        raise AgentError("bad-state", "%s: not every file in it has %s" % (path, ", ".join(_ENTRY)), path=path)
    return found


def manifest_entries(state: StateFolder) -> list[dict[str, Any]]:
    """The manifest's files, none if there is no manifest. Raises as `read_manifest`."""
    found = read_manifest(state)
    return [] if found is None else list(found["files"])


def _is_entry(entry: Any) -> bool:
    return isinstance(entry, dict) and all(
        key in entry and isinstance(entry[key], kind) for key, kind in _ENTRY.items()
    )
