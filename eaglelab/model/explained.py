"""What the model says of one batch size, as data: a report shows it, a test reads it.

Units: tokens per second are of all requests of the batch together, times are ms a cycle, accept lengths tokens per verify
and request with the bonus token, gains and shares 0 to 1. None stands for what is not known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from eaglelab.profile.stats import rounded, rounded_pair

__all__ = ["Bound", "Clock", "Explained", "Lever", "Point"]

Clock = Literal["events", "host", "clients"]
"""Whose clock the cycle times are on: CUDA events, host timers (right total, wrong split), or clients (no split)."""

Bound = Literal["at most", "at least"]


@dataclass(frozen=True)
class Point:
    """One step count: what was measured and what the model says.

    `measured_*` are None where it was not measured. `low` to `high` is the band of `predicted_tok_s`; `extrapolated`: the
    count lies outside of those that the model rests on, so the band is wider. `break_even` is the accept length at which
    this step count is as fast as the baseline. `marginal` is the predicted gain of this step over one step less, None for
    the first. `rival`: it may be the fastest, as far as measurement and band can tell. `steps` is None only for a log
    that does not name it.
    """

    steps: int | None
    measured_tok_s: float | None
    measured_ci95: tuple[float, float] | None
    predicted_tok_s: float | None
    low: float | None
    high: float | None
    measured_accept_length: float | None
    accept_length: float | None
    measured_cycle_ms: float | None
    cycle_ms: float | None
    break_even: float | None
    marginal: float | None
    extrapolated: bool
    rival: bool

    @property
    def tok_s(self) -> float | None:
        """The measured figure where there is one, else the predicted one."""
        return self.predicted_tok_s if self.measured_tok_s is None else self.measured_tok_s

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, rounded to 1e-6."""
        return {
            "steps": self.steps,
            "measured_tok_s": rounded(self.measured_tok_s),
            "measured_ci95": rounded_pair(self.measured_ci95),
            "predicted_tok_s": rounded(self.predicted_tok_s),
            "low": rounded(self.low),
            "high": rounded(self.high),
            "measured_accept_length": rounded(self.measured_accept_length),
            "accept_length": rounded(self.accept_length),
            "measured_cycle_ms": rounded(self.measured_cycle_ms),
            "cycle_ms": rounded(self.cycle_ms),
            "break_even": rounded(self.break_even),
            "marginal": rounded(self.marginal),
            "extrapolated": self.extrapolated,
            "rival": self.rival,
        }


@dataclass(frozen=True)
class Lever:
    """What would be gained if one cost were gone.

    `tok_s` is the throughput then, `gain` its share over the best of today (0.1: 10 % more), at step count `steps`, the
    best one under that assumption. `bound` says whether the figure is the most or the least that the lever can be worth.
    """

    code: str
    name: str
    sentence: str
    tok_s: float
    gain: float
    steps: int | None
    bound: Bound
    assumption: str

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, rounded to 1e-6."""
        return {
            "code": self.code,
            "name": self.name,
            "sentence": self.sentence,
            "tok_s": rounded(self.tok_s),
            "gain": rounded(self.gain),
            "steps": self.steps,
            "bound": self.bound,
            "assumption": self.assumption,
        }


@dataclass(frozen=True)
class Explained:
    """One batch size (and one variation of the flags, empty for none).

    `plain_ms` is the baseline's cycle, `break_even` the accept length that the best step count needs to beat the baseline.
    `best_measured` and `best_predicted` are step counts; `load_next` those that were not measured and may be the
    fastest. `off`: the baseline is faster than every step count. `step_ms` is what one more step adds to the cycle;
    up to `flat_until` steps the cycle does not grow at all (the host sets its pace), None where it always grows. `levers`
    come largest first. `sentences` are for the user, in order of weight; `notes` say what the figures rest on.
    """

    batch: int
    variation: str
    clock: Clock
    points: tuple[Point, ...]
    baseline_tok_s: float | None
    baseline_ci95: tuple[float, float] | None
    plain_ms: float | None
    break_even: float | None
    best_measured: int | None
    best_predicted: int | None
    load_next: tuple[int, ...]
    off: bool
    step_ms: float | None
    flat_until: float | None
    levers: tuple[Lever, ...]
    sentences: tuple[str, ...]
    notes: tuple[str, ...]

    def point(self, steps: int | None) -> Point | None:
        """The entry of a step count."""
        return next((point for point in self.points if point.steps == steps), None)

    def to_json(self) -> dict[str, Any]:
        """Plain values; numbers rounded to 1e-6."""
        return {
            "batch": self.batch,
            "variation": self.variation,
            "clock": self.clock,
            "points": [point.to_json() for point in self.points],
            "baseline_tok_s": rounded(self.baseline_tok_s),
            "baseline_ci95": rounded_pair(self.baseline_ci95),
            "plain_ms": rounded(self.plain_ms),
            "break_even": rounded(self.break_even),
            "best_measured": self.best_measured,
            "best_predicted": self.best_predicted,
            "load_next": list(self.load_next),
            "off": self.off,
            "step_ms": rounded(self.step_ms),
            "flat_until": rounded(self.flat_until),
            "levers": [lever.to_json() for lever in self.levers],
            "sentences": list(self.sentences),
            "notes": list(self.notes),
        }
