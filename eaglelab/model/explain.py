"""From what was measured at one batch size to what it means: points, levers, sentences."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from eaglelab.model.explained import Clock, Explained, Lever, Point
from eaglelab.model.levers import Case, levers
from eaglelab.model.phases import PhaseCurves
from eaglelab.model.prediction import Prediction
from eaglelab.model.seen import Plain, Seen
from eaglelab.model.ties import ties
from eaglelab.model.words import Facts, notes, sentences

__all__ = ["BEYOND", "explain"]

BEYOND = 2
"""So many step counts above the highest measured one are shown, as extrapolated."""

_IDLE = 0.03
"""Below this share of a cycle, what looks like waiting for the host may be noise."""


def explain(
    batch: int,
    seen: Sequence[Seen],
    plain: Plain | None = None,
    *,
    clock: Clock = "events",
    variation: str = "",
    all_reduce_share: float | None = None,
    ranked_ties: Collection[int | None] = (),
) -> Explained:
    """Explain the step counts measured at one batch size (any order), against the baseline where there is one.

    `clock` names the clock of the phases in `seen`. `all_reduce_share`: of verify (0 to 1), where it is known.
    `ranked_ties`: the step counts (None: the baseline) that a ranking by paired rounds could not tell apart from the
    fastest. Raises InputError where `seen` is empty or holds a step count twice.
    """
    prediction = Prediction(batch, seen)
    candidates = _candidates(prediction)
    phases = PhaseCurves(prediction, by_host=clock == "host")
    best_measured = max(prediction.seen, key=lambda each: (each.rate(batch), -each.steps))
    best_predicted = None if candidates.alone else prediction.best
    tied = _tied(prediction, best_measured.steps, ranked_ties)
    points = tuple(_points(prediction, candidates, plain, tied, best_measured))
    within = [point for point in points if point.steps in candidates.counts]
    load_next = tuple(
        point.steps for point in points if point.rival and point.measured_tok_s is None and point.steps is not None
    )
    found = _levers(prediction, candidates, phases, plain, best_measured.rate(batch), clock, all_reduce_share)
    off = plain is not None and all(plain.tok_s > (point.tok_s or 0.0) for point in within)
    best = next(point for point in points if point.steps == best_measured.steps)
    facts = Facts(
        prediction=prediction,
        plain=plain,
        clock=clock,
        best=best_measured,
        best_point=best,
        tied=tied,
        baseline_ties=None in ranked_ties and best_measured.steps in ranked_ties,
        load_next=tuple(point for point in points if point.steps in load_next),
        off=off,
        sure_off=off and plain is not None and all(plain.tok_s > (point.high or 0.0) for point in within),
        levers=found,
        idle_at={each.steps: idle for each in prediction.seen if (idle := _idle(phases, each.steps, each.cycle_ms))},
        phases_known=phases.known,
        all_reduce_known=all_reduce_share is not None,
        alone=candidates.alone,
    )
    return Explained(
        batch=batch,
        variation=variation,
        clock=clock,
        points=points,
        baseline_tok_s=None if plain is None else plain.tok_s,
        baseline_ci95=None if plain is None else plain.ci95,
        plain_ms=None if plain is None else plain.cycle_ms,
        break_even=best.break_even,
        best_measured=best_measured.steps,
        best_predicted=best_predicted,
        load_next=load_next,
        off=off,
        step_ms=prediction.cycle.step_ms,
        flat_until=prediction.cycle.flat_until,
        levers=found,
        sentences=tuple(sentences(facts)),
        notes=tuple(notes(facts)),
    )


@dataclass(frozen=True)
class _Candidates:
    """The step counts of which the model can tell; `alone`: only the one that was measured."""

    counts: range
    alone: bool


def _candidates(prediction: Prediction) -> _Candidates:
    if prediction.cycle.shape == "level":
        only = prediction.seen[0].steps
        return _Candidates(range(only, only + 1), alone=True)
    return _Candidates(prediction.counts, alone=False)


def _tied(prediction: Prediction, best: int, ranked: Collection[int | None]) -> tuple[int, ...]:
    """Measured counts that may be the fastest: ties by the shape of the curve, by their intervals, or by the ranking."""
    rates = {each.steps: each.rate(prediction.batch) for each in prediction.seen}
    by_interval = {each.steps for each in prediction.seen if each.ci95 is not None and each.ci95[1] >= rates[best]}
    by_ranking = {steps for steps in ranked if steps in rates} if best in ranked else set()
    return tuple(sorted({*ties(rates).counts, *by_interval, *by_ranking}))


def _points(
    prediction: Prediction, candidates: _Candidates, plain: Plain | None, tied: Sequence[int], best: Seen
) -> Iterator[Point]:
    highest = prediction.seen[-1].steps
    still_rising = prediction.best == highest
    reach = 0 if candidates.alone else BEYOND
    unmeasured = [prediction.at(steps).tok_s for steps in candidates.counts if prediction.measured(steps) is None]
    top = max([best.rate(prediction.batch), *unmeasured])
    for steps in range(candidates.counts[0], highest + reach + 1):
        predicted, seen = prediction.at(steps), prediction.measured(steps)
        cycle = predicted.cycle_ms if seen is None else seen.cycle_ms
        before = prediction.at(steps - 1).tok_s if steps > candidates.counts[0] else None
        # Beyond what was measured a count is worth a load only if the curve still rises there.
        wanted = predicted.high >= top and (steps <= highest or still_rising)
        yield Point(
            steps=steps,
            measured_tok_s=None if seen is None else seen.rate(prediction.batch),
            measured_ci95=None if seen is None else seen.ci95,
            predicted_tok_s=predicted.tok_s,
            low=predicted.low,
            high=predicted.high,
            measured_accept_length=None if seen is None else seen.accept_length,
            accept_length=predicted.accept_length,
            measured_cycle_ms=None if seen is None else seen.cycle_ms,
            cycle_ms=predicted.cycle_ms,
            break_even=None if plain is None else cycle / plain.cycle_ms,
            marginal=None if before is None else predicted.tok_s / before - 1,
            extrapolated=predicted.extrapolated,
            rival=steps in tied if seen is not None else wanted,
        )


def _levers(
    prediction: Prediction,
    candidates: _Candidates,
    phases: PhaseCurves,
    plain: Plain | None,
    today: float,
    clock: Clock,
    all_reduce_share: float | None,
) -> tuple[Lever, ...]:
    cases = [
        Case(
            steps=steps,
            accept_length=prediction.accept.at(steps),
            cycle_ms=prediction.cycle.at(steps),
            parts=phases.at(steps),
            idle_ms=_idle(phases, steps, prediction.cycle.at(steps)),
        )
        for steps in candidates.counts
    ]
    plain_ms = None if plain is None else plain.cycle_ms
    return levers(cases, prediction.rate, today, plain_ms=plain_ms, all_reduce_share=all_reduce_share, clock=clock)


def _idle(phases: PhaseCurves, steps: int, cycle_ms: float) -> float:
    """ms of a cycle in which the GPU is seen to wait for the host; 0 below what noise can bring about."""
    idle = sum(phases.waits(steps).values())
    return idle if idle >= _IDLE * cycle_ms else 0.0
