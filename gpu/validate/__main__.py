"""python -m gpu.validate: runs the experiments one by one and says of each figure whether it met its goal."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

from gpu.validate.budget import Budget, OutOfTimeError
from gpu.validate.client import ServerError
from gpu.validate.experiments import all_checks, experiments
from gpu.validate.machine import Gpu, Lab, Machine, installed_release
from gpu.validate.part import Experiment, Part, in_order
from gpu.validate.results import Results, as_json, missed, table
from gpu.validate.setting import CANDIDATES, Setting
from gpu.validate.site import Site
from gpu.validate.workspace import CommandError, NoServerError, Workspace

__all__ = ["Session", "main", "wanted_parts"]

_LAB_RELEASE = "0.5.12"
_WHERE = "OUT/results, docs/validation/*/"
_CLEANING_S = 40.0
"""Kept back for the rollback at the end."""
_CLEANING_MOST_S = 120.0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m gpu.validate", description=__doc__)
    parser.add_argument("--out", type=Path, help="results, summary.md and bundles; what is there is not run again")
    parser.add_argument(
        "--results",
        type=Path,
        metavar="FOLDER",
        help=f"run nothing: say what results that are there say ({_WHERE})",
    )
    parser.add_argument(
        "--only",
        default="*",
        metavar="NAME[,NAME]",
        help="experiments or parts (patterns such as truth-v2-*), in this order",
    )
    parser.add_argument("--budget", type=float, default=7200.0, help="seconds; what does not fit is skipped, and said")
    parser.add_argument("--tokens", type=int, default=10_000, help="least tokens a setting of the truth experiment")
    parser.add_argument("--keep", action="store_true", help="leave the last server up: the next call saves its load")
    parser.add_argument("--list", action="store_true", help="say what would run, with expected seconds, and end")
    parser.add_argument("--lab", action="store_true", help="rehearse on the embedded lab")
    parser.add_argument(
        "--release", metavar="X.Y.Z", help="SGLang of the lab (0.5.12); on a GPU the one that must be installed"
    )
    parser.add_argument("--models", type=Path, help="the folder that gpu.craft made")
    parser.add_argument("--python", default=sys.executable, help="the Python that runs SGLang")
    parser.add_argument("--site", type=Path, help="folder with SGLang, where that Python does not have it")
    parser.add_argument(
        "--spare", type=Path, help="an untouched copy of --site, for experiments with several servers at once"
    )
    parser.add_argument("--gpu", type=int, default=0, help="index of the GPU for servers that need one")
    parser.add_argument("--gpus", type=int, default=2, metavar="N", help="how many the servers of tp run on (2)")
    parser.add_argument("--port", type=int, default=30000)
    chosen = parser.parse_args(arguments)
    if chosen.results is not None and not chosen.results.is_dir():
        parser.error(f"--results {chosen.results}: there is no such folder; results are in {_WHERE}")
    if chosen.results is None and chosen.out is None and not chosen.list:
        parser.error("--out is needed: where results go")
    if chosen.results is None and not (chosen.lab or chosen.list) and chosen.models is None:
        parser.error("--models is needed (or --lab)")
    if chosen.gpus < 2:
        parser.error(f"--gpus {chosen.gpus}: tp compares ranks, at least 2")
    return chosen


def _machine(chosen: argparse.Namespace, workspace: Workspace) -> Machine:
    if chosen.lab:
        return Lab(workspace, chosen.release or _LAB_RELEASE)
    log = chosen.out.resolve() / "server.log"
    release = installed_release(chosen.python, chosen.site)
    if chosen.release not in (None, release):
        raise CommandError(f"SGLang {release} is installed there, not {chosen.release}")
    return Gpu(
        workspace,
        release,
        chosen.models.resolve(),
        chosen.python,
        chosen.site and chosen.site.resolve(),
        chosen.gpu,
        chosen.port,
        log,
        chosen.spare and chosen.spare.resolve(),
    )


def wanted_parts(all_of_them: Sequence[Experiment], only: str) -> list[Part]:
    """Those that one of the names or patterns means, in the order of the names."""
    parts = [(experiment.name, part) for experiment in all_of_them for part in experiment.parts]
    found: dict[str, Part] = {}
    for name in only.split(","):
        chosen = [part for owner, part in parts if name == owner or fnmatch(part.name, name)]
        if not chosen:
            raise SystemExit(
                f"there is no experiment or part '{name}'; there are {', '.join(p.name for _, p in parts)}"
            )
        found |= {part.name: part for part in chosen}
    return in_order(list(found.values()))


class Session:
    """Runs parts on a site while there is time. `skipped`: why each part that was not run was not."""

    def __init__(self, site: Site, results: Results, budget: Budget) -> None:
        self.site, self.results, self._budget = site, results, budget
        self.skipped: dict[str, str] = {}
        self._without: dict[Setting, str] = {}  # whose server did not come up, for which part

    def run(self, part: Part) -> None:
        """One part, unless its result is there, it cannot be had here, or there is no time for it."""
        if self.results.done(part.name):
            return
        why = self._why_not(part)
        if why is not None:
            self.skipped[part.name] = why
            self.site.say(f"{part.name}: skipped, {why}")
            return
        self.site.say(f"{part.name}: {self._expected(part):.0f} s expected, {self._budget.left:.0f} s left")
        began = time.monotonic()
        try:
            with self.site.machine.watch() as watch:
                data = part.run(self.site, self._budget.part(self.site.machine.patience * self._expected(part)))
        except (CommandError, ServerError, OutOfTimeError, OSError, ValueError, KeyError) as error:
            took = time.monotonic() - began
            self.results.fail(part.name, f"{type(error).__name__}: {error}", took)
            self.site.say(f"{part.name}: in vain after {took:.0f} s: {error}")
            if isinstance(error, NoServerError) and part.setting is not None:
                self._without[part.setting] = part.name
            self.clean()
            return
        took = round(time.monotonic() - began, 1)
        self.results.save(part.name, {"seconds": took, **data, **({"clocks": watch.data} if watch.data else {})})
        self.site.say(f"{part.name}: done in {took} s")

    def clean(self) -> None:
        """Rolls back, whatever the budget says: a server that stays up is worse."""
        try:
            self.site.rollback(Budget(_CLEANING_MOST_S))
        except CommandError as error:
            self.site.say(f"the host is not put back: {error}")

    def _expected(self, part: Part) -> float:
        loads = part.setting is not None and (part.alone or part.setting != self.site.setting)
        return part.seconds + (self.site.machine.load_seconds(part.setting) if loads and part.setting else 0.0)

    def _why_not(self, part: Part) -> str | None:
        why = None if part.setting is None else self.site.machine.why_not(part.setting)
        if why is None and part.setting in self._without:
            why = f"its server did not come up for {self._without[part.setting]}; another call tries again"
        if why is None and self._expected(part) > self._budget.left:
            why = f"it needs about {self._expected(part):.0f} s and {self._budget.left:.0f} s were left"
        return why


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 where every goal that was measured was met and nothing was tried in vain; 130 after a Ctrl-C."""
    chosen = _options(arguments)
    available = experiments(chosen.tokens, chosen.gpus)
    parts = wanted_parts(available, chosen.only)
    if chosen.list:
        for part in parts:
            print(
                f"{part.name:26} {part.seconds:4.0f} s  {part.setting.name if part.setting else 'starts servers by itself'}"
            )
        return 0
    if chosen.results is not None:
        return _say_again(chosen.results, available, {part.name for part in parts})
    began, budget = time.monotonic(), Budget(chosen.budget - _CLEANING_S)
    workspace = Workspace(chosen.out.resolve() / "work", {})
    try:
        machine = _machine(chosen, workspace)
    except CommandError as error:
        print(error, file=sys.stderr)
        return 2
    results = Results(chosen.out / "results")
    site = Site(machine, workspace, lambda text: print(f"[{time.monotonic() - began:6.1f}] {text}", flush=True))
    session = Session(site, results, budget)
    about = f"{machine.label}, SGLang {machine.release}"
    try:
        site.begin(Setting(candidates=CANDIDATES), budget)
        for part in parts:
            session.run(part)
            _summarise(chosen.out, available, results, session.skipped, about)
    except KeyboardInterrupt:
        site.say("interrupted: what is measured is kept, the same call goes on from there")
        return 130
    finally:
        if not chosen.keep:
            session.clean()
            machine.close()
    return _summarise(chosen.out, available, results, session.skipped, about)


