"""prediction: tok/s at every step count out of what the probe saw at two or three of them, against what was measured.

It runs nothing of its own: wherever step counts take turns in one load, some of them are measured too.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from eaglelab.model.prediction import Prediction, predict
from eaglelab.model.seen import Seen
from gpu.validate.experiments.sweep import rates
from gpu.validate.part import Experiment
from gpu.validate.results import Check, Data

__all__ = ["experiment", "predicted"]

_MOST = 5.0
_TIE = 1.0


def experiment() -> Experiment:
    """Checks alone."""
    return Experiment("prediction", [], _checks)


def predicted(calibration: Mapping[str, Data], points: Sequence[int]) -> Prediction:
    """The project's model of one request at a time, from the cycle times and right drafts at `points`."""
    return predict(1, [_seen(steps, calibration[str(steps)]) for steps in points])


def _seen(steps: int, found: Data) -> Seen:
    bins, event_ms = found["correct_hist"], found["event_ms"]
    survival = [sum(bins[k:]) / sum(bins) for k in range(1, steps + 1)]
    host_ms = found["host_ms"]
    return Seen(steps, event_ms["total"], 1 + sum(survival), survival=survival, event_ms=event_ms, host_ms=host_ms)


def _checks(results: Mapping[str, Data]) -> list[Check]:
    checks = []
    for name, data in results.items():
        rounds = data.get("rounds", data)
        if "calibration" in rounds:
            points = sorted(map(int, rounds["calibration"]))
            checks += _held_against(name, rounds, (points[0], points[-1]))
            checks += _held_against(name, rounds, points)
    return checks


def _held_against(name: str, data: Data, points: Sequence[int]) -> list[Check]:
    model = predicted(data["calibration"], points)
    measured = {int(steps): statistics.fmean(rates(answers)) for steps, answers in data["steps"].items()}
    told = {steps: model.at(steps).tok_s for steps in measured}
    off = {steps: 100 * (told[steps] / rate - 1) for steps, rate in measured.items()}
    shown = ", ".join(f"K = {k}: {told[k]:.1f} for {measured[k]:.1f} ({off[k]:+.1f} %)" for k in measured)
    best, chosen = max(measured, key=measured.__getitem__), max(told, key=told.__getitem__)
    loss = 100 * (1 - measured[chosen] / measured[best])
    where = f"{name}, from K = {', '.join(map(str, points))} ({model.cycle.shape})"
    return [
        Check(f"{where}: tok/s predicted", f"{_MOST:g} %", shown, max(map(abs, off.values())) <= _MOST),
        Check(
            f"{where}: best step count predicted",
            f"within {_TIE:g} % of the best",
            f"{chosen} for {best} ({loss:.2f} % slower)",
            loss <= _TIE,
        ),
    ]
