"""Patches the worker files of every SGLang release, runs them, and takes the patch out again.

python tests/matrix/matrix.py [--families] [--releases VERSION,VERSION] [--fetch | --known]

Prints one line a release and a headline last; 1 if anything is wrong. Released files are downloaded once (two at a time).
--known writes what each patch knows of the released files (known.json beside its patch.yaml) anew, and checks nothing.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from cycle import complaints, patched_package
from wheels import Release, fetched, releases

from eaglelab.lab.provision import cache_folder
from eaglelab.patching.errors import PatchRefused
from eaglelab.patching.known import FILE, Known, describe, load_known
from eaglelab.patching.plan import FilePlan, plan_file, strip
from eaglelab.patching.spec import PatchSpec, load_patch

__all__ = ["Outcome", "check_release", "chosen", "main"]

PATCHES = Path(__file__).parents[2] / "patches"
PROFILE = "eagle3-profile"
DOWNLOADS = 2
SHORT = {
    "eagle_worker": "v1",
    "eagle_worker_v2": "v2",
    "multi_layer_eagle_worker": "ML v1",
    "multi_layer_eagle_worker_v2": "ML v2",
    "frozen_kv_mtp_worker": "frozen v1",
    "frozen_kv_mtp_worker_v2": "frozen v2",
}


@dataclass
class Outcome:
    """What one release came to. `patched` and `nothing` name workers as in SHORT, `wrong` has one sentence a failure."""

    version: str
    patched: list[str] = field(default_factory=list)
    nothing: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def line(self) -> str:
        if self.wrong:
            return "\n".join([f"{self.version:12} WRONG", *(f"    {complaint}" for complaint in self.wrong)])
        inherited = f"   (inherits its entry: {', '.join(self.nothing)})" if self.nothing else ""
        return f"{self.version:12} {', '.join(self.patched)}{inherited}"


def check_release(version: str, folder: Path, scratch: Path) -> Outcome:
    """Plans every patch for the release's workers, and runs those of the profile patch with a recording probe."""
    outcome = Outcome(version)
    for patch in sorted(path.parent for path in PATCHES.glob("*/patch.yaml")):
        spec = load_patch(patch)
        plans = _plans(spec, folder, outcome)
        outcome.wrong += _unknown(spec, plans, load_known(patch), version)
        if spec.id == PROFILE:
            outcome.patched = [SHORT[Path(plan.path).stem] for plan in plans if plan.state == "patch"]
            outcome.nothing = [SHORT[Path(plan.path).stem] for plan in plans if plan.state == "nothing"]
            _run(plans, folder, scratch, outcome)
    if not outcome.patched:
        outcome.wrong.append("no worker was patched")
    return outcome


def _plans(spec: PatchSpec, folder: Path, outcome: Outcome) -> list[FilePlan]:
    plans = []
    for target in spec.targets:
        file = folder / "sglang" / target.path
        if file.is_file():
            try:
                plans.append(_plan(spec, file.read_bytes(), target.path))
            except (PatchRefused, AssertionError) as error:
                outcome.wrong.append(f"{spec.id}: {error}")
    return plans


def _unknown(spec: PatchSpec, plans: Sequence[FilePlan], known: Known, version: str) -> list[str]:
    """What the patch does not know of these files, or knows wrongly."""
    wrong = []
    for plan in plans:
        file = known.find(plan.original_sha256)
        if (
            file is None
            or version not in file.releases
            or replace(file, releases=()) != replace(describe(plan), path=file.path)
        ):
            wrong.append(f"{spec.id}: {FILE} is not up to date with {plan.path}: matrix.py --known")
    return wrong


def _write_known(folders: Sequence[tuple[Release, Path]]) -> None:
    for patch in sorted(path.parent for path in PATCHES.glob("*/patch.yaml")):
        spec = load_patch(patch)
        plans = [
            (release.version, plan_file(file.read_bytes(), spec, path=target.path))
            for release, folder in folders
            for target in spec.targets
            if (file := folder / "sglang" / target.path).is_file()
        ]
        known = Known.of(plans)
        (patch / FILE).write_text(known.to_json(), encoding="utf-8")
        print(f"{spec.id}: {len(known.files)} different files in {len(plans)}")


