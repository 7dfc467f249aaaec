"""Who sends the requests of bench and sweep: the client built in here, or SGLang's own."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from eaglelab.actions.bench_serving import refuse_impossible
from eaglelab.actions.measure import workload_of
from eaglelab.context import Context
from eaglelab.errors import InputError
from eaglelab.nearest import did_you_mean
from eaglelab.profile.export import to_csv, to_jsonl
from eaglelab.profile.measurement_set import Failed, MeasurementSet, to_json
from eaglelab.profile.serving import ServingSet, serving_csv, serving_json
from eaglelab.report.measurement_view import measurement_table
from eaglelab.report.serving_view import serving_table

__all__ = ["CLIENTS", "Client", "client_of"]


@dataclass(frozen=True)
class Client:
    """`playbook`: that of one load. `reads`: its tasks that are done once before all loads; `measures`: the one that measures.

    `refuse(context, args)` raises InputError for what the host cannot be sent, before a load. `conclude(context, failed,
    ranked)` keeps and shows what was measured. `shares`: whether requests can choose among the step counts of one load,
    with the probe on.
    """

    playbook: str
    reads: tuple[str, ...]
    measures: str
    refuse: Callable[[Context, Any], Any]
    conclude: Callable[[Context, Sequence[Failed], bool], dict[str, Any]]
    shares: bool


def client_of(name: str | None) -> Client:
    """The one that `--client` names; the built-in one where it was not given. Raises InputError."""
    if name is None:
        return CLIENTS["built-in"]
    if name not in CLIENTS:
        what = f"there is no client '{name}'"
        raise InputError(what, where="--client", hint=did_you_mean(name, sorted(CLIENTS), label="clients"))
    return CLIENTS[name]


def _measured(context: Context, failed: Sequence[Failed], ranked: bool) -> dict[str, Any]:
    found = context.found
    if context.options.check or not (found.measurements or failed):
        return {"measurements": [], "failed": [], "findings": [], "across": [], "rankings": []}
    measured = found.together or MeasurementSet(
        tuple(found.measurements), context.simulated, context.facts["sglang_version"], failed=tuple(failed)
    )
    context.bundle.text("measurements.json", to_json(measured))
    context.bundle.text("measurements.csv", to_csv(measured))
    context.bundle.text("measurements.jsonl", to_jsonl(measured))
    context.say.show(measurement_table(measured, ranked=ranked))
    return _without_requests(measured)


def _without_requests(measured: MeasurementSet) -> dict[str, Any]:
    """What measurements.json holds, without the single requests."""
    document = json.loads(to_json(measured))
    for each in document["measurements"]:
        del each["requests"]
    return {key: document[key] for key in ("measurements", "failed", "findings", "across", "rankings")}


def _served(context: Context, failed: Sequence[Failed], ranked: bool) -> dict[str, Any]:
    found = context.found
    if context.options.check or not (found.serving or failed):
        return {"settings": [], "runs": [], "failed": []}
    served = ServingSet(
        tuple(found.serving), context.simulated, context.facts["sglang_version"], tuple(failed), ranked=ranked
    )
    document = serving_json(served)
    context.bundle.json("serving.json", document)
    context.bundle.text("serving.csv", serving_csv(served))
    context.say.show(serving_table(served))
    return {key: document[key] for key in ("settings", "runs", "failed")}


CLIENTS: Mapping[str, Client] = MappingProxyType(
    {
        "built-in": Client("bench", ("doctor", "plan"), "measure", workload_of, _measured, shares=True),
        "sglang": Client("bench-serving", ("doctor",), "bench_serving", refuse_impossible, _served, shares=False),
    }
)
