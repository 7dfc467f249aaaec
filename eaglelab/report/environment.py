"""What a run's figures hang on, as rows for people: versions, GPUs, patch, flags, variables, clocks, the command."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from eaglelab.profile.log_report import LogReport
from eaglelab.runs.evidence import LoadEvidence, RunEvidence

__all__ = ["Block", "log_environment", "run_environment"]

_CLOCKS = (("clocks.sm", "SM clock", "MHz"), ("temperature.gpu", "temperature", "C"), ("power.draw", "power", "W"))
_NONE = ("", "[N/A]", "N/A", None)


@dataclass(frozen=True)
class Block:
    """Rows of one part: the whole run, or one load. `more`: rows for those who look closer. `command`: the server's."""

    title: str
    rows: tuple[tuple[str, str], ...]
    command: str = ""
    more: tuple[tuple[str, str], ...] = ()


def run_environment(evidence: RunEvidence) -> tuple[Block, ...]:
    """The run, then each of its loads. What the bundle does not say has no row."""
    loads = [_load(load) for load in evidence.loads]
    return (Block("Run", tuple(_run(evidence))), *(block for block in loads if block.rows or block.command))


def log_environment(report: LogReport) -> tuple[Block, ...]:
    """Each server start in the log, as far as its arguments decide speed."""
    rows: list[tuple[str, str]] = [("lines", str(report.lines))]
    rows += [("SGLang", report.sglang)] if report.sglang else []
    rows += [
        ("probe", f"{probe.probe}: {probe.worker}, rank {probe.rank} of {probe.world}, {probe.clock}")
        for probe in report.canaries
    ]
    starts = [
        Block(f"Server start {number}", tuple((name.replace("_", "-"), value) for name, value in args.items()))
        for number, args in enumerate(report.server_starts, start=1)
    ]
    return (Block("Log", tuple(rows)), *starts)


def _run(evidence: RunEvidence) -> Iterator[tuple[str, str]]:
    yield "run", evidence.run
    yield "host", evidence.host
    told = {
        "SGLang": evidence.sglang,
        "Python": evidence.facts.get("python_version"),
        "machine": evidence.facts.get("hostname"),
        "model": _server(evidence).get("model_path"),
        "tensor parallel": _server(evidence).get("tp_size"),
    }
    yield from ((name, str(value)) for name, value in told.items() if value not in _NONE)
    yield from _gpus(evidence.facts.get("gpus"))


def _server(evidence: RunEvidence) -> Mapping[str, Any]:
    server = evidence.inventory.get("server")
    return server if isinstance(server, Mapping) else {}


def _gpus(gpus: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(gpus, list):
        return
    kinds = Counter((str(gpu.get("name")), str(gpu.get("driver_version"))) for gpu in gpus if isinstance(gpu, Mapping))
    for (name, driver), count in kinds.items():
        yield "GPUs", f"{count} x {name}, driver {driver}"


def _load(load: LoadEvidence) -> Block:
    mark = load.fingerprint
    rows: list[tuple[str, str]] = []
    steps = load.steps
    if steps is not None:
        rows.append(("step counts", ", ".join(map(str, steps)) or "none: the baseline"))
    rows += [(name, str(mark[key])) for name, key in (("patch", "patch"), ("SGLang", "sglang")) if mark.get(key)]
    rows += _gpus(mark.get("gpus"))
    rows += [(f"--{name}", str(value)) for name, value in _pairs(mark.get("flags"))]
    variables = dict(_pairs(mark.get("env"))) or dict(_pairs(load.server.get("env")))
    rows += [(name, str(value)) for name, value in variables.items()]
    rows += list(_clocks(load))
    if mark.get("fingerprint"):
        rows.append(("fingerprint", str(mark["fingerprint"])[:16]))
    command = mark.get("command") or load.server.get("command")
    line = shlex.join(map(str, command)) if isinstance(command, list) else ""
    workers = tuple((f"sha256 of {path}", str(digest)) for path, digest in _pairs(mark.get("workers")))
    return Block(f"Load {load.name}" if load.name else "Server", tuple(rows), line, workers)


def _pairs(found: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(found, Mapping):
        yield from found.items()


def _clocks(load: LoadEvidence) -> Iterator[tuple[str, str]]:
    """Lowest to highest over all GPUs, before and after each measurement: a clock that fell shows."""
    states = [
        gpu
        for found in load.gpus.values()
        for when in ("before", "after")
        for gpu in found.get(when) or ()
        if isinstance(gpu, Mapping)
    ]
    for key, name, unit in _CLOCKS:
        values = [number for state in states if (number := _number(state.get(key))) is not None]
        if values:
            yield name, f"{min(values):g} to {max(values):g} {unit} over all GPUs, before and after"


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
