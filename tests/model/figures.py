"""The measured figures that the model is held against: published tables, and our own runs on an H200."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from eaglelab.model.prediction import predict
from eaglelab.model.seen import Seen

__all__ = ["CASES", "WITH_LENGTHS", "chosen", "error_rows", "h200", "off", "table", "tables", "whole_rows"]

CASES = Path(__file__).parents[1] / "cases/model"
_H200 = Path(__file__).parents[2] / "docs/validation/2026-11-29-h200-truth"

WITH_LENGTHS = ("A/E3", "A/E1", "B", "C", "H200 v2", "H200 v1")
"""Those with throughput and accept length at three step counts or more."""


@lru_cache(maxsize=1)
def tables() -> dict[str, Any]:
    return dict(yaml.safe_load((CASES / "tables.yaml").read_text(encoding="utf-8")))


def table(name: str) -> dict[int, Seen]:
    """One with throughput and accept length at each step count."""
    if name.startswith("H200"):
        return h200(name.split()[1])
    found = tables()[name]
    rates = {
        steps: (1000 / rate if found["unit"] == "ms" else rate, length)
        for steps, (rate, length) in found["rows"].items()
    }
    return {steps: Seen.of_rate(steps, rate, length) for steps, (rate, length) in rates.items()}


def h200(worker: str) -> dict[int, Seen]:
    """One request at a time, five step counts in turn: times by the client; phases and survival of the probe's own load."""
    swept = json.loads((_H200 / f"sweep-one-{worker}.json").read_text(encoding="utf-8"))["steps"]
    probed = json.loads((_H200 / f"truth-{worker}-p0.6-b1.json").read_text(encoding="utf-8"))["steps"]
    found = {}
    for steps, requests in swept.items():
        verifies = sum(each["verifies"] for each in requests)
        tokens = sum(each["tokens"] - 1 for each in requests)
        ms = 1000 * sum(each["last_s"] - each["first_s"] for each in requests)
        rank = probed[steps]["ranks"]["0"]
        counted = rank["counted"][steps]
        found[int(steps)] = Seen(
            steps=int(steps),
            cycle_ms=ms / verifies,
            accept_length=tokens / verifies,
            tok_s=1000 * tokens / ms,
            survival=[sum(counted[k:]) / sum(counted) for k in range(1, len(counted))],
            event_ms=rank["event_ms"],
            host_ms=rank["host_ms"],
        )
    return found


def chosen(steps: list[int]) -> dict[str, tuple[int, ...]]:
    """Which step counts to calibrate on: both ends; the same without a first step; those and the one in the middle."""
    low = next(count for count in steps if count > 1)
    middle = steps[len(steps) // 2]
    ways = {
        "ends": (steps[0], steps[-1]),
        "from 2 on": (low, steps[-1]),
        "three": tuple(sorted({steps[0], middle, steps[-1]})),
    }
    return ways if ways["ends"] != ways["from 2 on"] else {name: ways[name] for name in ("ends", "three")}


def off(found: Mapping[int, Seen], calibrated: tuple[int, ...]) -> dict[int, float]:
    """Predicted over measured throughput - 1 at every step count, the accept length taken as measured."""
    prediction = predict(1, [found[steps] for steps in calibrated])
    return {steps: prediction.at(steps, each.accept_length).tok_s / each.rate(1) - 1 for steps, each in found.items()}


def _told(errors: Mapping[int, float]) -> str:
    return ", ".join(
        f"{steps}: {100 * error + 0:+.1f}".replace("-0.0", "+0.0") for steps, error in sorted(errors.items())
    )


def _counts(steps: tuple[int, ...]) -> str:
    return ", ".join(map(str, steps))


def error_rows() -> list[str]:
    """The table of docs/model.md: accept lengths as measured, cycle times from a few counts."""
    rows = []
    for name in WITH_LENGTHS:
        found = table(name)
        best = max(found, key=lambda steps: found[steps].rate(1))
        for calibrated in chosen(sorted(found)).values():
            errors = off(found, calibrated)
            predicted = max(found, key=lambda steps: found[steps].rate(1) * (1 + errors[steps]))
            shape = predict(1, [found[steps] for steps in calibrated]).cycle.shape
            others = {steps: error for steps, error in errors.items() if steps not in calibrated}
            rows.append(
                f"| {name} | {_counts(calibrated)} | {shape} | {_told(others) or 'none left'} | {best} | {predicted} |"
            )
    return rows


def whole_rows(
    batches: Mapping[str, tuple[int, Mapping[int, Seen]]], ways: Mapping[str, list[tuple[int, ...]]]
) -> list[str]:
    """The second table: accept lengths predicted as well; per name a batch size and what was measured."""
    rows = []
    for name, (batch, found) in batches.items():
        best = max(found, key=lambda steps: found[steps].rate(batch))
        for calibrated in ways[name]:
            prediction = predict(batch, [found[steps] for steps in calibrated])
            others = [steps for steps in sorted(found) if steps not in calibrated]
            lengths = {steps: prediction.at(steps).accept_length / found[steps].accept_length - 1 for steps in others}
            rates = {steps: prediction.at(steps).tok_s / found[steps].rate(batch) - 1 for steps in others}
            bands = ", ".join(
                f"{steps}: {100 * (at.low / at.tok_s - 1):.0f} to {100 * (at.high / at.tok_s - 1):+.0f}"
                for steps in others
                for at in [prediction.at(steps)]
            )
            rows.append(
                f"| {name} | {_counts(calibrated)} | {_told(lengths)} | {_told(rates)} | {bands} | {best} | {prediction.best} |"
            )
    return rows
