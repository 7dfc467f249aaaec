"""Measurements that belong together, as JSON that can be read back.

`kind: eaglelab-measurements`, schema 1. Keys are stable within a schema; new ones may be added.

    simulated        null or the label of the simulated GPU
    sglang           version, null where not known
    minimum_relevant share below which a difference is a tie
    definitions      figure -> sentence
    measurements[]   one per setting, concurrency, and probe on or off, in the order of measuring
      steps variation batch profiled   steps null: the baseline; variation empty where nothing is varied
      load           settings of one load took turns; empty where not known
      wall_s         (s) null where it follows from the rounds
      summary        the figures, as in `definitions`
      requests[]     one per request, the fields of RequestSample: times in s on the server's clock
      findings[]     code, severity, sentence, numbers
      sources[]      accept length by source: source, accept_length, count, unit, definition, tolerance, agrees
      setting        the probe's cycles at the wanted concurrency, as in profile.json; null where it measured none
    failed[]         settings that came to nothing: steps, variation, what
    findings[]       those about several measurements
    across[]         those that follow from the accept lengths of several settings
    rankings[]       one per concurrency that can be ranked: batch, sentences, ranking
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from eaglelab.errors import InputError
from eaglelab.profile.bench import BENCH_DEFINITIONS, BenchResult, summarise_bench
from eaglelab.profile.checks import check_accept_lengths
from eaglelab.profile.cross import Reading
from eaglelab.profile.findings import Finding
from eaglelab.profile.ranking import MINIMUM_RELEVANT, Ranking, common_rounds, rank, round_rates
from eaglelab.profile.ranking_words import ranking_sentences
from eaglelab.profile.samples import RequestSample
from eaglelab.profile.setting_json import setting_of
from eaglelab.profile.setting_key import SettingKey
from eaglelab.profile.summary import Setting

__all__ = ["MEASUREMENTS_SCHEMA", "Failed", "Measurement", "MeasurementSet", "from_json", "rankings", "to_json"]

MEASUREMENTS_SCHEMA = 1
_KIND = "eaglelab-measurements"
_FIELDS = tuple(field.name for field in fields(RequestSample))
_SEQUENCES = ("itl_s", "chunk_tokens", "correct_hist")


@dataclass(frozen=True)
class Measurement:
    """The requests of one setting, and what the checks made of them. `setting`: the probe's cycles, if it measured any."""

    result: BenchResult
    findings: tuple[Finding, ...] = ()
    readings: tuple[Reading, ...] = ()
    setting: Setting | None = None


@dataclass(frozen=True)
class Failed:
    """A setting that came to nothing, such as one whose load ran out of memory: `what` says why, in one line."""

    steps: int | None
    variation: str
    what: str

    @property
    def key(self) -> SettingKey:
        """The setting."""
        return SettingKey(self.steps, self.variation)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**self.key.to_json(), "what": self.what}


@dataclass(frozen=True)
class MeasurementSet:
    """Measurements of one server, or of one load after another. `findings` are those about several of them.

    A setting in `failed` is in no ranking, whatever was measured of it before it failed.
    """

    measurements: tuple[Measurement, ...]
    simulated: str | None = None
    sglang: str | None = None
    findings: tuple[Finding, ...] = ()
    minimum_relevant: float = MINIMUM_RELEVANT
    failed: tuple[Failed, ...] = ()

    @property
    def across(self) -> tuple[Finding, ...]:
        """What the accept lengths of several settings say together, at each concurrency; from the requests alone."""
        return tuple(_across([found.result for found in self.measurements]))


def rankings(measured: MeasurementSet) -> dict[int, Ranking]:
    """The ranking at each concurrency with at least two settings and two rounds in which all of them were measured."""
    failed = {each.key for each in measured.failed}
    results = [found.result for found in measured.measurements if found.result.key not in failed]
    ranked = {}
    for batch in sorted({result.batch for result in results}):
        rates = round_rates(results, batch)
        if len(rates) > 1 and len(common_rounds(rates)) > 1:
            compared = [result for result in results if result.batch == batch and len(rates.get(result.key, ())) > 1]
            loads = len({_load(result) for result in compared})
            ranked[batch] = rank(rates, minimum_relevant=measured.minimum_relevant, loads=loads)
    return ranked


def _load(result: BenchResult) -> tuple[str, str, bool]:
    """What tells the loads apart: speculation and all that is varied are flags of a server's start."""
    return result.load, result.variation, result.steps is None


