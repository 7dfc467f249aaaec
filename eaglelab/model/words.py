"""What the model says in plain sentences, the weightiest first, and what its figures rest on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from eaglelab.model.explained import Clock, Lever, Point
from eaglelab.model.phases import PARTS
from eaglelab.model.prediction import Prediction
from eaglelab.model.seen import Plain, Seen

__all__ = ["Facts", "named", "notes", "sentences"]

_SHOWN_LEVERS = 3
_WORTH_NAMING = 0.01


@dataclass(frozen=True)
class Facts:
    """What the sentences are made of.

    `best` is the fastest measured step count, `tied` those that tie with it. `sure_off`: the baseline wins whatever the
    bands allow for. `idle_at`: ms a cycle in which the GPU is seen to wait for the host, by step count. `alone`: of no
    other step count than the measured one can anything be told.
    """

    prediction: Prediction
    plain: Plain | None
    clock: Clock
    best: Seen
    best_point: Point
    tied: tuple[int, ...]
    baseline_ties: bool
    load_next: tuple[Point, ...]
    off: bool
    sure_off: bool
    levers: tuple[Lever, ...]
    idle_at: Mapping[int, float]
    phases_known: bool
    all_reduce_known: bool
    alone: bool


def sentences(facts: Facts) -> Iterator[str]:
    """Verdict, break-even, what limits, what that is worth, whether another step pays, what to load next."""
    yield _verdict(facts)
    yield from _break_even(facts)
    yield from _limit(facts)
    yield from _waiting(facts)
    yield from _worth(facts.levers)
    yield from _one_more(facts)
    yield _next(facts)


def notes(facts: Facts) -> Iterator[str]:
    """What the model rests on, what was assumed, and what it cannot tell."""
    prediction = facts.prediction
    yield from _shape(facts)
    if prediction.accept.guessed and not facts.alone:
        yield (
            "No survival was measured: accept lengths between come from one chance for every position, which is a last "
            "resort; measure with a histogram."
        )
    if prediction.lost_ms:
        yield (
            f"Clients lose {prediction.lost_ms:.3f} ms a token in prefill and where rounds run out; predictions have "
            "that in them."
        )
    if facts.clock == "host":
        yield "Times are host timers: what a cheaper verify or re-extend is worth cannot be told from them."
    elif not facts.phases_known:
        yield "No phases were measured: only what every draft being right is worth can be told."
    elif not facts.all_reduce_known:
        yield "What the all-reduce costs is not known, so what a free one is worth is left out."
    if facts.plain is None:
        yield "No baseline was measured: whether speculation pays at all cannot be told."
    if facts.levers:
        yield "Each lever is taken alone, at the step count that is best with it, up to the highest that was measured."


def _verdict(facts: Facts) -> str:
    best, batch = facts.best, facts.prediction.batch
    rate = best.rate(batch)
    about = f"{rate:.1f} tok/s{_interval(best.ci95)}"
    if facts.off and facts.plain is not None:
        less = 100 * (1 - rate / facts.plain.tok_s)
        sure = "band included" if facts.sure_off else "though within the band of some"
        return (
            f"Turn speculation off at {_requests(batch)}: the baseline's {facts.plain.tok_s:.1f} tok/s beats every step "
            f"count, {sure}; the best measured, {named(best.steps)}, reaches {about}, {less:.1f} % less."
        )
    over = ""
    if facts.plain is not None:
        percent = 100 * (rate / facts.plain.tok_s - 1)
        over = f", {abs(percent):.1f} % {'over' if percent >= 0 else 'under'} the baseline ({facts.plain.tok_s:.1f})"
    count = len(facts.prediction.seen)
    among = "the only step count measured" if count == 1 else f"the fastest of the {count} step counts measured"
    others = [steps for steps in facts.tied if steps != best.steps]
    tie = f" {_ties(others, baseline=facts.baseline_ties)}" if others or facts.baseline_ties else ""
    return f"{named(best.steps, capital=True)} {'is' if best.steps == 1 else 'are'} {among}: {about}{over}.{tie}"


def _ties(others: Sequence[int], *, baseline: bool) -> str:
    if not baseline:
        return f"{_listed(others)} cannot be told from it: the fewest steps are the simplest choice."
    also = f" and {_listed(others)}" if others else ""
    return f"The baseline{also} cannot be told from it: the baseline is the simplest choice."


def _break_even(facts: Facts) -> Iterator[str]:
    if facts.plain is None or facts.best_point.break_even is None:
        return
    best, needed = facts.best, facts.best_point.break_even
    pays = "so it pays" if best.accept_length > needed else "so it does not pay"
    yield (
        f"A cycle of {named(best.steps)} takes {best.cycle_ms:.2f} ms, a plain step {facts.plain.cycle_ms:.2f}: it must yield "
        f"{needed:.2f} tokens to break even and yields {best.accept_length:.2f}, {pays}."
    )


def _limit(facts: Facts) -> Iterator[str]:
    """By the GPU's clock, the host's beside it: host timers alone have called the wrong phase before."""
    events, host = facts.best.event_ms, facts.best.host_ms
    if facts.clock != "events" or not all(name in events for name in PARTS):
        return
    whole = sum(events[name] for name in PARTS)
    largest = max(PARTS, key=lambda name: events[name])
    yield (
        f"By GPU time {largest} is the largest part of a cycle of {named(facts.best.steps)}: {events[largest]:.2f} of "
        f"{whole:.2f} ms ({100 * events[largest] / whole:.1f} %). GPU time and, behind the stroke, host timers: "
        f"{_both(events, host)} ms{'; host timers are right for the total only' if host else ''}."
    )


def _both(events: Mapping[str, float], host: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {events[name]:.2f}" + (f" / {host[name]:.2f}" if name in host else "") for name in PARTS)


def _waiting(facts: Facts) -> Iterator[str]:
    flat = facts.prediction.cycle.flat_until
    # One count on the floor is where the line was bent to; two are a cycle that was seen not to grow.
    if flat is not None and sum(each.steps <= flat for each in facts.prediction.seen) > 1:
        yield (
            f"Up to {flat:.1f} steps the cycle does not grow: the host, not the GPU, sets its pace there, and each step up "
            "to that costs nothing."
        )
    if facts.idle_at:
        steps = max(facts.idle_at, key=lambda count: (facts.idle_at[count], -count))
        yield (
            f"At {named(steps)} at least {facts.idle_at[steps]:.2f} ms a cycle is the GPU waiting for the host: verify and "
            "re-extend take less at a higher step count, with more to compute. Verify by events has these gaps in it."
        )


def _worth(levers: Sequence[Lever]) -> Iterator[str]:
    told = [lever for lever in levers if lever.gain >= _WORTH_NAMING][:_SHOWN_LEVERS]
    if told:
        yield "What it would be worth: " + " ".join(lever.sentence for lever in told)


def _one_more(facts: Facts) -> Iterator[str]:
    prediction, steps = facts.prediction, facts.best.steps
    if len(prediction.seen) == 1 or facts.off:
        return
    tokens = 100 * prediction.accept.step(steps + 1) / prediction.accept.at(steps)
    time = 100 * (prediction.cycle.at(steps + 1) / prediction.cycle.at(steps) - 1)
    measured = prediction.measured(steps + 1) is not None
    if measured and steps + 1 in facts.tied:
        pays = "ties with it"
    else:
        pays = "pays" if not measured and prediction.worthwhile(steps) else "does not pay"
    yield f"One step more than {steps} {pays}: it adds {tokens:.1f} % to the tokens and {time:.1f} % to the time of a cycle."


def _next(facts: Facts) -> str:
    if len(facts.prediction.seen) == 1:
        return "Measure a second step count, the highest of interest: one alone does not tell what a step costs."
    if facts.off and facts.sure_off:
        return "No further load is needed at this batch size."
    if not facts.load_next:
        return "No step count that was not measured can be faster, as far as the bands tell: no further load is needed."
    best = max(facts.load_next, key=lambda point: point.predicted_tok_s or 0.0)
    others = [point.steps for point in facts.load_next if point is not best and point.steps is not None]
    also = f" Measured, it narrows the bands of {_listed(others)}, which may be the fastest, too." if others else ""
    return (
        f"Try next: {named(best.steps)}, predicted {best.predicted_tok_s or 0:.1f} tok/s "
        f"({best.low or 0:.1f} to {best.high or 0:.1f}){', an extrapolation' if best.extrapolated else ''}.{also}"
    )


def _shape(facts: Facts) -> Iterator[str]:
    cycle = facts.prediction.cycle
    counts = ", ".join(str(each.steps) for each in facts.prediction.seen)
    step = "" if cycle.step_ms is None else f"; a step more adds {cycle.step_ms:.3f} ms"
    told = {
        "level": "one step count, of which no draft time is known",
        "draft": "one step count, the others by its draft time alone (verify taken as level)",
        "line": "a straight line",
        "floor": "what the host takes, then a straight line",
        "bent": "straight pieces, since no one line fits",
    }
    yield f"Cycle time from steps {counts}: {told[cycle.shape]}{step}."
    if len(facts.prediction.seen) == 2:
        yield "Two step counts do not show whether the cycle's time bends between them: the bands allow for it."


def _requests(batch: int) -> str:
    return "one request at a time" if batch == 1 else f"{batch} requests at a time"


def named(steps: int | None, *, capital: bool = False) -> str:
    """`1 step`, `3 steps`; for an unknown count `an unknown number of steps`."""
    if steps is None:
        return "An unknown number of steps" if capital else "an unknown number of steps"
    return f"{steps} step{'' if steps == 1 else 's'}"


def _listed(counts: Sequence[int]) -> str:
    words = [str(count) for count in counts]
    joined = words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
    return f"{joined} step{'' if words == ['1'] else 's'}"


def _interval(ci95: tuple[float, float] | None) -> str:
    return "" if ci95 is None else f" ({ci95[0]:.1f} to {ci95[1]:.1f})"
