"""The experiments, by name, in the order of their weight."""

from __future__ import annotations

from gpu.validate.experiments import cost, faults, prediction, product, sweep, timing, tp, truth, turns
from gpu.validate.part import Experiment

__all__ = ["experiments"]


def experiments(tokens: int, gpus: int = 2) -> list[Experiment]:
    """All of them. `tokens`: the least that a setting of the truth experiment makes. `gpus`: ranks of `tp`."""
    return [
        truth.experiment(tokens),
        timing.experiment(),
        cost.experiment(),
        turns.experiment(),
        sweep.experiment(),
        prediction.experiment(),
        product.experiment(),
        faults.experiment(),
        tp.experiment(gpus),
    ]
