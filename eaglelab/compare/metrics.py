"""The figures that runs are compared by, under the names that a gate uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["METRICS", "PHASE_METRICS", "Metric", "signed"]


@dataclass(frozen=True)
class Metric:
    """A figure: its name, what it is called in a sentence, its unit, the decimals it is shown with.

    `speculative`: a server without speculation has none. `definition` says what it is, in one sentence. `more_is_better`: of others
    less is.
    """

    name: str
    words: str
    unit: str
    decimals: int
    speculative: bool
    definition: str
    more_is_better: bool = False

    def signed(self, value: float) -> str:
        """A difference with its sign and unit: `+0.90 ms`."""
        return f"{signed(value, self.decimals)}{f' {self.unit}' if self.unit else ''}"


def signed(value: float, decimals: int) -> str:
    """With its sign, but for what is 0 as it is shown."""
    shown = round(value, decimals)
    return f"{shown:+.{decimals}f}" if shown else f"{0:.{decimals}f}"


_PHASE = "GPU time a cycle, mean over the cycles that the probe kept"

METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            "tok_s", "tok/s", "tok/s", 1, False, "output tokens of all requests / wall time, without the probe", True
        ),
        Metric("accept_length", "accept length", "", 3, True, "tokens a verify, bonus token included", True),
        Metric("ttft_ms", "TTFT", "ms", 2, False, "from sending a request to its first token, mean"),
        Metric("itl_ms", "ITL", "ms", 3, False, "between two chunks of the stream, mean"),
        Metric("tpot_ms", "TPOT", "ms", 3, False, "(time to the last token - to the first) / (tokens - 1), mean"),
        Metric("e2e_ms", "e2e", "ms", 1, False, "from sending a request to its last token, mean"),
        Metric("total_ms", "total", "ms", 3, True, f"start of a cycle to the start of the next: {_PHASE}"),
        Metric("draft_ms", "draft", "ms", 3, True, _PHASE),
        Metric("verify_ms", "verify", "ms", 3, True, _PHASE),
        Metric("extend_ms", "extend", "ms", 3, True, _PHASE),
        Metric("other_ms", "other", "ms", 3, True, f"end of extend to the start of the next cycle: {_PHASE}"),
    )
}

PHASE_METRICS = ("draft_ms", "verify_ms", "extend_ms", "other_ms")
"""The parts of `total_ms`."""
