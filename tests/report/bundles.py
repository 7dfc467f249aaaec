"""Runs as they lie under logs/, small and the same every time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from eaglelab.profile.bench import BenchResult
from eaglelab.profile.findings import Finding
from eaglelab.profile.measurement_set import Measurement, MeasurementSet, to_json
from eaglelab.profile.records import read_records
from eaglelab.profile.samples import RequestSample
from eaglelab.profile.summary import summarise

__all__ = ["BEGAN", "measured_run", "profiled_run", "record"]

BEGAN = 1_795_996_800.0
ROUNDS = 6

# Cycle ms by phase, share of verifies with 0, 1, 2, ... correct drafts (in tenths), by step count.
_PHASES = {1: (0.0, 14.0, 1.2, 0.4), 2: (0.6, 15.4, 1.2, 0.4), 5: (2.3, 23.0, 1.2, 0.4)}
_CORRECT = {1: (5, 5), 2: (4, 3, 3), 5: (4, 3, 1, 1, 1, 0)}
_PLAIN_TOK_S = 88.0


def record(
    steps: int = 2, *, rank: int = 0, world: int = 1, batch: int = 1, number: int = 0, cycles: int = 20, **more: Any
) -> dict[str, Any]:
    """One block as the probe writes it: all its cycles took equally long, and rank 1 waits less for verify than rank 0."""
    draft, verify, extend, other = _PHASES[steps]
    verify -= 0.5 * rank
    times = {"draft": draft, "verify": verify, "extend": extend, "other": other}
    times["total"] = sum(times.values())
    shares = _CORRECT[steps]
    correct = [share * cycles * batch // sum(shares) for share in shares]
    correct[0] += cycles * batch - sum(correct)
    drafts = [j for j, count in enumerate(correct) for _ in range(count)]
    tokens = [batch + sum(drafts[at * batch : (at + 1) * batch]) for at in range(cycles)]
    return {
        "kind": "block",
        "schema": 1,
        "probe": "1.2.0",
        "sglang": "0.5.12",
        "class": "EAGLEWorkerV2",
        "rank": rank,
        "world": world,
        "pid": 4000 + rank,
        "time": BEGAN + 10 + number,
        "every": 20,
        "sync": False,
        "steps": steps,
        "batch_size": batch,
        "decode_cycles": cycles,
        "cycles": cycles,
        "tokens": sum(tokens),
        "correct_hist": correct,
        "unknown": 0,
        "dropped": {"warmup": 0, "gap": 0},
        "skipped": 0,
        "kept_tokens": tokens,
        "event_ms": {name: [ms] * cycles for name, ms in times.items()},
        "host_ms": {name: [ms] * cycles for name, ms in times.items()},
        **more,
    }


def profiled_run(folder: Path, *, host: str = "sim", ranks: int = 2, steps: int = 2, blocks: int = 3) -> Path:
    """A run of deploy-profiling on several ranks."""
    _about(folder, host, "deploy-profiling", {"steps": steps, "tokens": 256}, {})
    lines = {rank: [record(steps, rank=rank, world=ranks, number=n) for n in range(blocks)] for rank in range(ranks)}
    _load(folder, [steps], lines)
    _write(folder / "result.json", {"ok": True})
    return folder


def measured_run(
    folder: Path,
    *,
    host: str = "sim",
    steps: Sequence[int] = (1, 2, 5),
    concurrency: Sequence[int] = (1,),
    variation: str = "",
    extra: Sequence[Finding] = (),
    request: dict[str, Any] | None = None,
) -> Path:
    """A run of sweep: a baseline and step counts, in rounds in which they took turns."""
    more = {"steps": list(steps), "client": None, "file": None, "env": {}, "server_args": {}, "combine": None}
    variables = {"num_prompts": 12, "concurrency": list(concurrency)}
    _about(folder, host, "sweep", variables, more, **(request or {}))
    settings = [(None, batch) for batch in concurrency] + [(count, batch) for batch in concurrency for count in steps]
    found = [_measurement(count, batch, variation) for count, batch in settings]
    measured = MeasurementSet(tuple(found), "simulated GPU", "0.5.12", findings=tuple(extra))
    (folder / "measurements.json").write_text(to_json(measured))
    _load(folder / "baseline", [], {})
    lines = [record(count, batch=batch, number=n) for batch in concurrency for n, count in enumerate(steps)]
    _load(folder / "steps", list(steps), {0: lines})
    _write(folder / "result.json", {"ok": True})
    return folder


def _measurement(steps: int | None, batch: int, variation: str) -> Measurement:
    result = BenchResult(steps, batch, tuple(_samples(steps, batch)), variation=variation, load="steps")
    if steps is None:
        return Measurement(result)
    blocks = read_records([json.dumps(record(steps, batch=batch, cycles=200))])
    return Measurement(result, setting=summarise(blocks).settings[0])


def _samples(steps: int | None, batch: int) -> Iterator[RequestSample]:
    """Every round as fast as the cycle times say, a little faster or slower from one to the next."""
    tokens = 201
    for number in range(ROUNDS):
        for place in range(batch):
            cycle_s = sum(_PHASES[steps]) / 1000 if steps else 0.0
            shares = _CORRECT[steps] if steps else ()
            length = 1 + sum(j * share for j, share in enumerate(shares)) / sum(shares) if steps else 1.0
            drift = 1 + 0.004 * ((number * 7 + (steps or 0)) % 5 - 2)
            busy = drift * (cycle_s * (tokens - 1) / length if steps else tokens / _PLAIN_TOK_S)
            yield RequestSample(
                tokens=tokens,
                ttft_s=0.05,
                e2e_s=0.05 + busy,
                verifies=round((tokens - 1) / length) if steps else None,
                start_s=number * 20.0 + (steps or 0) * 3 + place * 0.001,
                round=number,
                output_hash=f"{number}-{place}",
            )


def _about(
    folder: Path, host: str, command: str, variables: dict[str, Any], more: dict[str, Any], **request: Any
) -> None:
    folder.mkdir(parents=True)
    asked = {"command": command, "playbook": "bench", "files": [], "hosts": [host], "inventory": None}
    asked |= {"vars": variables, "more": more, "tags": [], "skip_tags": [], "takeover": False, "accept_drift": False}
    _write(folder / "request.json", {**asked, "resumed": 0, **request})
    _write(folder / "inventory.json", {"name": host, "server": {"model_path": "~/models/target", "tp_size": 1}})
    gpu = {"name": "simulated GPU", "driver_version": "0.0"}
    _write(folder / "facts.json", {"sglang_version": "0.5.12", "python_version": "3.11.7", "gpus": [gpu]})
    _write(folder / "server_info.json", {"version": "0.5.12", "simulated": {"label": "simulated GPU"}})
    event = {"time": BEGAN, "task": "Look at the host", "action": "doctor", "state": "started"}
    (folder / "events.jsonl").write_text(json.dumps(event) + "\n")


def _load(folder: Path, steps: list[int], lines: dict[int, list[dict[str, Any]]]) -> None:
    (folder / "probe").mkdir(parents=True, exist_ok=True)
    command = ["python3", "-m", "sglang.launch_server", "--model-path", "/models/a model"]
    mark = {"sglang": "0.5.12", "patch": "eagle3-profile 1.2.0", "steps": steps, "flags": {}, "env": {}}
    _write(folder / "fingerprint.json", {**mark, "command": command, "workers": {}, "fingerprint": "ab" * 32})
    _write(folder / "server.json", {"command": command, "steps": steps})
    clocks = {"clocks.sm": "1980", "temperature.gpu": "45", "power.draw": "400.00"}
    _write(folder / "gpus.json", {"before": [clocks], "after": [{**clocks, "clocks.sm": "1755"}]})
    for rank, found in lines.items():
        (folder / "probe" / f"rank{rank}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in found))
    told = [json.dumps(line) for found in lines.values() for line in found]
    if told:
        profile = summarise(read_records(told), simulated="simulated GPU")
        _write(folder / "profile.json", profile.to_json())


def _write(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content))
