"""What one run says of one setting at one concurrency, and the figures that follow from it alone."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from eaglelab.compare.difference import Spread
from eaglelab.errors import InputError
from eaglelab.profile.bench import BenchResult
from eaglelab.profile.measurement_set import Failed
from eaglelab.profile.pooling import Estimate, accept_length, rounds_of, throughput
from eaglelab.profile.samples import RequestSample
from eaglelab.profile.serving import ServingRun, run_from_json
from eaglelab.profile.setting_key import SettingKey
from eaglelab.profile.stats import Stats, t_975
from eaglelab.profile.summary import Setting
from eaglelab.runs.evidence import LoadEvidence, RunEvidence

__all__ = ["LATENCIES", "SERVED", "Observed", "Place", "failures_served", "observe", "round_means", "spreads"]

_LEAST_ROUNDS = 2
_Row = TypeVar("_Row")


@dataclass(frozen=True)
class Place:
    """A setting at a concurrency (for a profile alone: a batch size)."""

    key: SettingKey
    batch: int

    @property
    def words(self) -> str:
        """`2 steps, concurrency 4`."""
        return f"{self.key.words}, concurrency {self.batch}"

    @property
    def order(self) -> tuple[Any, ...]:
        """Sorts by concurrency, then the simplest setting first."""
        return (self.batch, *self.key.simplicity)

    def to_json(self) -> dict[str, Any]:
        return {**self.key.to_json(), "batch": self.batch}


@dataclass(frozen=True)
class Observed:
    """`plain` are the requests that the probe left alone, `setting` its cycles, `served` the runs of SGLang's own client.

    `workload` says what was sent, empty where nothing says; `load` is the load that it was measured in, if that is known.
    """

    plain: BenchResult | None = None
    setting: Setting | None = None
    served: tuple[ServingRun, ...] = ()
    workload: Mapping[str, Any] = field(default_factory=dict)
    load: LoadEvidence | None = None


def observe(run: RunEvidence) -> dict[Place, Observed]:
    """All that a run measured, by place. Raises InputError for rows of SGLang's client that are damaged."""
    found: dict[Place, Observed] = {}
    for measurement in run.measured.measurements if run.measured else ():
        result = measurement.result
        place = Place(result.key, result.batch)
        load = _load(run, result)
        before = found.get(place, Observed(load=load, workload=load.workloads.get(result.batch, {}) if load else {}))
        if not result.profiled:
            before = replace(before, plain=result)
        found[place] = replace(before, setting=measurement.setting or before.setting)
    for served in _served(run):
        place = Place(served.key, served.concurrency)
        before = found.get(place, Observed(workload=_vars(run), load=_of_steps(run, served.key)))
        found[place] = replace(before, served=(*before.served, served))
    if run.measured is None:
        for load in run.loads:
            for setting in load.profile.settings if load.profile else ():
                place = Place(SettingKey(setting.steps), setting.batch_size)
                known = found.get(place)
                if known is None or known.setting is None or known.setting.cycles < setting.cycles:
                    found[place] = replace(known or Observed(load=load), setting=setting)
    return found


def _load(run: RunEvidence, result: BenchResult) -> LoadEvidence | None:
    """The load of a measurement: its name is the folder of the load and that of the concurrency."""
    name = result.load.rpartition("/")[0]
    return next((load for load in run.loads if load.name in (name, result.load)), None)


def _vars(run: RunEvidence) -> Mapping[str, Any]:
    found = run.request.get("vars")
    return found if isinstance(found, dict) else {}


def _of_steps(run: RunEvidence, key: SettingKey) -> LoadEvidence | None:
    """The load of a setting of SGLang's client, which has one each."""
    steps = () if key.steps is None else (key.steps,)
    return next((load for load in run.loads if load.steps == steps), None)


def failures_served(run: RunEvidence) -> list[Failed]:
    """Settings that came to nothing with SGLang's client. Raises InputError for rows that are damaged."""
    return _rows(run, "failed", lambda row: Failed(row["steps"], row["variation"], row["what"]))


def _served(run: RunEvidence) -> list[ServingRun]:
    return _rows(run, "runs", run_from_json)


