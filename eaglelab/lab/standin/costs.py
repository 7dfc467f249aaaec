"""What a cycle costs: the times behind the simulated GPU. Pure.

Times are milliseconds. K is the number of speculative steps, `batch` the number of requests in the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Costs"]


@dataclass(frozen=True)
class Costs:
    """Costs of the phases, from the lab's model file (`default-model.yaml` explains each)."""

    gpu: dict[str, Any]
    host: dict[str, float]

    @classmethod
    def of(cls, model: dict[str, Any]) -> Costs:
        return cls(gpu=model["gpu_ms"], host=model["host_ms"])

    def _grown(self, ms: float, batch: int) -> float:
        return ms * (1 + float(self.gpu["growth_per_request"]) * (batch - 1))

    def plain(self, batch: int) -> float:
        """One decode step without speculation."""
        return self._grown(self.gpu["plain"], batch)

    def draft(self, steps: int, batch: int) -> float:
        """K-1 draft forwards: the first draft token comes from the re-extend."""
        return self._grown(self.gpu["draft_forward"] * max(0, steps - 1), batch)

    def verify(self, steps: int, batch: int) -> float:
        """The target's forward over K+1 tokens a request: linear between (and beyond) the table's rows."""
        table = sorted((int(k), float(ms)) for k, ms in self.gpu["verify"].items())
        if len(table) == 1:
            return self._grown(table[0][1], batch)
        upper = next((i for i, (k, _) in enumerate(table) if k >= steps), len(table) - 1)
        (k0, ms0), (k1, ms1) = table[max(upper, 1) - 1], table[max(upper, 1)]
        return self._grown(ms0 + (ms1 - ms0) * (steps - k0) / (k1 - k0), batch)

    def extend(self, batch: int) -> float:
        return self._grown(self.gpu["extend"], batch)

    def prefill(self, tokens: int) -> float:
        return float(self.gpu["prefill"]) + float(self.gpu["prefill_token"]) * tokens

    def cycle(self, steps: int, batch: int = 1) -> float:
        """Start to start of one cycle of a worker that does not overlap (v1), by the clock of the GPU.

        Draft and verify follow each other; the re-extend runs while the host already works on the next cycle, so the
        longer of the two counts. A phase lasts at least as long as its launch.
        """
        host = self.host
        draft = max(self.draft(steps, batch), host["draft"])
        verify = max(self.verify(steps, batch), host["verify"])
        return draft + verify + max(self.extend(batch), host["extend"] + host["schedule"])
