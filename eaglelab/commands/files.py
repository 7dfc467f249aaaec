"""Commands that need no host: patch-check and report."""

from __future__ import annotations

import json
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
from eaglelab.profile.logfile import read_log
from eaglelab.profile.records import read_records
from eaglelab.profile.summary import summarise
from eaglelab.report.terminal import log_report, profile_table
from eaglelab.say import Say

__all__ = ["patch_check", "report"]


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


def report(project: Path, log: str | None, run: str | None, outcome: Outcome, say: Say) -> None:
    """Shows a log of any origin (`log`), or the profile of a run's bundle (the newest, if none is named)."""
    filled(log, "--log")
    filled(run, "--run")
    if log is not None:
        path = Path(log)
        if not path.is_file():
            raise InputError("there is no such file", where=log, hint="--log takes a server log, gzip too")
        found = read_log(path)
        say.show(log_report(found))
        outcome.more["log"] = found.to_json()
        return
    bundle = _bundle(project, run)
    profiles = {}
    for folder in sorted({file.parent.parent for file in bundle.rglob("probe/*.jsonl")}):
        lines = [line for file in sorted(folder.glob("probe/*.jsonl")) for line in file.read_bytes().splitlines()]
        profile = summarise(read_records(lines), simulated=_simulated(bundle))
        say.show(profile_table(profile))
        profiles[str(folder.relative_to(bundle))] = profile.to_json()
    if not profiles:
        hint = f"see what is in {bundle}; a server's log can be read with --log FILE"
        raise InputError(f"run '{bundle.name}' has no profile", where="--run", hint=hint)
    outcome.run, outcome.bundle, outcome.more["profiles"] = bundle.name, bundle, profiles


def _bundle(project: Path, run: str | None) -> Path:
    logs = project / "logs"
    if run is not None:
        named = Path(run) if Path(run).is_dir() else logs / run
        if not named.is_dir():
            raise InputError(f"there is no run '{run}'", where=str(logs), hint="a folder name under logs/")
        return named
    found = sorted({file.parents[len(file.relative_to(logs).parts) - 2] for file in logs.rglob("probe/*.jsonl")})
    if not found:
        raise InputError(
            "no run here has a profile yet", where=str(logs), hint="invoke deploy-profiling, or --log FILE"
        )
    return found[-1]


def _simulated(bundle: Path) -> str | None:
    """The label that the run's own profile was stored with."""
    for file in bundle.rglob("profile.json"):
        label = json.loads(file.read_text(encoding="utf-8")).get("simulated")
        return str(label) if label else None
    return None
