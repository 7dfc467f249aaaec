"""Runs made of a few numbers: every figure in them is plain to see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eaglelab.profile.acceptance import acceptance
from eaglelab.profile.bench import BenchResult
from eaglelab.profile.definitions import PHASES
from eaglelab.profile.findings import Finding
from eaglelab.profile.measurement_set import Measurement, MeasurementSet
from eaglelab.profile.phases import summarise_phases
from eaglelab.profile.samples import RequestSample
from eaglelab.profile.summary import Rank, Setting
from eaglelab.runs.evidence import LoadEvidence, RunEvidence


def setting(
    steps: int,
    batch: int = 1,
    *,
    ms: Sequence[float] = (2.0, 12.0, 1.0, 1.0),
    hist: Sequence[int] = (50, 30, 20),
    worker: str = "EAGLEWorkerV2",
    eager: int = 0,
    verify_by_rank: Sequence[float] = (),
) -> Setting:
    times = dict(zip(PHASES, [[value, value] for value in (*ms, sum(ms))], strict=True))
    return Setting(
        worker=worker,
        steps=steps,
        batch_size=batch,
        sync=False,
        rank=0,
        world=max(1, len(verify_by_rank)),
        cycles=100,
        decode_cycles=100,
        dropped={},
        skipped=0,
        unknown=0,
        graph={"graph": 100 - eager, "eager": eager},
        tokens=170,
        phases=summarise_phases(times, times),
        acceptance=acceptance(hist, steps),
        rate=None,
        ranks=tuple(Rank(number, 100, {"verify": value}) for number, value in enumerate(verify_by_rank)),
    )


def requests(seconds: float, *, rounds: int = 4, batch: int = 1, **changes: Any) -> tuple[RequestSample, ...]:
    """One request of 101 tokens for each place of each round, the first after 0 s, the last after `seconds`."""
    return tuple(
        RequestSample(
            **{
                "tokens": 101,
                "ttft_s": 0.0,
                "e2e_s": seconds,
                "start_s": 100.0 * number,
                "round": number,
                "prompt_tokens": 50,
                "cached_tokens": 0,
                "output_hash": f"{number}-{place}",
                **changes,
            }
        )
        for number in range(rounds)
        for place in range(batch)
    )


def measurement(
    steps: int | None,
    seconds: float,
    *,
    batch: int = 1,
    found: Setting | None = None,
    findings: Sequence[Finding] = (),
    **changes: Any,
) -> Measurement:
    result = BenchResult(steps=steps, batch=batch, requests=requests(seconds, batch=batch, **changes), load="one")
    return Measurement(result, findings=tuple(findings), setting=found)


def run(*measurements: Measurement, loads: Sequence[LoadEvidence] = (), **changes: Any) -> RunEvidence:
    inventory: Mapping[str, Any] = {"server": {"speculative": {"num_steps": 2}, "flags": {}, "env": {}}}
    known: dict[str, Any] = {
        "run": "20261130-000000-sweep-0001",
        "host": "sim",
        "command": "sweep",
        "folder": Path("unused"),
        "finished": True,
        "sglang": "0.5.12",
        "inventory": inventory,
        "measured": MeasurementSet(measurements) if measurements else None,
        "loads": tuple(loads),
    }
    return RunEvidence(**{**known, **changes})
