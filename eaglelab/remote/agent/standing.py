"""What has become of the files that a manifest names: told from what is there now, never from what was done."""

from __future__ import annotations

import os
from typing import Any

from eaglelab.remote.agent.files import sha256_of
from eaglelab.remote.agent.wire import AgentError

__all__ = ["standing", "uninstalled"]


def standing(entry: dict[str, Any], uninstalled: frozenset[str]) -> dict[str, Any]:
    """The file and its state: original, patched, foreign, missing, or gone with its SGLang (`uninstalled`).

    What cannot be read (a folder in its place, a bad disk) is foreign, with its `problem`.
    """
    found = {"path": entry["path"], "state": "foreign", "sha256": None, "original": entry["original"]}
    try:
        now = sha256_of(entry["path"])
    except AgentError as error:
        return dict(found, problem=error.what)
    if now is None and os.path.dirname(entry["path"]) in uninstalled:
        state = "gone"
    elif now == entry["original"]:
        state = "original"
    elif now in entry["patched"]:
        state = "patched"
    else:
        state = "missing" if now is None else "foreign"
    return dict(found, state=state, sha256=now)


def uninstalled(entries: list[dict[str, Any]]) -> frozenset[str]:
    """Folders of these files whose SGLang was taken away: at most what a patch brought along is left there."""
    folders: dict[str, set[str]] = {}
    for entry in entries:
        brought = folders.setdefault(os.path.dirname(entry["path"]), {"__pycache__"})
        if entry["original"] is None:
            brought.add(os.path.basename(entry["path"]))
    return frozenset(folder for folder, brought in folders.items() if _holds_only(folder, brought))


def _holds_only(folder: str, names: set[str]) -> bool:
    try:
        return names.issuperset(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