def _say_again(folder: Path, available: Sequence[Experiment], wanted: set[str]) -> int:
    """The figures of results of `wanted` parts from an earlier time, worked out once more; needs no GPU."""
    try:
        found = Results(folder).load(wanted)
        checks = all_checks(available, found)
    except (ValueError, KeyError, TypeError) as error:
        why = f"{type(error).__name__}: {error}"
        print(f"{folder}: a result there is damaged, or not as this version writes it: {why}", file=sys.stderr)
        return 2
    if not found:
        print(
            f"{folder}: no results of such parts are there (PART.json, as in {_WHERE}; --list names the parts)",
            file=sys.stderr,
        )
        return 2
    print(table(checks, {}, {}, f"From {folder}: {', '.join(found)}."), end="")
    return 1 if missed(checks) else 0


def _summarise(
    out: Path, available: Sequence[Experiment], results: Results, skipped: dict[str, str], label: str
) -> int:
    found, failures = results.load(), results.failures()
    checks = all_checks(available, found)
    (out / "checks.json").write_text(json.dumps(as_json(checks), indent=1) + "\n", encoding="utf-8")
    text = table(
        checks, failures, {name: why for name, why in skipped.items() if name not in found}, f"Run on: {label}."
    )
    (out / "summary.md").write_text(text, encoding="utf-8")
    return 1 if missed(checks) or failures else 0


if __name__ == "__main__":
    sys.exit(main())
