"""Figures pooled over requests, and how sure they are: which requests may be taken as independent.

Requests that run side by side share every cycle, so they are fast or slow together: a round of them is one observation.
Rounds are therefore the unit of an interval wherever there are at least `MIN_ROUNDS` of them. With fewer, Student's t
has so few degrees of freedom that the interval says nothing, and requests are the unit: `unit` says so, and for
concurrent requests that interval is too narrow. A bootstrap would be no better there: of three values it finds intervals
some 2.7 times too narrow, because it knows the spread of those three and not how badly three tell it.

Acceptance depends on the text and hardly on the machine. The same prompt without sampling gives the same output every
time, so requests with equal outputs are one observation there, however often they were sent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from eaglelab.profile.samples import RequestSample
from eaglelab.profile.stats import ratio_ci95, rounded, rounded_pair

__all__ = ["MIN_ROUNDS", "Estimate", "Round", "accept_length", "rounds_of", "survival", "throughput", "timed"]

MIN_ROUNDS = 4


@dataclass(frozen=True)
class Estimate:
    """A pooled figure: its 95 % interval and the `count` of independent `unit`s behind that, None below two of them."""

    value: float
    ci95: tuple[float, float] | None
    count: int
    unit: str

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, rounded to 1e-6."""
        return {
            "value": rounded(self.value),
            "ci95": rounded_pair(self.ci95),
            "count": self.count,
            "unit": self.unit,
        }


@dataclass(frozen=True)
class Round:
    """Requests sent together: their output tokens, and the seconds from the first send to the last token."""

    number: int
    tokens: int
    wall_s: float

    @property
    def tok_s(self) -> float:
        """Output tokens per second of the whole round."""
        return self.tokens / self.wall_s


def rounds_of(samples: Iterable[RequestSample]) -> tuple[Round, ...]:
    """The rounds in which every request was answered, by number. Requests without `round` or `start_s` are in none.

    A round with a failed request ran at a lower concurrency than was asked for, so it is no observation.
    """
    members: dict[int, list[RequestSample]] = {}
    for sample in samples:
        if sample.round is not None and sample.start_s is not None:
            members.setdefault(sample.round, []).append(sample)
    rounds = []
    for number, found in sorted(members.items()):
        if not all(sample.answered for sample in found):
            continue
        starts = [sample.start_s or 0.0 for sample in found]
        ends = [start + sample.e2e_s for start, sample in zip(starts, found, strict=True)]
        rounds.append(Round(number, sum(sample.tokens for sample in found), max(ends) - min(starts)))
    return tuple(rounds)


def timed(samples: Sequence[RequestSample], wall_s: float | None) -> tuple[list[RequestSample], float | None]:
    """The answered requests whose wall time is known, and that time (s).

    Where requests came in rounds: those of the complete rounds, and the sum of the rounds' wall times. Else `wall_s`.
    """
    answered = [sample for sample in samples if sample.answered]
    rounds = rounds_of(samples)
    if not rounds:
        return answered, wall_s
    numbers = {each.number for each in rounds}
    return [sample for sample in answered if sample.round in numbers], math.fsum(each.wall_s for each in rounds)


def throughput(samples: Sequence[RequestSample], wall_s: float | None) -> Estimate | None:
    """Output tokens per second of all requests together; None without a wall time.

    Over at least `MIN_ROUNDS` rounds the interval is that of a ratio, tokens / wall times (Cochran, Sampling Techniques,
    6.4). Else it is the relative interval of tokens / time in the server over requests: the concurrency that was there
    (sum of times in the server / wall time) is taken as given.
    """
    counted, wall = timed(samples, wall_s)
    if not counted or not wall:
        return None
    tokens = [sample.tokens for sample in counted]
    rate = sum(tokens) / wall
    rounds = rounds_of(samples)
    if len(rounds) >= MIN_ROUNDS:
        ends = ratio_ci95([each.tokens for each in rounds], [each.wall_s for each in rounds])
        return Estimate(rate, ends, len(rounds), "rounds")
    times = [sample.e2e_s for sample in counted]
    concurrency = math.fsum(times) / wall
    ends = ratio_ci95(tokens, times)
    ci95 = None if ends is None else (ends[0] * concurrency, ends[1] * concurrency)
    return Estimate(rate, ci95, len(counted), "requests")


def accept_length(samples: Iterable[RequestSample]) -> Estimate | None:
    """(Output tokens - requests) / verifies over the requests whose verifies are known; at least 1.00.

    A request's first token is prefill's. A last verify that the token limit cuts off makes the figure a little low.
    """
    known = [sample for sample in samples if sample.answered and sample.verifies]
    return _per_verify(known, lambda sample: sample.tokens - 1)


def survival(samples: Iterable[RequestSample]) -> tuple[Estimate, ...]:
    """S_1, S_2, ...: the share of verifies with at least k correct drafts, from the server's histograms."""
    known = [sample for sample in samples if sample.answered and sample.correct_hist and sum(sample.correct_hist)]
    reach = max((len(sample.correct_hist or ()) for sample in known), default=1)

    def at_least(k: int) -> Callable[[RequestSample], int]:
        return lambda sample: sum((sample.correct_hist or ())[k:])

    found = (_per_verify(known, at_least(k), lambda sample: sum(sample.correct_hist or ())) for k in range(1, reach))
    return tuple(
        each if each.ci95 is None else Estimate(each.value, _within(each.ci95), each.count, each.unit)
        for each in found
        if each is not None
    )


def _per_verify(
    samples: Sequence[RequestSample],
    count: Callable[[RequestSample], int],
    verifies: Callable[[RequestSample], int] = lambda sample: sample.verifies or 0,
) -> Estimate | None:
    """A count per verify, with the distinct outputs as units."""
    if not samples:
        return None
    groups: dict[object, list[RequestSample]] = {}
    for number, sample in enumerate(samples):
        groups.setdefault(sample.output_hash or number, []).append(sample)
    tops = [sum(count(sample) for sample in group) for group in groups.values()]
    bottoms = [sum(verifies(sample) for sample in group) for group in groups.values()]
    return Estimate(sum(tops) / sum(bottoms), ratio_ci95(tops, bottoms), len(groups), "outputs")


def _within(ends: tuple[float, float]) -> tuple[float, float]:
    return max(ends[0], 0.0), min(ends[1], 1.0)
