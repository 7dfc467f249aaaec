"""The GPU's clocks beside what is measured: before, after, and once a second meanwhile, with what holds them back."""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpu.validate.results import Check, Data

__all__ = ["Sample", "Unwatched", "Watch", "clock_checks", "gpu_count", "read_sample", "reasons", "summary"]

FIELDS = ("clocks.sm", "clocks.mem", "temperature.gpu", "power.draw", "clocks_event_reasons.active")
_REASONS = {
    0x1: "idle",
    0x2: "applications' clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
    0x100: "display clocks",
}
"""NVML's bits of nvmlClocksEventReasons."""
_ANSWER_S = 10.0


@dataclass(frozen=True)
class Sample:
    """MHz, degrees Celsius, watts, and the bits of what holds the clocks back."""

    sm_mhz: float
    memory_mhz: float
    celsius: float
    watts: float
    held_back: int


def reasons(bits: int) -> list[str]:
    """The names of NVML's bits."""
    return [name for bit, name in _REASONS.items() if bits & bit]


def read_sample(line: str) -> Sample | None:
    """A line that nvidia-smi prints for FIELDS, as CSV without units; None for one that is none."""
    parts = [part.strip() for part in line.split(",")]
    try:
        *figures, bits = parts
        sm, memory, celsius, watts = map(float, figures)
        return Sample(sm, memory, celsius, watts, int(bits, 16))
    except ValueError:
        return None


def summary(samples: Sequence[Sample]) -> Data:
    """Lowest, median and highest of each figure over the samples in which the GPU was not idle, and the reasons' counts."""
    at_work = [sample for sample in samples if not sample.held_back & 1]
    counts = Counter(name for sample in at_work for name in reasons(sample.held_back))
    found: Data = {"samples": len(samples), "at_work": len(at_work), "held_back": dict(counts)}
    for name in ("sm_mhz", "memory_mhz", "celsius", "watts"):
        values = [getattr(sample, name) for sample in at_work]
        found[name] = [min(values), statistics.median(values), max(values)] if values else []
    return found


class Unwatched:
    """Where there are no clocks."""

    data: Data = {}

    def __enter__(self) -> Unwatched:
        return self

    def __exit__(self, *_error: object) -> None: ...


class Watch(Unwatched):
    """Samples one GPU from `with` to its end; `data` then has it. A machine without nvidia-smi leaves `data` empty."""

    def __init__(self, index: int, program: str = "nvidia-smi") -> None:
        query = f"--query-gpu={','.join(FIELDS)}"
        self._command = [program, f"--id={index}", query, "--format=csv,noheader,nounits"]
        self.data: Data = {}

    def __enter__(self) -> Watch:
        self._before, self._began = self._now(), time.time()
        self._file = tempfile.TemporaryFile("w+")
        self._sampler = self._start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._sampler is not None:
            self._sampler.terminate()
            self._sampler.wait()
        self._file.seek(0)
        samples = [sample for line in self._file if (sample := read_sample(line))]
        self._file.close()
        if samples:
            ends = {"before": _shown(self._before), "after": _shown(self._now())}
            rows = [[s.sm_mhz, s.celsius, s.watts, s.held_back] for s in samples]
            series = {
                "began": round(self._began, 1),
                "columns": ["sm_mhz", "celsius", "watts", "held_back"],
                "rows": rows,
            }
            self.data = {**ends, **summary(samples), "series": series}

    def _start(self) -> subprocess.Popen[str] | None:
        try:
            return subprocess.Popen(
                [*self._command, "--loop=1"], stdout=self._file, stderr=subprocess.DEVNULL, text=True
            )
        except OSError:
            return None

    def _now(self) -> Sample | None:
        try:
            done = subprocess.run(self._command, capture_output=True, text=True, timeout=_ANSWER_S, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return read_sample(done.stdout)


def gpu_count(program: str = "nvidia-smi") -> int:
    """GPUs that nvidia-smi lists; 0 where it cannot be asked."""
    try:
        done = subprocess.run([program, "--list-gpus"], capture_output=True, text=True, timeout=_ANSWER_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith("GPU ") for line in done.stdout.splitlines())


def _shown(sample: Sample | None) -> dict[str, Any]:
    if sample is None:
        return {}
    return {
        "sm_mhz": sample.sm_mhz,
        "celsius": sample.celsius,
        "watts": sample.watts,
        "held_back": reasons(sample.held_back),
    }


def clock_checks(results: Mapping[str, Data]) -> list[Check]:
    """The clocks of each part that has some; figures without a goal."""
    return [Check(name, "-", _said(data["clocks"]), None) for name, data in results.items() if "clocks" in data]


def _said(clocks: Data) -> str:
    if not clocks["at_work"]:
        return f"idle in all {clocks['samples']} samples"
    sm, heat, watts = (
        f"{clocks[name][0]:.0f} to {clocks[name][2]:.0f} (median {clocks[name][1]:.0f})"
        for name in ("sm_mhz", "celsius", "watts")
    )
    held = ", ".join(f"{name} in {count}" for name, count in clocks["held_back"].items()) or "nothing"
    return f"SM {sm} MHz, {heat} C, {watts} W in {clocks['at_work']} samples at work; held back by: {held}"
