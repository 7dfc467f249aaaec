"""What the model rests on: one step count as it was measured at one batch size, and the server without speculation."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from eaglelab.errors import InputError

__all__ = ["MOST_STEPS", "Plain", "Seen", "by_steps"]

MOST_STEPS = 100
"""No chain of drafts is longer: what says so is a damaged record."""


@dataclass(frozen=True)
class Seen:
    """A step count as measured, all figures of one batch size.

    `cycle_ms`: start to start of two cycles, without the probe's own cost where that is known. `accept_length`: tokens per
    verify and request, bonus included. `tok_s`: what clients saw, all requests together, prefill included; None where
    nobody measured it. `survival[k - 1]` is S_k. `event_ms` and `host_ms`: the phases of a cycle on both clocks.
    """

    steps: int
    cycle_ms: float
    accept_length: float
    tok_s: float | None = None
    ci95: tuple[float, float] | None = None
    survival: Sequence[float] = ()
    event_ms: Mapping[str, float] = field(default_factory=dict)
    host_ms: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise InputError(
                f"a speculation of {self.steps} steps has no cycle of its own",
                hint="the run without speculation is the baseline: plain to verify is a jump, no step",
            )
        if self.steps > MOST_STEPS:
            raise InputError(f"{self.steps} steps are more than any server runs", hint=f"at most {MOST_STEPS}")
        if self.cycle_ms <= 0 or self.accept_length < 1:
            raise InputError(
                f"{self.steps} steps: a cycle of {self.cycle_ms:g} ms and an accept length of {self.accept_length:g} are none",
                hint="the accept length has the bonus token in it: at least 1.00",
            )

    @classmethod
    def of_rate(cls, steps: int, tok_s: float, accept_length: float, batch: int = 1) -> Seen:
        """From tokens per second and accept length alone: T = batch * AL / (tok/s)."""
        if tok_s <= 0:
            raise InputError(f"{steps} steps: {tok_s:g} tok/s is no throughput")
        return cls(steps, 1000 * batch * accept_length / tok_s, accept_length, tok_s)

    def rate(self, batch: int) -> float:
        """Tokens per second of the batch: what clients saw, else what the cycles yield."""
        return 1000 * batch * self.accept_length / self.cycle_ms if self.tok_s is None else self.tok_s

    @property
    def half_width(self) -> float:
        """Half of the 95 % interval as a share of `tok_s`; 0 where there is none."""
        return 0.0 if self.ci95 is None or not self.tok_s else (self.ci95[1] - self.ci95[0]) / 2 / self.tok_s


@dataclass(frozen=True)
class Plain:
    """The server without speculation: tokens per second as clients saw it, and the ms of one decode step."""

    tok_s: float
    cycle_ms: float
    ci95: tuple[float, float] | None = None


def by_steps(seen: Sequence[Seen]) -> tuple[Seen, ...]:
    """In the order of their step counts. Raises InputError for none, or for a step count that comes twice."""
    ordered = tuple(sorted(seen, key=lambda each: each.steps))
    if not ordered:
        raise InputError("a prediction needs at least one measured step count")
    for one, other in itertools.pairwise(ordered):
        if one.steps == other.steps:
            raise InputError(f"{one.steps} steps come twice at one batch size", hint="give one measurement of each")
    return ordered
