"""Small bundles: what a listing reads of a run, and nothing else."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def measured(steps: int | None, rate: float, *, batch: int = 1, half: float = 1.0) -> dict[str, Any]:
    """An entry of `measurements` in result.json, without the probe."""
    summary = {
        "throughput": {"value": rate, "ci95": [rate - half, rate + half]},
        "tok_s_in_all": rate,
        "accept_length": None if steps is None else 1.7,
    }
    return {"steps": steps, "variation": "", "batch": batch, "profiled": False, "summary": summary, "setting": None}


def probed(steps: int, *, batch: int = 1) -> dict[str, Any]:
    """The same with the probe: only its phases count."""
    phases = {
        name: {"event_ms": {"mean": mean}}
        for name, mean in {"draft": 0.5, "verify": 15.8, "extend": 1.3, "other": 0.1, "total": 17.7}.items()
    }
    return {**measured(steps, 1.0, batch=batch), "profiled": True, "setting": {"phases": phases}}


def make(logs: Path, run: str, *measurements: dict[str, Any], finished: bool = True, **more: Any) -> Path:
    """A run of one host. `more`: began, sglang, hosts, command, vars, result."""
    folder = logs / run
    folder.mkdir(parents=True)
    request = {"command": more.get("command", "bench"), "playbook": "bench", "hosts": more.get("hosts", ["a"])}
    (folder / "request.json").write_text(json.dumps({**request, "vars": more.get("vars", {})}))
    began = {"time": more.get("began", 1000.0), "task": "Measure", "state": "started"}
    (folder / "events.jsonl").write_text(json.dumps(began) + "\n")
    gpus = [{"name": "H200", "driver_version": "550"}] * 2
    (folder / "facts.json").write_text(json.dumps({"sglang_version": more.get("sglang", "0.5.9"), "gpus": gpus}))
    speculative = {"draft_model_path": "/models/draft"}
    server = {"model_path": "/models/target", "tp_size": 2, "speculative": speculative}
    (folder / "inventory.json").write_text(json.dumps({"server": server}))
    if finished:
        result = more.get("result", {"measurements": list(measurements), "rankings": []})
        (folder / "result.json").write_text(json.dumps({"ok": True, **result}))
    return folder


def touch(path: Path, seconds: int) -> None:
    """Moves a file's time, as a later write does."""
    stat = path.stat()
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + seconds * 10**9))
