"""Commands that need no host: patch-check."""

from __future__ import annotations

from pathlib import Path

from eaglelab.commands.options import filled
from eaglelab.commands.outcome import Outcome
from eaglelab.errors import InputError
from eaglelab.patching.drift import find_drift
from eaglelab.patching.errors import PatchRefused
from eaglelab.patching.folder import find_patch
from eaglelab.patching.known import load_known
from eaglelab.patching.plan import plan_file
from eaglelab.patching.spec import load_patch
from eaglelab.say import Say

__all__ = ["patch_check"]


def patch_check(project: Path, file: str | None, out: str | None, patch: str, outcome: Outcome, say: Say) -> None:
    """Plans a patch for a local copy of a worker; raises the refusal (exit 1) with its reason."""
    filled(out, "--out")
    if not file or not file.strip():
        raise InputError("no file is named", where="--file", hint="--file eagle_worker.py")
    folder = find_patch(project, patch)
    spec = load_patch(folder)
    path = Path(file)
    try:
        source = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"cannot read it: {error.strerror}", where=file, hint="--file takes a local copy of a worker"
        ) from error
    plan = plan_file(source, spec, path=file)
    if plan.state == "nothing":
        raise PatchRefused(plan.notes[0], path=file, hint="the file of the class that it inherits from is patched")
    for edit in plan.edits:
        say.line(f"line {edit.line:5d}  {edit.place:13s} {edit.anchor.decode(errors='replace')}")
    diff = plan.diff()
    say.diff(diff)
    say.line(
        f"{spec.id} {spec.version} {'is in this file already' if plan.state == 'already' else 'applies'}: {plan.worker_class}.{plan.entry}"
    )
    drift = find_drift(plan, load_known(folder), None)
    say.line("\n    ".join([drift.headline(), *drift.lines()]), style="" if drift.kind == "known" else "yellow")
    if drift.kind == "new":
        say.line("in an installation of a known release this file is refused, unless --accept-drift lets it pass")
    if out:
        try:
            Path(out).write_bytes(plan.patched)
        except OSError as error:
            raise InputError(
                f"cannot write it: {error.strerror}", where=out, hint="--out takes a file to write"
            ) from error
    outcome.more["patch"] = {
        "id": spec.id,
        "state": plan.state,
        "worker_class": plan.worker_class,
        "original_sha256": plan.original_sha256,
        "patched_sha256": plan.patched_sha256,
        "anchors": [
            {"place": edit.place, "line": edit.line, "text": edit.anchor.decode(errors="replace")}
            for edit in plan.edits
        ],
        "drift": drift.to_json(),
        "diff": diff,
    }
