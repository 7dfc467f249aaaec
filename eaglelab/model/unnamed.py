"""A cycle of which the step count is not known: no other count can be predicted, but break-even and some levers stand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from eaglelab.model.explained import Clock, Explained, Point
from eaglelab.model.levers import Case, levers
from eaglelab.model.seen import Plain

__all__ = ["Unnamed"]


@dataclass(frozen=True)
class Unnamed:
    """Tokens per verify and request (bonus included), ms a cycle, and ms of each phase where they are known."""

    batch: int
    accept_length: float
    cycle_ms: float
    parts: Mapping[str, float] = field(default_factory=dict)

    def rate(self, accept_length: float, cycle_ms: float) -> float:
        """Tokens per second of the whole batch."""
        return 1000 * self.batch * accept_length / cycle_ms

    def explained(self, plain: Plain | None, clock: Clock) -> Explained:
        """With one point, whose step count is None."""
        today = self.rate(self.accept_length, self.cycle_ms)
        plain_ms = None if plain is None else plain.cycle_ms
        break_even = None if plain is None else self.cycle_ms / plain.cycle_ms
        case = Case(None, self.accept_length, self.cycle_ms, self.parts)
        found = levers([case], self.rate, today, plain_ms=plain_ms, clock=clock)
        point = Point(
            steps=None,
            measured_tok_s=today,
            measured_ci95=None,
            predicted_tok_s=None,
            low=None,
            high=None,
            measured_accept_length=self.accept_length,
            accept_length=None,
            measured_cycle_ms=self.cycle_ms,
            cycle_ms=None,
            break_even=break_even,
            marginal=None,
            extrapolated=False,
            rival=True,
        )
        return Explained(
            batch=self.batch,
            variation="",
            clock=clock,
            points=(point,),
            baseline_tok_s=None if plain is None else plain.tok_s,
            baseline_ci95=None if plain is None else plain.ci95,
            plain_ms=plain_ms,
            break_even=break_even,
            best_measured=None,
            best_predicted=None,
            load_next=(),
            off=plain is not None and plain.tok_s > today,
            step_ms=None,
            flat_until=None,
            levers=found,
            sentences=(*self._sentences(today, plain), *(lever.sentence for lever in found)),
            notes=("The log does not name the step count, so no other count is predicted.",),
        )

    def _sentences(self, today: float, plain: Plain | None) -> Iterator[str]:
        yield f"{self.accept_length:.2f} tokens in a cycle of {self.cycle_ms:.2f} ms: {today:.1f} tok/s."
        if plain is None:
            yield "No baseline is in the log: whether speculation pays at all cannot be told."
            return
        needed = self.cycle_ms / plain.cycle_ms
        pays = "so it pays" if self.accept_length > needed else "so it does not pay: turn speculation off"
        yield f"A plain step takes {plain.cycle_ms:.2f} ms: a cycle must yield {needed:.2f} tokens to break even, {pays}."