def _across(results: Sequence[BenchResult]) -> Iterator[Finding]:
    for batch in sorted({result.batch for result in results}):
        # Where both are there, the requests that the probe left alone: dict keeps the last.
        here = sorted((result for result in results if result.batch == batch), key=lambda each: not each.profiled)
        lengths = {result.key: summarise_bench(result).acceptance for result in here if result.steps is not None}
        yield from check_accept_lengths({key: each for key, each in lengths.items() if each is not None}, batch)


def to_json(measured: MeasurementSet) -> str:
    """The whole set, one JSON object, indented."""
    document = {
        "kind": _KIND,
        "schema": MEASUREMENTS_SCHEMA,
        "simulated": measured.simulated,
        "sglang": measured.sglang,
        "minimum_relevant": measured.minimum_relevant,
        "definitions": dict(BENCH_DEFINITIONS),
        "measurements": [_measurement_json(found) for found in measured.measurements],
        "failed": [each.to_json() for each in measured.failed],
        "findings": [finding.to_json() for finding in measured.findings],
        "across": [finding.to_json() for finding in measured.across],
        "rankings": [
            {"batch": batch, "sentences": list(ranking_sentences(ranking)), "ranking": ranking.to_json()}
            for batch, ranking in rankings(measured).items()
        ],
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def from_json(text: str) -> MeasurementSet:
    """Read a set back. Fields that are not known are passed over; figures and rankings follow from the requests again.

    Raises InputError for what is no measurement set of this schema.
    """
    try:
        document = json.loads(text)
        kind, schema = document.get("kind"), document.get("schema")
        if (kind, schema) == (_KIND, MEASUREMENTS_SCHEMA):
            return MeasurementSet(
                measurements=tuple(_measurement(found) for found in document["measurements"]),
                simulated=document["simulated"],
                sglang=document["sglang"],
                findings=tuple(_finding(found) for found in document["findings"]),
                minimum_relevant=document["minimum_relevant"],
                failed=tuple(Failed(each["steps"], each["variation"], each["what"]) for each in document["failed"]),
            )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        what = error if isinstance(error, ValueError) else f"{type(error).__name__} {error}"
        raise InputError(f"the measurements cannot be read: {what}") from error
    raise InputError(
        f"not a set of measurements: kind {kind!r}, schema {schema!r}",
        hint=f"this version reads {_KIND}, schema {MEASUREMENTS_SCHEMA}",
    )


def _measurement_json(found: Measurement) -> dict[str, Any]:
    result = found.result
    return {
        **result.key.to_json(),
        "batch": result.batch,
        "profiled": result.profiled,
        "load": result.load,
        "wall_s": result.wall_s,
        "summary": summarise_bench(result).to_json(),
        "requests": [asdict(sample) for sample in result.requests],
        "findings": [finding.to_json() for finding in found.findings],
        "sources": [reading.to_json() for reading in found.readings],
        "setting": None if found.setting is None else found.setting.to_json(),
    }


def _measurement(found: Mapping[str, Any]) -> Measurement:
    result = BenchResult(
        steps=found["steps"],
        batch=found["batch"],
        requests=tuple(_sample(sample) for sample in found["requests"]),
        profiled=found["profiled"],
        wall_s=found["wall_s"],
        variation=found["variation"],
        load=found["load"],
    )
    return Measurement(
        result,
        findings=tuple(_finding(each) for each in found["findings"]),
        readings=tuple(_reading(each) for each in found["sources"]),
        setting=None if found["setting"] is None else setting_of(found["setting"]),
    )


def _sample(found: Mapping[str, Any]) -> RequestSample:
    known: dict[str, Any] = {name: found[name] for name in _FIELDS if name in found}
    for name in _SEQUENCES:
        if known.get(name) is not None:
            known[name] = tuple(known[name])
    return RequestSample(**known)


def _finding(found: Mapping[str, Any]) -> Finding:
    return Finding(found["code"], found["severity"], found["sentence"], dict(found["numbers"]))


def _reading(found: Mapping[str, Any]) -> Reading:
    return Reading(
        source=found["source"],
        value=found["accept_length"],
        count=found["count"],
        unit=found["unit"],
        definition=found["definition"],
        tolerance=found["tolerance"],
        agrees=found["agrees"],
    )
