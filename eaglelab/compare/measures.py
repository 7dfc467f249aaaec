"""The differences between two sides at one setting: paired by prompts and round where that is possible."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence

from eaglelab.compare.difference import Difference, between_loads, from_error, paired, unpaired
from eaglelab.compare.metrics import METRICS
from eaglelab.compare.observed import LATENCIES, SERVED, Observed, round_means, spreads
from eaglelab.profile.bench import BenchResult
from eaglelab.profile.pooling import accept_length, rounds_of
from eaglelab.profile.samples import RequestSample

__all__ = ["PROMPTS", "differences", "same_rounds"]

PROMPTS = (
    "prompts",
    "prompts_sha256",
    "random_input_len",
    "random_output_len",
    "random_range_ratio",
    "seed",
    "output_len",
    "temperature",
)
"""What a workload's requests follow from."""

_LEAST = 2


def differences(reference: Sequence[Observed], candidate: Sequence[Observed]) -> dict[str, Difference]:
    """Candidate against reference, by metric: those that both sides have. With several loads a side, the load is the unit."""
    sides = [[spreads(each) for each in side] for side in (reference, candidate)]
    found: dict[str, Difference] = {}
    for name in METRICS:
        a, b = ([spread[name] for spread in side if name in spread] for side in sides)
        if not a or not b:
            continue
        alone = len(a) == len(b) == 1
        found[name] = (
            unpaired(a[0], b[0]) if alone else between_loads([each.value for each in a], [each.value for each in b])
        )
    if len(reference) == len(candidate) == 1:
        found.update(_paired(reference[0], candidate[0]))
    return found


def same_rounds(reference: Observed, candidate: Observed) -> list[int]:
    """The complete rounds in which both were sent the same prompts: equal workloads, equal lengths of the prompts."""
    first, second = reference.plain, candidate.plain
    if first is None or second is None:
        return []
    if any(reference.workload.get(name) != candidate.workload.get(name) for name in PROMPTS):
        return []
    whole = {each.number for each in rounds_of(first.requests)} & {each.number for each in rounds_of(second.requests)}
    lengths = [_lengths(result) for result in (first, second)]
    said = bool(reference.workload)
    return sorted(
        number
        for number in whole
        if lengths[0][number] == lengths[1][number] and (said or None not in lengths[0][number])
    )


def _lengths(result: BenchResult) -> dict[int, list[int | None]]:
    found: dict[int, list[int | None]] = {}
    for sample in result.requests:
        if sample.round is not None:
            found.setdefault(sample.round, []).append(sample.prompt_tokens)
    return found


def _paired(reference: Observed, candidate: Observed) -> Mapping[str, Difference]:
    found: dict[str, Difference] = {}
    numbers = same_rounds(reference, candidate)
    if len(numbers) >= _LEAST and reference.plain is not None and candidate.plain is not None:
        found.update(_by_round(reference.plain, candidate.plain, numbers))
    found.update(_by_run(reference, candidate))
    return found


def _by_round(first: BenchResult, second: BenchResult, numbers: Sequence[int]) -> Iterator[tuple[str, Difference]]:
    rates = [{each.number: each.tok_s for each in rounds_of(result.requests)} for result in (first, second)]
    a, b = ([rate[number] for number in numbers] for rate in rates)
    yield "tok_s", paired(a, b, "rounds", shown=(statistics.harmonic_mean(a), statistics.harmonic_mean(b)))
    for name, of in LATENCIES.items():
        means = [round_means(result, of) for result in (first, second)]
        known = [number for number in numbers if number in means[0] and number in means[1]]
        if len(known) >= _LEAST:
            a, b = ([mean[number] for number in known] for mean in means)
            yield name, paired(a, b, "rounds")
    accepted = _accepted(first, second, numbers)
    if accepted is not None:
        yield "accept_length", accepted


def _accepted(first: BenchResult, second: BenchResult, numbers: Sequence[int]) -> Difference | None:
    """The difference of two ratios, tokens / verifies, over pairs of requests with the same prompt.

    Pairs whose two outputs were seen before are one observation with those: without sampling a prompt that comes again
    tells nothing new. Variance: that of the linearised difference of two ratio estimators (Cochran, Sampling
    Techniques, 6.4 and 6.12).
    """
    groups: dict[object, list[tuple[RequestSample, RequestSample]]] = {}
    for number, pair in enumerate(_pairs(first, second, numbers)):
        hashes = (pair[0].output_hash, pair[1].output_hash)
        groups.setdefault(number if None in hashes else hashes, []).append(pair)
    if not groups:
        return None
    a, b = (accept_length(pair[side] for group in groups.values() for pair in group) for side in (0, 1))
    if a is None or b is None:
        return None
    verifies = [_sum([group[side] for pairs in groups.values() for group in pairs]) for side in (0, 1)]
    residuals = [
        _residual([pair[1] for pair in group], b.value, verifies[1])
        - _residual([pair[0] for pair in group], a.value, verifies[0])
        for group in groups.values()
    ]
    count = len(residuals)
    error = statistics.stdev(residuals, 0.0) * math.sqrt(count) if count > 1 else None
    return from_error(a.value, b.value, error, "outputs", count, paired=True)


def _pairs(
    first: BenchResult, second: BenchResult, numbers: Sequence[int]
) -> Iterator[tuple[RequestSample, RequestSample]]:
    for number in numbers:
        rounds = [[sample for sample in result.requests if sample.round == number] for result in (first, second)]
        for pair in zip(*rounds, strict=True):
            if pair[0].verifies and pair[1].verifies:
                yield pair


def _sum(samples: Sequence[RequestSample]) -> int:
    return sum(sample.verifies or 0 for sample in samples)


def _residual(samples: Sequence[RequestSample], length: float, verifies: int) -> float:
    tokens = sum(sample.tokens - 1 for sample in samples)
    return (tokens - length * _sum(samples)) / verifies


def _by_run(reference: Observed, candidate: Observed) -> Iterator[tuple[str, Difference]]:
    """Runs of SGLang's client with the same seed and number of requests were sent the same prompts."""
    sides = [{(run.repeat, run.seed, run.asked): run for run in each.served} for each in (reference, candidate)]
    common = sorted(set(sides[0]) & set(sides[1]))
    if any(reference.workload.get(name) != candidate.workload.get(name) for name in PROMPTS):
        return
    for name, figure in SERVED.items():
        pairs = [(sides[0][key].row[figure], sides[1][key].row[figure]) for key in common]
        known = [(a, b) for a, b in pairs if a is not None and b is not None]
        if len(known) >= _LEAST:
            yield name, paired([a for a, _ in known], [b for _, b in known], "runs")