def _rows(run: RunEvidence, name: str, read: Callable[[dict[str, Any]], _Row]) -> list[_Row]:
    try:
        return [read(each) for each in (run.serving or {}).get(name, ())]
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError("the rows of SGLang's client are damaged", where=str(run.folder / "serving.json")) from error


_Of = Callable[[RequestSample], tuple[float, int]]

LATENCIES: Mapping[str, _Of] = {
    "ttft_ms": lambda sample: (1000 * sample.ttft_s, 1),
    "itl_ms": lambda sample: (1000 * math.fsum(sample.itl_s), len(sample.itl_s)),
    "tpot_ms": lambda sample: (1000 * sample.decode_s / (sample.tokens - 1), 1) if sample.tokens > 1 else (0.0, 0),
    "e2e_ms": lambda sample: (1000 * sample.e2e_s, 1),
}
"""Of one request: a sum (ms) and over how many it is."""

SERVED: Mapping[str, str] = {
    "tok_s": "output_throughput",
    "accept_length": "accept_length",
    "ttft_ms": "mean_ttft_ms",
    "itl_ms": "mean_itl_ms",
    "tpot_ms": "mean_tpot_ms",
    "e2e_ms": "mean_e2e_latency_ms",
}
"""What SGLang's client calls them."""


def round_means(result: BenchResult, of: _Of) -> dict[int, float]:
    """A latency's mean in each complete round: requests of one round are fast or slow together."""
    whole = {each.number for each in rounds_of(result.requests)}
    sums: dict[int, list[tuple[float, int]]] = {}
    for sample in result.requests:
        if sample.round in whole:
            sums.setdefault(sample.round or 0, []).append(of(sample))
    means = {number: _mean(parts) for number, parts in sorted(sums.items())}
    return {number: mean for number, mean in means.items() if mean is not None}


def _mean(parts: Sequence[tuple[float, int]]) -> float | None:
    count = sum(number for _, number in parts)
    return math.fsum(total for total, _ in parts) / count if count else None


def spreads(observed: Observed) -> dict[str, Spread]:
    """Each figure that there is, with its own standard error."""
    found: dict[str, Spread | None] = {}
    if observed.plain is not None:
        result = observed.plain
        found["tok_s"] = _of_estimate(throughput(result.requests, result.wall_s))
        found["accept_length"] = _of_estimate(accept_length(result.requests))
        found.update({name: _latency(result, of) for name, of in LATENCIES.items()})
    if observed.served:
        found.update({name: _of_runs(observed.served, figure) for name, figure in SERVED.items()})
    if observed.setting is not None:
        accepted = observed.setting.acceptance
        if found.get("accept_length") is None and accepted is not None:
            error = None if accepted.stdev is None else accepted.stdev / math.sqrt(accepted.verifies)
            found["accept_length"] = Spread(accepted.length, error, accepted.verifies, "verifies")
        found.update({f"{phase.name}_ms": _of_stats(phase.event, "cycles") for phase in observed.setting.phases})
    return {name: spread for name, spread in found.items() if spread is not None}


def _latency(result: BenchResult, of: _Of) -> Spread | None:
    answered = [sample for sample in result.requests if sample.answered]
    value = _mean([of(sample) for sample in answered])
    if value is None:
        return None
    means = list(round_means(result, of).values())
    if len(means) >= _LEAST_ROUNDS:
        return Spread(value, statistics.stdev(means) / math.sqrt(len(means)), len(means), "rounds")
    each = [total / number for total, number in map(of, answered) if number]
    error = statistics.stdev(each) / math.sqrt(len(each)) if len(each) > 1 else None
    return Spread(value, error, len(each), "requests")


def _of_estimate(estimate: Estimate | None) -> Spread | None:
    if estimate is None:
        return None
    ends = estimate.ci95
    error = None if ends is None else (ends[1] - ends[0]) / 2 / t_975(estimate.count - 1)
    return Spread(estimate.value, error, estimate.count, estimate.unit)


def _of_stats(stats: Stats, unit: str) -> Spread:
    error = None if stats.stdev is None else stats.stdev / math.sqrt(stats.count)
    return Spread(stats.mean, error, stats.count, unit)


def _of_runs(served: Sequence[ServingRun], figure: str) -> Spread | None:
    values = [value for run in served if (value := run.row[figure]) is not None]
    if not values:
        return None
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return Spread(statistics.fmean(values), error, len(values), "runs")