def _plan(spec: PatchSpec, original: bytes, path: str) -> FilePlan:
    """The plan, once it has been seen to be the same twice and to come out again. Compiling is part of planning."""
    plan = plan_file(original, spec, path=path)
    if plan.state == "nothing":
        assert plan.patched == original, f"{path}: nothing to patch, and yet other bytes"
        return plan
    again = plan_file(plan.patched, spec, path=path)
    assert again.state == "already", f"{path}: the second time it is not 'already'"
    assert again.patched == plan.patched, f"{path}: the second time other bytes come out"
    assert again.original == strip(plan.patched, spec.id) == original, f"{path}: taking it out leaves other bytes"
    return plan


def _run(plans: Sequence[FilePlan], folder: Path, scratch: Path, outcome: Outcome) -> None:
    with patched_package(folder, list(plans), scratch):
        for plan in plans:
            if plan.state == "patch":
                outcome.wrong += [f"{plan.path}: {what}" for what in _complaints(plan, outcome.version)]


def _complaints(plan: FilePlan, version: str) -> list[str]:
    try:
        return complaints(plan, version)
    except Exception as error:  # noqa: BLE001 - real files under stubs: whatever they raise is a finding
        return [f"does not run: {type(error).__name__}: {error}"]


def chosen(families: bool, versions: Sequence[str]) -> list[Release]:
    """The releases to check: named ones, the first of each family and the newest, or all. Raises SystemExit for an unknown one."""
    known = releases()
    unknown = set(versions) - {release.version for release in known}
    if unknown:
        sys.exit(f"not in releases.txt: {', '.join(sorted(unknown))}")
    if versions:
        return [release for release in known if release.version in versions]
    return [release for release in known if release.families or release is known[-1] or not families]


def _checked(future: Future[Path], release: Release, scratch: Path) -> Outcome:
    try:
        return check_release(release.version, future.result(), scratch)
    except OSError as error:
        return Outcome(release.version, wrong=[str(error)])


def main(arguments: Sequence[str]) -> int:
    """0 if every worker of every chosen release is patched, runs, and is restored."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--families", action="store_true", help="the first release of each shape family, and the newest"
    )
    parser.add_argument("--releases", default="", help="these releases only, with commas")
    parser.add_argument("--fetch", action="store_true", help="only fill the cache")
    parser.add_argument("--known", action="store_true", help="write what the patches know of all released files")
    options = parser.parse_args(arguments)
    versions = [version for version in options.releases.split(",") if version]
    wanted = releases() if options.known else chosen(options.families, versions)
    started = time.monotonic()
    with ThreadPoolExecutor(DOWNLOADS) as pool, tempfile.TemporaryDirectory() as scratch:
        downloads = [(release, pool.submit(fetched, release.version, cache_folder())) for release in wanted]
        if options.fetch:
            failures = [str(error) for _, future in downloads if (error := future.exception())]
            print("\n".join(failures) or f"{len(downloads)} releases in {cache_folder()}")
            return 1 if failures else 0
        if options.known:
            _write_known([(release, future.result()) for release, future in downloads])
            return 0
        outcomes = []
        for release, future in downloads:
            outcomes.append(_checked(future, release, Path(scratch)))
            print(outcomes[-1].line(), flush=True)
    return _headline(outcomes, time.monotonic() - started)


def _headline(outcomes: Sequence[Outcome], seconds: float) -> int:
    files = sum(len(outcome.patched) for outcome in outcomes)
    inherited = sum(len(outcome.nothing) for outcome in outcomes)
    wrong = [outcome for outcome in outcomes if outcome.wrong]
    print(f"({seconds:.0f} s; {inherited} more files leave the entry to a base class: nothing to patch there)")
    verdict = f"{len(wrong)} releases WRONG" if wrong else "all patched"
    print(f"{len(outcomes)} releases, {files} worker files: {verdict}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
