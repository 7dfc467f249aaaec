"""backup and patch: originals stored and named on the host first, then every file swapped in one step."""

from __future__ import annotations

import getpass
import hashlib
import posixpath
import socket
from collections.abc import Mapping
from typing import Any

from eaglelab.actions.base import Action, NoArguments
from eaglelab.context import Context
from eaglelab.patching.marker import comes_with
from eaglelab.remote.hints import AgentFailure

__all__ = ["BACKUP", "PATCH", "operator"]


def operator() -> str:
    """Who works from where, for the host's journal and lock."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


def _module_paths(context: Context) -> dict[str, bytes]:
    """Where on the host the patch's own files go: beside the workers, in the package that the server imports."""
    return {posixpath.join(context.facts["package"], to): data for to, data in context.found.modules.items()}


def _existing(context: Context, path: str) -> tuple[dict[str, Any] | None, bytes]:
    try:
        return context.client.call_bytes("read", path=path)
    except AgentFailure as error:
        if error.code == "no-such-file":
            return None, b""
        raise


def _module_entry(context: Context, path: str, data: bytes) -> dict[str, Any]:
    """The manifest's entry for a file that the patch brings along: no original, unless somebody had one of that name."""
    found, before = _existing(context, path)
    digest = found["sha256"] if found else None
    original = None if comes_with(context.spec.id, before) else digest
    owner = found or context.facts["files"][next(iter(context.facts["files"]))]
    return _entry(path, owner, found=digest, original=original, patched=hashlib.sha256(data).hexdigest())


def _entry(path: str, owner: Mapping[str, Any], **digests: str | None) -> dict[str, Any]:
    return {"path": path, **digests, **{key: owner[key] for key in ("mode", "uid", "gid")}}


def _worker_entry(path: str, about: Mapping[str, Any], **digests: str | None) -> dict[str, Any]:
    """`link`: what the link says that is to give way to a file (see `eaglelab/remote/agent/links.py`)."""
    return {**_entry(path, about, **digests), "link": about.get("link")}


def _sized(contents: Mapping[str, bytes]) -> list[dict[str, Any]]:
    """What the agent needs to take the joined bytes apart again."""
    return [
        {"path": path, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for path, data in contents.items()
    ]


def _backup(context: Context, _: NoArguments) -> dict[str, Any]:
    files = [_module_entry(context, path, data) for path, data in _module_paths(context).items()]
    for plan in context.plans:
        digests = {"found": plan.found_sha256, "original": plan.original_sha256, "patched": plan.patched_sha256}
        files.append(_worker_entry(context.host_path(plan), context.facts["files"][plan.path], **digests))
    # Patched by us, and perhaps no manifest there remembers it: then the original comes from here.
    originals = {context.host_path(plan): plan.original for plan in context.plans if plan.found != plan.original}
    manifest = context.client.call(
        "backup",
        b"".join(originals.values()),
        run=context.run,
        patch=f"{context.spec.id} {context.spec.version}",
        by=operator(),
        files=files,
        originals=_sized(originals),
    )
    context.bundle.json("manifest.json", manifest)
    context.say.line(f"  originals are in {context.facts['state']}/objects on the host")
    return {"files": [entry["path"] for entry in manifest["files"]]}


def _backup_preview(context: Context, _: NoArguments) -> dict[str, Any]:
    paths = [plan.path for plan in context.plans]
    context.say.line(
        f"  would store the originals of {', '.join(paths)} in {context.facts['state']}/objects on the host"
    )
    return {"files": paths}


def _patch(context: Context, _: NoArguments) -> dict[str, Any]:
    contents = _module_paths(context) | {context.host_path(plan): plan.patched for plan in context.plans}
    before, context.found.changed = context.found.changed, True  # what an interrupt leaves is not known
    answer = context.client.call("apply", b"".join(contents.values()), run=context.run, files=_sized(contents))
    context.found.patched = True
    done = answer["files"]
    changed = [change["path"] for change in done if change["changed"]]
    context.found.changed = before or bool(changed)
    context.say.line(
        f"  {len(changed)} of {len(done)} files changed" if changed else "  already in place: nothing changed"
    )
    return {"changed": changed, "files": done}


def _patch_preview(context: Context, _: NoArguments) -> dict[str, Any]:
    changes = [plan.path for plan in context.plans if plan.state == "patch"]
    context.found.patched = True  # as far as what follows is concerned
    context.say.line(f"  would patch {', '.join(changes)}" if changes else "  already in place: nothing to change")
    return {"changed": changes}


BACKUP = Action(
    "backup", NoArguments, "store the originals on the host and name them in its manifest", _backup, _backup_preview
)
PATCH = Action("patch", NoArguments, "swap in the planned files, all of them or none", _patch, _patch_preview)
