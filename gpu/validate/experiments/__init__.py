"""The experiments, by name, in the order of their weight."""

from __future__ import annotations

from gpu.validate.experiments import cost, faults, prediction, sweep, timing, tp2, truth
from gpu.validate.part import Experiment

__all__ = ["experiments"]


def experiments(tokens: int) -> list[Experiment]:
    """All of them. `tokens`: the least that a setting of the truth experiment makes."""
    return [
        truth.experiment(tokens),
        timing.experiment(),
        cost.experiment(),
        sweep.experiment(),
        prediction.experiment(),
        faults.experiment(),
        tp2.experiment(),
    ]
