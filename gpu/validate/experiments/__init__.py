"""The experiments, by name, in the order of their weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpu.validate.clocks import clock_checks
from gpu.validate.experiments import cost, faults, prediction, product, sweep, timing, tp, truth, turns
from gpu.validate.part import Experiment
from gpu.validate.results import Check, Data

__all__ = ["all_checks", "experiments"]


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


def all_checks(available: Sequence[Experiment], results: Mapping[str, Data]) -> dict[str, list[Check]]:
    """What each experiment makes of the results, by its name, and the GPU's clocks meanwhile."""
    checks = {experiment.name: list(experiment.checks(results)) for experiment in available}
    return {**checks, "clocks": list(clock_checks(results))}
