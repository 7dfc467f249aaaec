"""The simulated GPU as the workers use it: the stream, what work on it costs, which drafts turn out right."""

from __future__ import annotations

import random

from .acceptance import Acceptance
from .costs import Costs
from .gpu import Clock, Stream

__all__ = ["Gpu"]


class Gpu:
    """One GPU with its clock. The jitter of its work is seeded, so a run repeats."""

    def __init__(self, clock: Clock, costs: Costs, acceptance: Acceptance) -> None:
        self.clock = clock
        self.stream = Stream(clock)
        self.costs = costs
        self.acceptance = acceptance
        self._noise = random.Random(acceptance.seed)  # noqa: S311 - a simulation, not a secret

    def run(self, ms: float, launch: str = "") -> None:
        """Launch `ms` of work (jittered); `launch` names the host's cost of launching it."""
        jitter = float(self.costs.gpu["jitter"])
        self.stream.launch(ms * self._noise.uniform(1 - jitter, 1 + jitter), self.costs.host.get(launch, 0.0))
