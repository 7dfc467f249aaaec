"""Refuses workers that somebody has edited, line by line: before the patch went in (drift), or after."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from eaglelab.context import Context
from eaglelab.errors import HostError
from eaglelab.patching.drift import Drift
from eaglelab.patching.errors import PatchRefused
from eaglelab.patching.marker import split_lines
from eaglelab.patching.plan import FilePlan, plan_file
from eaglelab.patching.spec import PatchSpec
from eaglelab.remote.hints import AgentFailure

__all__ = ["refuse_drift", "refuse_edited"]

_ELSEWHERE = "its original is not kept on the host, so the lines cannot be told"


def refuse_drift(context: Context, drifts: Mapping[str, Drift]) -> None:
    """Says how every file that is no released one differs. Raises HostError for one that is not its release's.

    `--accept-drift` lets it pass. A release that the patch does not know yet is no reason to refuse: what must hold of a
    file is checked in the file itself.
    """
    edited = {path: drift for path, drift in drifts.items() if drift.kind == "edited"}
    for path, drift in drifts.items():
        if drift.kind == "new" or (path in edited and context.options.accept_drift):
            context.say.line(_report(path, drift), style="yellow")
    if edited and not context.options.accept_drift:
        raise HostError(
            "\n".join(_report(path, drift) for path, drift in edited.items()),
            where=context.host.name,
            hint="reinstall SGLang there; or, if these lines are as they should be: --accept-drift",
        )


def _report(path: str, drift: Drift) -> str:
    return "\n    ".join([f"  {path}: {drift.headline()}", *drift.lines()])


def refuse_edited(context: Context, spec: PatchSpec, plan: FilePlan, path: str) -> None:
    """A patched file that somebody has edited is said here, before a server is stopped for nothing."""
    for entry in (context.facts["manifest"] or {"files": []})["files"]:
        known = entry["path"] != path or plan.found_sha256 in (entry["original"], *entry["patched"])
        if not known and plan.found != plan.original:
            changes = "\n".join(_since(context, spec, plan, entry)) or _ELSEWHERE
            raise HostError(
                f"{path} holds lines of eaglelab, and somebody has edited it since they were written:\n{changes}",
                where=context.host.name,
                hint=f"{context.invoke('rollback')} says how to have the original back",
            )


def _since(context: Context, spec: PatchSpec, plan: FilePlan, entry: Mapping[str, Any]) -> Iterable[str]:
    """What differs between the bytes that we wrote and those that are there.

    Where another version of the patch wrote them, its own lines are left out on both sides.
    """
    try:
        _, original = context.client.call_bytes("read", path=f"{context.facts['state']}/objects/{entry['original']}")
        ours = plan_file(original, spec, path=plan.path)
    except (AgentFailure, PatchRefused):
        return []
    written, found = ours.original, plan.original
    if ours.patched_sha256 in entry["patched"] or written == found:
        written, found = ours.patched, plan.found
    return difflib.unified_diff(_text(written), _text(found), "as eaglelab wrote it", "as it is now", n=1, lineterm="")


def _text(data: bytes) -> Sequence[str]:
    return [line.decode(errors="replace").rstrip("\r\n") for line in split_lines(data)]
