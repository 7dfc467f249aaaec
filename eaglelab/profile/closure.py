"""Closure: what the probe saw of a cycle must add up to the tokens that clients received.

    requests running x accept length / total cycle time  =  tokens per second that the clients saw meanwhile

Two clocks and two counts that know nothing of each other agree, or one of them is wrong. Where the probe times one of several
cycles, their mean may be off by chance, too: as far as that goes is allowed on top.
"""

from __future__ import annotations

import itertools
import math
import statistics
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from eaglelab.profile.findings import Finding
from eaglelab.profile.samples import RequestSample
from eaglelab.profile.stats import Stats
from eaglelab.profile.summary import Setting

__all__ = ["CLOSURE_TOLERANCE", "FullLoad", "check_closure", "full_load"]

CLOSURE_TOLERANCE = 0.05
_SIGMAS = 3.0
_Span = tuple[float, float]


@dataclass(frozen=True)
class FullLoad:
    """What clients received while exactly the wanted number of requests was decoding: tokens, over how many seconds."""

    tokens: float
    seconds: float

    @property
    def tok_s(self) -> float:
        """Tokens per second of all these requests together."""
        return self.tokens / self.seconds


def full_load(samples: Iterable[RequestSample], batch: int) -> FullLoad | None:
    """The clients' decode rate while exactly `batch` requests were between their first and their last token.

    Prefill, queueing and the run-out of a round, where fewer are left, are outside. Tokens of a chunk are spread evenly
    over the cycle (the request's median gap) before it; where chunk sizes are unknown, over the request. One request at a time needs no start times;
    several do (`start_s`). None where such a time never was.
    """
    decoded = [sample for sample in samples if sample.answered and sample.tokens > 1 and sample.decode_s > 0]
    if batch == 1 and any(sample.start_s is None for sample in decoded):
        tokens, seconds = sum(sample.tokens - 1 for sample in decoded), math.fsum(each.decode_s for each in decoded)
        return FullLoad(tokens, seconds) if decoded else None
    rounds: dict[int | None, list[RequestSample]] = {}
    for sample in decoded:
        rounds.setdefault(sample.round, []).append(sample)
    seen = [_of_round(found, batch) for found in rounds.values()]
    whole = math.fsum(each.seconds for each in seen)
    return FullLoad(math.fsum(each.tokens for each in seen), whole) if whole > 0 else None


def _of_round(samples: Sequence[RequestSample], batch: int) -> FullLoad:
    """Of one round: those of two loads may each count their time from 0."""
    placed = [(sample, sample.start_s + sample.ttft_s) for sample in samples if sample.start_s is not None]
    full_before, whole = _time_at(batch, [(first, first + sample.decode_s) for sample, first in placed])
    received = math.fsum(
        tokens * (full_before(end) - full_before(begin)) / (end - begin)
        for sample, first in placed
        for tokens, begin, end in _arrivals(sample, first)
    )
    return FullLoad(received, whole)


def check_closure(
    setting: Setting, samples: Sequence[RequestSample], *, tolerance: float = CLOSURE_TOLERANCE
) -> Finding:
    """Compare the probe's figures of one setting with what the clients of the same, measured requests received.

    `samples` are those whose cycles are in `setting`, on the server's clock; its batch size is the concurrency.
    `tolerance` is a share of the clients' rate, where all cycles were timed.
    """
    code = "closure"
    total = next((phase for phase in setting.phases if phase.name == "total"), None)
    seen = full_load(samples, setting.batch_size)
    if total is None or setting.acceptance is None or seen is None:
        what = "the clients' tokens" if seen is None else "the probe's cycles"
        sentence = f"Closure could not be checked: {what} say nothing of {setting.batch_size} requests running."
        return Finding(code, "note", sentence, {"batch": setting.batch_size})
    chance = _by_chance(setting, total.event)
    if chance is None:
        sentence = f"Closure could not be checked: one cycle of {setting.decode_cycles} was timed."
        return Finding(code, "note", sentence, {"batch": setting.batch_size})
    tolerance += chance
    probed = 1000 * setting.batch_size * setting.acceptance.length / total.event.mean
    off = probed / seen.tok_s - 1
    numbers = {
        "batch": setting.batch_size,
        "accept_length": setting.acceptance.length,
        "total_ms": total.event.mean,
        "cycles": total.event.count,
        "probe_tok_s": probed,
        "clients_tok_s": seen.tok_s,
        "clients_tokens": round(seen.tokens),
        "difference": off,
        "tolerance": tolerance,
    }
    sums = (
        f"{setting.batch_size} x {setting.acceptance.length:.3f} tokens / {total.event.mean:.3f} ms = {probed:.1f} tok/s "
        f"by the probe, {seen.tok_s:.1f} tok/s by the clients ({100 * off:+.1f} %)"
    )
    if abs(off) <= tolerance:
        return Finding(code, "ok", f"The cycle adds up: {sums}.", numbers)
    sentence = f"The cycle does not add up: {sums}. Either cycles are missing from the probe's records or time from its phases."
    return Finding(code, "alarm", sentence, numbers)


def _by_chance(setting: Setting, total: Stats) -> float | None:
    """How far the mean of the timed cycles may be off that of all, as a share of it; None where a single one says nothing.

    The timed ones are drawn by chance, one of each so many: three standard errors.
    """
    if not setting.dropped.get("untimed"):
        return 0.0
    return None if total.stdev is None else _SIGMAS * total.stdev / math.sqrt(total.count) / total.mean


def _time_at(batch: int, spans: Iterable[_Span]) -> tuple[Callable[[float], float], float]:
    """How long exactly `batch` of the spans were open before a moment, as a function of it; and in all."""
    changes = sorted(itertools.chain.from_iterable(((begin, 1), (end, -1)) for begin, end in spans))
    moments, before, wanted = [-math.inf], [0.0], [False]
    running, spent = 0, 0.0
    for moment, change in changes:
        spent += moment - moments[-1] if wanted[-1] else 0.0
        running += change
        moments.append(moment)
        before.append(spent)
        wanted.append(running == batch)

    def time_before(moment: float) -> float:
        at = bisect_right(moments, moment) - 1
        return before[at] + (moment - moments[at] if wanted[at] else 0.0)

    return time_before, spent


def _arrivals(sample: RequestSample, first: float) -> Iterator[tuple[int, float, float]]:
    """New tokens after the first chunk, with the time in which they came to be: the cycle before they arrived.

    A gap much longer than a cycle begins with a wait, most often for another request's prefill.
    """
    if len(sample.chunk_tokens) != len(sample.itl_s) + 1:
        yield sample.tokens - 1, first, first + sample.decode_s
        return
    cycle = statistics.median([gap for gap in sample.itl_s if gap > 0])
    begin = end = first
    waiting = 0
    # Chunks read in the same moment have no gap between them: they came to be in the one before.
    for tokens, gap in zip(sample.chunk_tokens[1:], sample.itl_s, strict=True):
        if gap > 0:
            if end > begin:
                yield waiting, begin, end
                waiting = 0
            begin, end = end + max(gap - cycle, 0.0), end + gap
        waiting += tokens
    yield waiting, begin, end
