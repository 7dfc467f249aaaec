"""The EAGLE3_PROF blocks of a log, pooled by batch size and step count, and what a reader must know of them first."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from eaglelab.model.phases import PARTS
from eaglelab.profile.blocks import Block

__all__ = ["PooledBlocks", "pool"]

_ENOUGH_CYCLES = 100
"""Fewer are what a batch size passes through while requests come and go."""


@dataclass(frozen=True)
class PooledBlocks:
    """Blocks of one batch size and step count (None: not named). All of one source: the probe's where there are any."""

    batch: int
    steps: int | None
    blocks: tuple[Block, ...]

    @property
    def ours(self) -> bool:
        """Written by the probe: CUDA events, bonus token counted."""
        return self.blocks[0].ours

    @property
    def cycles(self) -> int | None:
        """How many cycles are behind it; None where a block does not say."""
        counts = [block.text.counts.get("cycles") for block in self.blocks]
        return sum(count for count in counts if count is not None) if None not in counts else None

    @property
    def accept_length(self) -> float:
        """Tokens per verify and request, bonus included."""
        return max(self._mean([block.accept_length for block in self.blocks]) or 1.0, 1.0)

    @property
    def cycle_ms(self) -> float:
        """TOTAL, or the sum of the phases."""
        return self._mean([block.total_ms for block in self.blocks]) or 0.0

    @property
    def printed_ms(self) -> dict[str, float]:
        """ms of each phase as printed, on the clock of these blocks."""
        return self._phases([block.printed_ms for block in self.blocks])

    @property
    def host_ms(self) -> dict[str, float]:
        """ms of each phase by host timers."""
        return self._phases([block.text.host_ms if block.ours else block.printed_ms for block in self.blocks])

    @property
    def tok_s(self) -> float:
        """Tokens per second of the whole batch."""
        return 1000 * self.batch * self.accept_length / self.cycle_ms

    def told(self) -> Iterator[str]:
        """What must be known before anything follows from blocks that were made by hand."""
        if self.ours:
            return
        newest = self.blocks[-1]
        printed, length, tok_s = newest.printed_accept_length, newest.accept_length, newest.tok_s
        if printed is not None and length is not None and length != printed and tok_s is not None:
            instead = "" if newest.printed_tok_s is None else f" instead of the printed {newest.printed_tok_s:.1f}"
            yield (
                f"The printed accept length {printed:.2f} leaves out the bonus token that every verify yields: it is "
                f"{length:.2f} tokens a verify, and {tok_s:.1f} tok/s{instead}."
            )
        times = self.printed_ms
        if {"draft", "verify"} <= times.keys():
            draft, verify = (100 * times[name] / self.cycle_ms for name in ("draft", "verify"))
            yield (
                f"By host timers verify takes {times['verify']:.2f} of {self.cycle_ms:.2f} ms ({verify:.1f} %) and draft "
                f"{times['draft']:.2f} ms ({draft:.1f} %). Host timers charge the draft's GPU time to verify: the draft's "
                f"share is at least {draft:.1f} %, verify's at most {verify:.1f} %, and that the draft is no bottleneck "
                "does not follow. Measure with the probe's CUDA events."
            )

    def _phases(self, times: Sequence[Mapping[str, float]]) -> dict[str, float]:
        found = {name: self._mean([each.get(name) for each in times]) for name in PARTS}
        return {name: mean for name, mean in found.items() if mean is not None}

    def _mean(self, values: Sequence[float | None]) -> float | None:
        """Weighted by cycles, over the blocks that have a value."""
        weights = [block.text.counts.get("cycles") or 1 for block in self.blocks]
        known = [(weight, value) for weight, value in zip(weights, values, strict=True) if value is not None]
        whole = sum(weight for weight, _ in known)
        return math.fsum(weight * value for weight, value in known) / whole if known else None


def pool(blocks: Sequence[Block], steps_of: Callable[[Block], int | None]) -> dict[int, tuple[PooledBlocks, ...]]:
    """By batch size; `steps_of` tells the step count of a block.

    Those of fewer than 100 cycles are left out where there are others, and those without a step count where some name it.
    """
    found: dict[tuple[int, int | None], list[Block]] = {}
    for block in blocks:
        batch = block.text.counts.get("batch_size", 1)
        if block.accept_length is not None and block.total_ms and batch > 0:
            found.setdefault((batch, steps_of(block)), []).append(block)
    pooled = []
    for (batch, steps), members in found.items():
        ours = [block for block in members if block.ours]
        pooled.append(PooledBlocks(batch, steps, tuple(ours or members)))
    pooled = [each for each in pooled if (each.cycles or _ENOUGH_CYCLES) >= _ENOUGH_CYCLES] or pooled
    by_batch: dict[int, tuple[PooledBlocks, ...]] = {}
    for batch in sorted({each.batch for each in pooled}):
        here = [each for each in pooled if each.batch == batch]
        by_batch[batch] = tuple([each for each in here if each.steps is not None] or here)
    return by_batch
