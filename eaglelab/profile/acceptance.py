"""From the histogram of correct drafts: accept length, survival, and how sure they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eaglelab.profile.stats import rounded, rounded_pair, t_975

__all__ = ["Acceptance", "acceptance"]


@dataclass(frozen=True)
class Acceptance:
    """What the verifies of one setting accepted.

    `length` is tokens per verify and request, bonus included; `survival[k - 1]` is S_k, `conditional[k - 1]` is
    S_k / S_(k-1), None where S_(k-1) is 0. `verifies` counts request-cycles. The interval (Student's t) is cut at 1.00.
    """

    length: float
    ci95: tuple[float, float] | None
    stdev: float | None
    verifies: int
    histogram: tuple[int, ...]
    survival: tuple[float, ...]
    conditional: tuple[float | None, ...]

    @property
    def correct_drafts(self) -> float:
        """Draft tokens accepted per verify and request."""
        return self.length - 1

    def to_json(self) -> dict[str, Any]:
        """Plain numbers; the definitions stand once in the profile."""
        return {
            "accept_length": rounded(self.length),
            "ci95": rounded_pair(self.ci95),
            "stdev": rounded(self.stdev),
            "verifies": self.verifies,
            "correct_drafts": rounded(self.correct_drafts),
            "correct_hist": list(self.histogram),
            "survival": [rounded(share) for share in self.survival],
            "conditional": [rounded(share) for share in self.conditional],
        }


def acceptance(histogram: Sequence[int], steps: int) -> Acceptance | None:
    """Describe a histogram of correct drafts (index j: verifies with j accepted drafts); None when it is empty.

    Survival runs to `steps`, or further where the histogram does.
    """
    verifies = sum(histogram)
    if verifies == 0:
        return None
    correct = sum(j * count for j, count in enumerate(histogram))
    mean = correct / verifies
    stdev, ci95 = None, None
    if verifies > 1:
        square = math.fsum(count * (j - mean) ** 2 for j, count in enumerate(histogram))
        stdev = math.sqrt(square / (verifies - 1))
        half = t_975(verifies - 1) * stdev / math.sqrt(verifies)
        ci95 = (1 + max(mean - half, 0.0), 1 + mean + half)
    reach = range(1, max(steps, len(histogram) - 1) + 1)
    at_least = [sum(histogram[k:]) for k in (0, *reach)]
    return Acceptance(
        length=1 + mean,
        ci95=ci95,
        stdev=stdev,
        verifies=verifies,
        histogram=tuple(histogram),
        survival=tuple(count / verifies for count in at_least[1:]),
        conditional=tuple(at_least[k] / at_least[k - 1] if at_least[k - 1] else None for k in reach),
    )
