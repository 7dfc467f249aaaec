"""backup and patch: originals stored and named on the host first, then every file swapped in one step."""

from __future__ import annotations

import getpass
import hashlib
import posixpath
import socket
from typing import Any

from eaglelab.actions.base import Action, NoArguments
from eaglelab.context import Context
from eaglelab.remote.hints import AgentFailure

__all__ = ["BACKUP", "PATCH", "operator"]


def operator() -> str:
    """Who works from where, for the host's journal and lock."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


def _module_paths(context: Context) -> dict[str, bytes]:
    """Where on the host the patch's own files go: beside the workers, in the package that the server imports."""
    return {posixpath.join(context.facts["package"], to): data for to, data in context.found.modules.items()}


def _existing(context: Context, path: str) -> dict[str, Any] | None:
    try:
        return context.client.call("read", path=path)
    except AgentFailure as error:
        if error.code == "no-such-file":
            return None
        raise


def _backup(context: Context, _: NoArguments) -> dict[str, Any]:
    facts, spec = context.facts, context.spec
    by_path = {found["path"]: found for found in facts["files"].values()}
    owner = by_path[context.found.plans[0].path]
    known = {entry["path"]: entry for entry in (facts["manifest"] or {"files": []})["files"]}
    files = []
    for path, data in _module_paths(context).items():
        found = _existing(context, path)
        sha = found["sha256"] if found else None
        # A module of an earlier run of ours has no original; anything else under that name is somebody's file.
        original = known[path]["original"] if path in known else sha
        files.append(
            {"path": path, "found": sha, "original": original, "patched": hashlib.sha256(data).hexdigest()}
            | {key: (found or owner)[key] for key in ("mode", "uid", "gid")}
        )
    unknown = []  # patched by us, and no manifest there remembers it: the original comes from here
    for plan in context.found.plans:
        file = by_path[plan.path]
        files.append(
            {"path": plan.path, "found": plan.found_sha256, "original": plan.original_sha256, "patched": plan.patched_sha256}
            | {key: file[key] for key in ("mode", "uid", "gid")}
        )
        if plan.found != plan.original:
            unknown.append({"path": plan.path, "size": len(plan.original), "sha256": plan.original_sha256, "data": plan.original})
    manifest = context.client.call(
        "backup",
        b"".join(item["data"] for item in unknown),
        run=context.run,
        patch=f"{spec.id} {spec.version}",
        by=operator(),
        files=files,
        originals=[{key: item[key] for key in ("path", "size", "sha256")} for item in unknown],
    )
    context.bundle.json("manifest.json", manifest)
    context.say.line(f"  originals are in {facts['state']}/objects on the host")
    return {"files": [entry["path"] for entry in manifest["files"]]}


def _backup_preview(context: Context, _: NoArguments) -> dict[str, Any]:
    paths = [plan.path for plan in context.found.plans]
    context.say.line(f"  would store the originals of {', '.join(paths)} in {context.facts['state']}/objects on the host")
    return {"files": paths}


def _patch(context: Context, _: NoArguments) -> dict[str, Any]:
    contents = _module_paths(context) | {plan.path: plan.patched for plan in context.found.plans}
    files = [{"path": path, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for path, data in contents.items()]
    done = context.client.call("apply", b"".join(contents.values()), run=context.run, files=files)["files"]
    changed = [change["path"] for change in done if change["changed"]]
    context.say.line(f"  {len(changed)} of {len(done)} files changed" if changed else "  already in place: nothing changed")
    return {"changed": changed, "files": done}


def _patch_preview(context: Context, _: NoArguments) -> dict[str, Any]:
    changes = [plan.path for plan in context.found.plans if plan.state == "patch"]
    context.say.line(f"  would patch {', '.join(changes)}" if changes else "  already in place: nothing to change")
    return {"changed": changes}


BACKUP = Action("backup", NoArguments, "store the originals on the host and name them in its manifest", _backup, _backup_preview)
PATCH = Action("patch", NoArguments, "swap in the planned files, all of them or none", _patch, _patch_preview)
