"""What if: the throughput if one cost were gone, each over the step counts, since what is cheap allows for more of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from eaglelab.model.explained import Bound, Clock, Lever

__all__ = ["Case", "levers"]

_Changed = tuple[float, float]
_BY_HOST = ("free_draft", "perfect_draft", "zero_overhead")
"""What host timers allow to say: they show too little of the draft, and `other` with the host's own work in it."""


@dataclass(frozen=True)
class Case:
    """A step count that could be run: `parts` are ms of each phase (empty: unknown), `idle_ms` waits for the host in them."""

    steps: int | None
    accept_length: float
    cycle_ms: float
    parts: Mapping[str, float] = field(default_factory=dict)
    idle_ms: float = 0.0


@dataclass(frozen=True)
class _What:
    """`change` gives accept length and cycle of a case under the assumption; None where the case does not tell."""

    code: str
    name: str
    assumption: str
    change: Callable[[Case], _Changed | None]
    bound: Bound = "at most"


def levers(
    cases: Sequence[Case],
    rate: Callable[[float, float], float],
    today: float,
    *,
    plain_ms: float | None = None,
    all_reduce_share: float | None = None,
    clock: Clock = "events",
) -> tuple[Lever, ...]:
    """The levers that the figures allow for, largest first.

    `rate` gives tokens per second for an accept length and a cycle (ms), `today` is the best throughput as it is. A gain
    is taken against the best of the same `cases` unchanged. `all_reduce_share`: of verify (0 to 1), None: not known.
    """
    base = max(rate(case.accept_length, case.cycle_ms) for case in cases)
    found = []
    for what in _all(plain_ms, all_reduce_share, idle=any(case.idle_ms for case in cases)):
        if clock == "host" and what.code not in _BY_HOST:
            continue
        changed = [(case, change) for case in cases if (change := what.change(case)) is not None]
        if not changed:
            continue
        # Of equals the first, which is the one with the fewest steps.
        best, tok_s = max(((case, rate(*change)) for case, change in changed), key=lambda each: each[1])
        bound: Bound = "at least" if clock == "host" and what.code == "free_draft" else what.bound
        if bound == "at least" and tok_s <= base:
            continue  # at least nothing: that says nothing
        found.append(_lever(what, best.steps, today, max(tok_s / base - 1, 0.0), bound))
    return tuple(sorted(found, key=lambda lever: -lever.gain))


def _lever(what: _What, steps: int | None, today: float, gain: float, bound: Bound) -> Lever:
    tok_s = today * (1 + gain)
    at = "" if steps is None else f" at {steps} step{'' if steps == 1 else 's'}"
    worth = f"{bound} {tok_s:.1f} tok/s{at}, {100 * gain:.1f} % more"
    sentence = f"{what.name}: {worth if gain >= 0.0005 else 'worth nothing here'}."
    return Lever(what.code, what.name, sentence, tok_s, gain, steps, bound, what.assumption)


def _all(plain_ms: float | None, all_reduce_share: float | None, *, idle: bool) -> Iterator[_What]:
    yield _What("perfect_draft", "Every draft right", "accept length K + 1, costs as they are", _perfect)
    yield _What("free_draft", "A draft that costs nothing", "the draft's forwards take no time", _without("draft"))
    yield _What("free_extend", "A re-extend that costs nothing", "the re-extend takes no time", _without("extend"))
    yield _What(
        "zero_overhead",
        "Nothing between the phases",
        "no `other`, and none of the waits for the host that were seen",
        _no_overhead,
        "at least" if idle else "at most",
    )
    if idle:
        assumption = "only the idle time that a higher step count proves; there may be more"
        yield _What("no_host_wait", "A GPU that never waits for the host", assumption, _no_wait, "at least")
    if plain_ms is not None:
        assumption = f"verify takes what a plain step takes, {plain_ms:.2f} ms with its overhead"
        yield _What("plain_verify", "A verify as cheap as a plain step", assumption, _capped_verify(plain_ms))
    if all_reduce_share is not None:
        assumption = f"the all-reduce, {100 * all_reduce_share:.0f} % of verify, takes no time"
        yield _What("free_all_reduce", "An all-reduce that costs nothing", assumption, _scaled(1 - all_reduce_share))


def _perfect(case: Case) -> _Changed | None:
    return None if case.steps is None else (case.steps + 1.0, case.cycle_ms)


def _without(part: str) -> Callable[[Case], _Changed | None]:
    return lambda case: _faster(case, case.parts[part]) if part in case.parts else None


def _no_overhead(case: Case) -> _Changed | None:
    return _faster(case, case.parts["other"] + case.idle_ms) if "other" in case.parts else None


def _no_wait(case: Case) -> _Changed | None:
    return _faster(case, case.idle_ms) if case.parts else None


def _capped_verify(most: float) -> Callable[[Case], _Changed | None]:
    return lambda case: _faster(case, max(case.parts["verify"] - most, 0.0)) if "verify" in case.parts else None


def _scaled(rest: float) -> Callable[[Case], _Changed | None]:
    return lambda case: _faster(case, case.parts["verify"] * (1 - rest)) if "verify" in case.parts else None


def _faster(case: Case, saved_ms: float) -> _Changed:
    # What is left of a cycle is never nothing: a saved whole would be an endless throughput.
    return case.accept_length, max(case.cycle_ms - saved_ms, 0.001 * case.cycle_ms)
