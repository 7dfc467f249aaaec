"""Throughput at every step count of one batch size, out of a few that were measured.

    tok/s(K) = batch * AL(K) / T(K)

Clients lose a little more, in prefill and where a round runs out: the time per token that their figures lack is taken
from the measured counts (median) and added at all of them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from eaglelab.errors import InputError
from eaglelab.model.accept import AcceptCurve
from eaglelab.model.cycle import CycleCurve
from eaglelab.model.seen import Seen, by_steps

__all__ = ["Predicted", "Prediction", "predict"]


_ROUNDING_MS = 1e-6


@dataclass(frozen=True)
class Predicted:
    """One step count as predicted: tokens per second of the whole batch with its band, and what it is made of."""

    steps: int
    tok_s: float
    low: float
    high: float
    accept_length: float
    cycle_ms: float
    extrapolated: bool


class Prediction:
    """The model of one batch size.

    `seen` are the step counts that it rests on, in order; `lost_ms` is the time per token (of the whole batch) that is
    outside of the cycles. Counts beyond `reach` are of no use to compare: 2 above the highest seen.
    """

    def __init__(self, batch: int, seen: Sequence[Seen]) -> None:
        if batch < 1:
            raise InputError(f"{batch} requests at a time are none")
        self.batch = batch
        self.seen = by_steps(seen)
        self.accept = AcceptCurve(self.seen)
        self.cycle = CycleCurve(self.seen)
        lost = [1000 / each.tok_s - each.cycle_ms / (batch * each.accept_length) for each in self.seen if each.tok_s]
        lost_ms = statistics.median(lost) if lost else 0.0
        self.lost_ms = lost_ms if lost_ms > _ROUNDING_MS else 0.0
        self._own = max(each.half_width for each in self.seen)

    @property
    def counts(self) -> range:
        """Every step count from 1 to the highest that was measured."""
        return range(1, self.seen[-1].steps + 1)

    def measured(self, steps: int) -> Seen | None:
        """What was seen at a step count."""
        return next((each for each in self.seen if each.steps == steps), None)

    def rate(self, accept_length: float, cycle_ms: float) -> float:
        """Tokens per second of the whole batch, what is lost outside of the cycles included."""
        return 1000 / (cycle_ms / (self.batch * accept_length) + self.lost_ms)

    def at(self, steps: int, accept_length: float | None = None) -> Predicted:
        """The prediction for a step count; `accept_length` where that is known from elsewhere."""
        known = accept_length is not None
        length = accept_length if accept_length is not None else self.accept.at(steps)
        time = self.cycle.at(steps)
        tok_s = self.rate(length, time)
        fewer, more = (0.0, 0.0) if known else self.accept.band(steps)
        faster, slower = self.cycle.band(steps)
        return Predicted(
            steps,
            tok_s,
            low=tok_s * max(1 - _joined(fewer, slower, self._own), 0.0),
            high=tok_s * (1 + _joined(more, faster, self._own)),
            accept_length=length,
            cycle_ms=time,
            extrapolated=not self.seen[0].steps <= steps <= self.seen[-1].steps,
        )

    def all(self, *, beyond: int = 0) -> tuple[Predicted, ...]:
        """Every count from 1 to the highest measured one, and so many beyond it."""
        return tuple(self.at(steps) for steps in range(1, self.seen[-1].steps + beyond + 1))

    @property
    def best(self) -> int:
        """The step count with the highest prediction up to the highest that was measured; of equals the smallest."""
        return max(self.counts, key=lambda steps: (self.at(steps).tok_s, -steps))

    def worthwhile(self, steps: int) -> bool:
        """Whether one step more than `steps` pays: S_(K+1) / AL(K) > (T(K+1) - T(K)) / T(K)."""
        grows = (self.cycle.at(steps + 1) - self.cycle.at(steps)) / self.cycle.at(steps)
        return self.accept.step(steps + 1) / self.accept.at(steps) > grows


def predict(batch: int, seen: Sequence[Seen]) -> Prediction:
    """Calibrate on measured step counts. Raises InputError for none, for one that comes twice, for a batch below 1.

    Best are 2 or 3 and the highest count of interest; a third one between them halves what is not known.
    """
    return Prediction(batch, seen)


def _joined(*shares: float) -> float:
    """Independent errors add up by their squares."""
    return math.sqrt(math.fsum(share * share for share in shares))
