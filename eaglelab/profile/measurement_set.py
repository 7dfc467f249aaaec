"""Measurements that belong together, as JSON that can be read back.

`kind: eaglelab-measurements`, schema 1. Keys are stable within a schema; new ones may be added.

    simulated        null or the label of the simulated GPU
    sglang           version, null where not known
    minimum_relevant share below which a difference is a tie
    definitions      figure -> sentence
    measurements[]   one per setting, concurrency, and probe on or off, in the order of measuring
      steps batch profiled wall_s    wall_s (s) null where it follows from the rounds
      summary        the figures, as in `definitions`
      requests[]     one per request, the fields of RequestSample: times in s on the server's clock
      findings[]     code, severity, sentence, numbers
      sources[]      accept length by source: source, accept_length, count, unit, definition, tolerance, agrees
    findings[]       those about several measurements
    rankings[]       one per concurrency that can be ranked: batch, sentences, ranking
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from eaglelab.errors import InputError
from eaglelab.profile.bench import BENCH_DEFINITIONS, BenchResult, summarise_bench
from eaglelab.profile.cross import Reading
from eaglelab.profile.findings import Finding
from eaglelab.profile.ranking import MINIMUM_RELEVANT, Ranking, rank, round_rates
from eaglelab.profile.ranking_words import ranking_sentences
from eaglelab.profile.samples import RequestSample

__all__ = ["MEASUREMENTS_SCHEMA", "Measurement", "MeasurementSet", "from_json", "rankings", "to_json"]

MEASUREMENTS_SCHEMA = 1
_KIND = "eaglelab-measurements"
_FIELDS = tuple(field.name for field in fields(RequestSample))
_SEQUENCES = ("itl_s", "chunk_tokens", "correct_hist")


@dataclass(frozen=True)
class Measurement:
    """The requests of one setting, and what the checks made of them."""

    result: BenchResult
    findings: tuple[Finding, ...] = ()
    readings: tuple[Reading, ...] = ()


@dataclass(frozen=True)
class MeasurementSet:
    """Measurements of one server, or of one load after another. `findings` are those about several of them."""

    measurements: tuple[Measurement, ...]
    simulated: str | None = None
    sglang: str | None = None
    findings: tuple[Finding, ...] = ()
    minimum_relevant: float = MINIMUM_RELEVANT


def rankings(measured: MeasurementSet) -> dict[int, Ranking]:
    """The ranking at each concurrency with at least two settings and two rounds in which all of them were measured."""
    results = [found.result for found in measured.measurements]
    ranked = {}
    for batch in sorted({result.batch for result in results}):
        rates = round_rates(results, batch)
        common = set.intersection(*map(set, rates.values())) if rates else set()
        if len(rates) > 1 and len(common) > 1:
            ranked[batch] = rank(rates, minimum_relevant=measured.minimum_relevant)
    return ranked


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
        "findings": [finding.to_json() for finding in measured.findings],
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
        "steps": result.steps,
        "batch": result.batch,
        "profiled": result.profiled,
        "wall_s": result.wall_s,
        "summary": summarise_bench(result).to_json(),
        "requests": [asdict(sample) for sample in result.requests],
        "findings": [finding.to_json() for finding in found.findings],
        "sources": [reading.to_json() for reading in found.readings],
    }


def _measurement(found: Mapping[str, Any]) -> Measurement:
    result = BenchResult(
        steps=found["steps"],
        batch=found["batch"],
        requests=tuple(_sample(sample) for sample in found["requests"]),
        profiled=found["profiled"],
        wall_s=found["wall_s"],
    )
    return Measurement(
        result,
        findings=tuple(_finding(each) for each in found["findings"]),
        readings=tuple(_reading(each) for each in found["sources"]),
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
