"""Runs as they are read back, made by hand: rounds of requests at a wanted rate, a probe's cycles, a fingerprint."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eaglelab.profile.acceptance import acceptance
from eaglelab.profile.bench import BenchResult, RequestSample
from eaglelab.profile.measurement_set import Failed, Measurement, MeasurementSet, to_json
from eaglelab.profile.phases import Phase
from eaglelab.profile.stats import Stats
from eaglelab.profile.summary import Setting
from eaglelab.runs.evidence import LoadEvidence, RunEvidence

WORKLOAD = {"prompts": None, "seed": 42, "output_len": 101, "temperature": 0.0, "request_rate": None}
PHASES = {"draft": 0.5, "verify": 15.8, "extend": 1.26, "other": 0.05}


def requests(rates: Sequence[float], *, verifies: int | None = 50, **more: Any) -> list[RequestSample]:
    """One request a round: 101 tokens in 101 / rate seconds, 20 ms to the first."""
    return [
        RequestSample(
            tokens=101,
            ttft_s=0.02,
            e2e_s=101 / rate,
            itl_s=((101 / rate - 0.02) / 50,) * 50,
            verifies=verifies,
            start_s=100.0 * number,
            round=number,
            prompt_tokens=10 + number,
            output_hash=f"output {number}",
            **more,
        )
        for number, rate in enumerate(rates)
    ]


def setting(steps: int, phases: dict[str, float] | None = None, *, batch: int = 1, stdev: float = 0.1) -> Setting:
    """400 cycles, each phase with the same spread."""
    means = {**PHASES, **(phases or {})}
    means["total"] = sum(means[name] for name in PHASES)

    def stats(mean: float) -> Stats:
        return Stats(400, mean, mean, mean, mean, mean, stdev, (mean - 0.0098, mean + 0.0098))

    return Setting(
        worker="EAGLEWorker",
        steps=steps,
        batch_size=batch,
        sync=False,
        rank=0,
        world=1,
        cycles=400,
        decode_cycles=400,
        dropped={},
        skipped=0,
        unknown=0,
        graph=None,
        tokens=800,
        phases=tuple(Phase(name, stats(mean), None, stats(mean), None) for name, mean in means.items()),
        acceptance=acceptance([100, 200, 100], steps),
        rate=None,
        ranks=(),
    )


def measurement(
    steps: int | None, rates: Sequence[float], *, batch: int = 1, phases: dict[str, float] | None = None, **more: Any
) -> list[Measurement]:
    """Requests that the probe left alone; with `phases` also measured ones."""
    load = f"{'baseline' if steps is None else f'k{steps}'}/c{batch}"
    verifies = more.pop("verifies", None if steps is None else 50)
    result = BenchResult(steps, batch, requests(rates, verifies=verifies), load=load, **more)
    found = [Measurement(result)]
    if phases is not None and steps is not None:
        probed = BenchResult(steps, batch, requests(rates), profiled=True, load=load, **more)
        found.append(Measurement(probed, setting=setting(steps, phases, batch=batch)))
    return found


def run(
    name: str,
    *measured: list[Measurement],
    host: str = "gpu1",
    workload: dict[str, Any] | None = None,
    failed: tuple[Failed, ...] = (),
    fingerprint: dict[str, Any] | None = None,
    clocks: int = 1980,
    **more: Any,
) -> RunEvidence:
    """A finished run with a load for each measurement."""
    flat = [each for part in measured for each in part]
    loads = {each.result.load.rpartition("/")[0]: each.result for each in flat}
    gpus = {side: [{"clocks.sm": str(clocks)}, {"clocks.sm": "345"}] for side in ("before", "after")}
    return RunEvidence(
        run=name,
        host=host,
        command="bench",
        folder=Path("/logs") / name,
        finished=True,
        began=1.0,
        measured=MeasurementSet(tuple(flat), failed=failed),
        loads=tuple(
            LoadEvidence(
                load,
                steps=() if result.steps is None else (result.steps,),
                fingerprint={"env": {}, "command": ["python", "--port", "1"], **(fingerprint or {})},
                gpus={f"{load}/c1": gpus},
                workloads={result.batch: {**WORKLOAD, **(workload or {})}},
            )
            for load, result in loads.items()
        ),
        **{"sglang": "0.5.9", **more},
    )


def bundle(logs: Path, evidence: RunEvidence, hosts: Sequence[str] = ("gpu1",)) -> Path:
    """Writes the files of a run that are read back; below a folder of its own where there are several hosts."""
    folder = logs / evidence.run
    place = folder / evidence.host if len(hosts) > 1 else folder
    place.mkdir(parents=True)
    (folder / "request.json").write_text(json.dumps({"command": evidence.command, "hosts": list(hosts), "vars": {}}))
    (place / "events.jsonl").write_text(json.dumps({"time": evidence.began, "task": "Measure", "state": "started"}))
    if evidence.measured is not None:
        text = to_json(evidence.measured)
        (place / "measurements.json").write_text(text)
        document = json.loads(text)
        result = {name: document[name] for name in ("measurements", "failed", "findings", "rankings")}
        (place / "result.json").write_text(json.dumps({"ok": True, **result}))
    (place / "facts.json").write_text(json.dumps({**evidence.facts, "sglang_version": evidence.sglang}))
    (place / "inventory.json").write_text(json.dumps(evidence.inventory))
    for load in evidence.loads:
        (place / load.name).mkdir(exist_ok=True)
        (place / load.name / "fingerprint.json").write_text(json.dumps({**load.fingerprint, "steps": load.steps}))
        for concurrency, args in load.workloads.items():
            measured = {"args": args, "concurrency": concurrency}
            (place / load.name / f"measured-c{concurrency}.json").write_text(json.dumps(measured))
    return folder
