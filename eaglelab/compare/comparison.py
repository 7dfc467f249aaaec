"""A candidate held against a reference: each a run on a host, or several that stand for the same thing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eaglelab.compare.changes import Change, changes
from eaglelab.compare.difference import Difference
from eaglelab.compare.measures import differences
from eaglelab.compare.metrics import METRICS
from eaglelab.compare.observed import Observed, Place, failures_served, observe
from eaglelab.errors import InputError
from eaglelab.profile.setting_key import SettingKey
from eaglelab.runs.evidence import RunEvidence

__all__ = ["Compared", "Comparison", "Failure", "Side", "compare"]


@dataclass(frozen=True)
class Side:
    """What is compared: runs that count as loads of one thing. `label` is what sentences call it: A, B, C."""

    label: str
    runs: tuple[RunEvidence, ...]

    @property
    def names(self) -> str:
        """Its runs, each with its host."""
        return ", ".join(f"{run.run}:{run.host}" if run.host else run.run for run in self.runs)

    def to_json(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "runs": [{"run": run.run, "host": run.host, "bundle": str(run.folder)} for run in self.runs],
        }


@dataclass(frozen=True)
class Compared:
    """One setting that both sides have: the differences by metric, in the order of `METRICS`."""

    place: Place
    differences: Mapping[str, Difference]

    def to_json(self) -> dict[str, Any]:
        return {
            **self.place.to_json(),
            "differences": {name: difference.to_json() for name, difference in self.differences.items()},
        }


@dataclass(frozen=True)
class Failure:
    """A setting of the reference that came to nothing in the candidate, and why."""

    key: SettingKey
    what: str

    def to_json(self) -> dict[str, Any]:
        return {**self.key.to_json(), "what": self.what}


@dataclass(frozen=True)
class Comparison:
    """`settings` are those of both; `only_reference` and `only_candidate` the others, `failed` those that failed."""

    reference: Side
    candidate: Side
    settings: tuple[Compared, ...]
    only_reference: tuple[Place, ...]
    only_candidate: tuple[Place, ...]
    failed: tuple[Failure, ...]
    changes: tuple[Change, ...]
    warnings: tuple[str, ...]

    @property
    def between_loads(self) -> bool:
        """Whether the intervals are over loads, and so tell what another load would give."""
        return max(len(self.reference.runs), len(self.candidate.runs)) > 1

    @property
    def shared_load(self) -> bool:
        """Whether a running server was used by both sides: such figures do not differ by what differs between loads."""
        return bool(_starts(self.reference) & _starts(self.candidate))

    @property
    def simulated(self) -> str | None:
        """The label of a simulated GPU on either side."""
        labels = (run.simulated for side in (self.reference, self.candidate) for run in side.runs)
        return next((label for label in labels if label), None)


def compare(reference: Side, candidate: Side) -> Comparison:
    """Every setting that both have, and what else differs. Raises InputError where the two share a run on a host."""
    if set(map(_identity, reference.runs)) & set(map(_identity, candidate.runs)):
        raise InputError(
            f"{reference.label} and {candidate.label} are the same run",
            where=candidate.names,
            hint="a run held against itself differs in nothing: name another",
        )
    found = [_observed(side) for side in (reference, candidate)]
    common = sorted(set(found[0]) & set(found[1]), key=lambda place: place.order)
    different = changes(reference.runs, candidate.runs)
    return Comparison(
        reference,
        candidate,
        settings=tuple(Compared(place, differences(found[0][place], found[1][place])) for place in common),
        only_reference=tuple(sorted(set(found[0]) - set(found[1]), key=lambda place: place.order)),
        only_candidate=tuple(sorted(set(found[1]) - set(found[0]), key=lambda place: place.order)),
        failed=tuple(_failed(candidate, {place.key for place in found[0]})),
        changes=different,
        warnings=tuple(_warnings(reference, candidate, different)),
    )


def _identity(run: RunEvidence) -> tuple[object, ...]:
    """The same for a copy of a run elsewhere; folders of one name may hold different ones."""
    return run.run, run.host, run.folder if run.began is None else run.began


def _starts(side: Side) -> set[tuple[str, str]]:
    """The run that started each server, and how."""
    loads = (load.server for run in side.runs for load in run.loads)
    return {(str(server["run"]), str(server["command"])) for server in loads if server.keys() >= {"run", "command"}}


def _observed(side: Side) -> dict[Place, list[Observed]]:
    found: dict[Place, list[Observed]] = {}
    for run in side.runs:
        for place, observed in observe(run).items():
            found.setdefault(place, []).append(observed)
    return found


def _failed(candidate: Side, wanted: set[SettingKey]) -> Iterator[Failure]:
    for run in candidate.runs:
        for each in run.measured.failed if run.measured else ():
            if each.key in wanted:
                yield Failure(each.key, each.what)
        for failed in failures_served(run):
            if failed.key in wanted:
                yield Failure(failed.key, failed.what)


def _warnings(reference: Side, candidate: Side, different: Sequence[Change]) -> Iterator[str]:
    unlike = [change.words for change in different if change.unlike]
    if unlike:
        yield f"Not like with like: {'; '.join(unlike)}."
    for side in (reference, candidate):
        for run in side.runs:
            if not run.finished:
                yield f"{side.label} ({run.run}) did not come to its end, or an early version made it."
            yield from (f"{side.label} ({run.run}): {problem}." for problem in run.problems)
    for run in itertools.chain(reference.runs, candidate.runs):
        if any(args.get("request_rate") is not None for load in run.loads for args in load.workloads.values()):
            yield f"Requests of {run.run} came at a fixed rate: {METRICS['tok_s'].words} is that rate as long as the server keeps up."
