"""plan: fetches the workers' bytes, plans the patch, and has the host read the anchors back with `sed -n`."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

from eaglelab.actions.base import Action, Arguments
from eaglelab.actions.drift import refuse_drift, refuse_edited
from eaglelab.context import Context, Options
from eaglelab.errors import HostError
from eaglelab.once import Once
from eaglelab.patching.drift import Drift, find_drift
from eaglelab.patching.errors import PatchRefused
from eaglelab.patching.folder import find_patch
from eaglelab.patching.known import load_known
from eaglelab.patching.plan import FilePlan, plan_file
from eaglelab.patching.spec import load_patch

__all__ = ["PLAN"]


class PlanArguments(Arguments):
    """`patch`: a folder under patches/."""

    patch: str = "eagle3-profile"


def _run(context: Context, args: PlanArguments) -> dict[str, Any]:
    folder = find_patch(context.options.project, args.patch)
    once = context.options.once
    spec = once(load_patch, folder)
    files = context.facts["files"]
    looked_at = [
        _plan_one(context, folder, target.path, files[target.path]["path"])
        for target in spec.targets
        if target.path in files
    ]
    # A file without an entry of its own is left out of all that follows: what is not changed is not put back either.
    plans = tuple(plan for plan in looked_at if plan.state != "nothing")
    if not plans:
        raise HostError(
            f"this host has nothing that {spec.id} patches",
            where=context.host.name,
            hint="see `targets` in its patch.yaml",
        )
    known, version = once(load_known, folder), context.facts["sglang_version"]
    installed = None if version == "unknown" else version
    drifts = {plan.path: find_drift(plan, known, installed) for plan in plans}
    context.found.spec, context.found.plans = spec, plans
    context.found.modules = {module.to: (folder / module.source).read_bytes() for module in spec.modules}
    context.found.diff = "".join(plan.diff() for plan in plans)
    changes = [plan for plan in plans if plan.state == "patch"]
    if changes or context.bundle.read("plan.json") is None:
        # A run's later loads find its own patch in place: what it changed stays on record.
        context.bundle.text("patch.diff", context.found.diff)
    context.bundle.json(
        "plan.json",
        {
            "patch": spec.id,
            "version": spec.version,
            "package": context.facts["package"],
            "files": [_describe(plan, drifts.get(plan.path)) for plan in looked_at],
        },
    )
    if not changes:
        context.say.line(f"  {spec.id} is in place: {', '.join(plan.path for plan in plans)}")
    for plan in looked_at if changes else ():
        context.say.line(f"  {plan.path}: {_in_words(plan, drifts.get(plan.path))}")
    refuse_drift(context, drifts)
    if context.options.check:
        context.say.diff(context.bundle.masker.text(context.found.diff))
    return {"changes": len(changes), "files": [plan.path for plan in plans], "records": spec.records}


def _in_words(plan: FilePlan, drift: Drift | None) -> str:
    if drift is None:
        return "nothing to patch"
    inserted = sum(len(edit.text) for edit in plan.edits)
    state = "already patched" if plan.state == "already" else f"{inserted} lines to insert"
    lines = ", ".join(f"{edit.place} {edit.line}" for edit in plan.edits)
    released = f"; {drift.headline()}" if drift.kind == "known" else ""
    return f"{state} in {plan.worker_class}; anchors at {lines}{released}"


def _plan_file(once: Once, folder: Path, target: str, data: bytes) -> FilePlan:
    return plan_file(data, once(load_patch, folder), path=target)


def _plan_one(context: Context, folder: Path, target: str, path: str) -> FilePlan:
    """The plan names the file as the patch does, below the package: the same on every host, in messages and diffs."""
    once = context.options.once
    _, data = context.client.call_bytes("read", path=path)
    try:
        plan = once(_plan_file, once, folder, target, data)
        answer = context.client.call("sed", path=path, ranges=[list(pair) for pair in plan.sed_ranges()])
        lines = {int(number): text.encode("latin-1") for number, text in answer["lines"].items()}
        plan.check_readback(lines)
    except PatchRefused as error:
        raise HostError(error.what, where=f"{context.host.name}: {error.where}", hint=error.hint) from error
    refuse_edited(context, once(load_patch, folder), plan, path)
    script = ";".join(f"{first},{last}p" for first, last in plan.sed_ranges())
    shown = "\n".join(f"{number:6d}  {text.decode(errors='replace')}" for number, text in sorted(lines.items()))
    context.bundle.text(f"sed/{PurePosixPath(target).name}.txt", f"$ sed -n '{script}' {path}\n{shown}\n")
    return plan


def _describe(plan: FilePlan, drift: Drift | None) -> dict[str, Any]:
    return {
        "path": plan.path,
        "worker_class": plan.worker_class,
        "entry": plan.entry,
        "state": plan.state,
        "found_sha256": plan.found_sha256,
        "original_sha256": plan.original_sha256,
        "patched_sha256": plan.patched_sha256,
        "edits": [
            {
                "place": edit.place,
                "line": edit.line,
                "anchor": edit.anchor.decode(errors="replace"),
                "text": [row.decode() for row in edit.text],
            }
            for edit in plan.edits
        ],
        "notes": list(plan.notes),
        "drift": drift.to_json() if drift else None,
    }


def _check_patch(options: Options, args: PlanArguments) -> None:
    options.once(load_patch, find_patch(options.project, args.patch))


def _warm(options: Options) -> None:
    options.once(load_known, find_patch(options.project, PlanArguments().patch))


PLAN = Action(
    "plan",
    PlanArguments,
    "find where the patch goes, and read those lines back on the host",
    _run,
    check=_check_patch,
    warm=_warm,
)
