"""What a server log tells, as the model wants it: the probe's records, else EAGLE3_PROF blocks, else decode lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from eaglelab.model.explain import explain
from eaglelab.model.explained import Clock, Explained
from eaglelab.model.from_run import explain_settings
from eaglelab.model.log_blocks import PooledBlocks, pool
from eaglelab.model.seen import MOST_STEPS, Plain, Seen
from eaglelab.model.unnamed import Unnamed
from eaglelab.profile.decode_groups import DecodeGroup
from eaglelab.profile.log_report import LogReport

__all__ = ["Reference", "explain_log"]

_SAME = 0.05
"""Within this share of a reference a throughput is no regression: logs are single runs."""


@dataclass(frozen=True)
class Reference:
    """A throughput from elsewhere to hold a log against: tokens per second of `batch` requests, and what it is of."""

    tok_s: float
    words: str
    batch: int = 1


def explain_log(report: LogReport, *, reference: Reference | None = None) -> tuple[Explained, ...]:
    """One entry a batch size; empty where the log says nothing of cycles or accept lengths.

    A log most often has one step count, and may not name it: then no other count is predicted, while break-even and the
    levers that need none remain.
    """
    plains = _plains(report)
    if report.profile is not None:
        found = explain_settings(report.profile.settings, plains=plains)
        if found:
            return found
    return tuple(_blocks(report, plains, reference)) or tuple(_decoding(report, plains))


def _blocks(report: LogReport, plains: Mapping[int, Plain], reference: Reference | None) -> Iterator[Explained]:
    only = _only_steps(report)
    for batch, pooled in pool(report.blocks, lambda block: _plausible(block.text.counts.get("steps", only))).items():
        clock: Clock = "events" if all(each.ours for each in pooled) else "host"
        named = [(each.steps, each) for each in pooled if each.steps is not None]
        if named:
            found = explain(batch, [_seen_of(steps, each) for steps, each in named], plains.get(batch), clock=clock)
        else:
            (only_one,) = pooled
            unnamed = Unnamed(batch, only_one.accept_length, only_one.cycle_ms, only_one.printed_ms)
            found = unnamed.explained(plains.get(batch), clock)
        best = max(pooled, key=lambda each: each.tok_s)
        told = [*best.told(), *_against(reference, batch, best.tok_s)]
        yield replace(found, sentences=(*told, *found.sentences))


def _decoding(report: LogReport, plains: Mapping[int, Plain]) -> Iterator[Explained]:
    """From SGLang's decode lines: T = batch * AL / (tok/s), without any split."""
    by_batch: dict[int, dict[int | None, DecodeGroup]] = {}
    for group in report.decode:
        if group.accept_length is not None and group.throughput is not None and group.throughput.median > 0:
            here = by_batch.setdefault(group.running_requests, {})
            steps = _steps_of(report, group.start)
            if steps not in here or group.lines > here[steps].lines:
                here[steps] = group
    for batch, groups in sorted(by_batch.items()):
        named_groups = {steps: group for steps, group in groups.items() if steps is not None}
        rates = {steps: _rate_of(group) for steps, group in named_groups.items()}
        if batch and rates:
            seen = [Seen.of_rate(steps, tok_s, length, batch) for steps, (tok_s, length) in rates.items()]
            yield explain(batch, seen, plains.get(batch), clock="clients")
        elif batch:
            tok_s, length = _rate_of(groups[None])
            yield Unnamed(batch, length, 1000 * batch * length / tok_s).explained(plains.get(batch), "clients")


def _rate_of(group: DecodeGroup) -> tuple[float, float]:
    """Median tokens per second and mean accept length of lines that have both; SGLang prints none below 1.00."""
    throughput, accepted = group.throughput, group.accept_length
    return (throughput.median if throughput else 0.0), max(accepted.mean if accepted else 1.0, 1.0)


def _plains(report: LogReport) -> dict[int, Plain]:
    """Decode lines without an accept length are of a server without speculation; of several the longest counts."""
    found: dict[int, DecodeGroup] = {}
    for group in report.decode:
        usable = group.accept_length is None and group.throughput is not None and group.throughput.median > 0
        if usable and group.running_requests:
            before = found.get(group.running_requests)
            if before is None or group.lines > before.lines:
                found[group.running_requests] = group
    return {
        batch: Plain(group.throughput.median, 1000 * batch / group.throughput.median, group.throughput.ci95)
        for batch, group in found.items()
        if group.throughput is not None
    }


def _steps_of(report: LogReport, start: int) -> int | None:
    """The step count of a server start (from 1); None where the log does not name it or it changes at run time."""
    if not 1 <= start <= len(report.server_starts):
        return None
    args = report.server_starts[start - 1]
    steps = args.get("speculative_num_steps", "")
    if len(steps) > 3 or not steps.isdecimal() or args.get("speculative_adaptive") == "True":
        return None
    return _plausible(int(steps))


def _plausible(steps: int | None) -> int | None:
    """A step count that a server can run; a log may hold anything."""
    return steps if steps is not None and 1 <= steps <= MOST_STEPS else None


def _only_steps(report: LogReport) -> int | None:
    """The step count of all server starts, where they agree."""
    counts = {_steps_of(report, start) for start in range(1, len(report.server_starts) + 1)}
    return counts.pop() if len(counts) == 1 else None


def _seen_of(steps: int, pooled: PooledBlocks) -> Seen:
    return Seen(
        steps=steps,
        cycle_ms=pooled.cycle_ms,
        accept_length=pooled.accept_length,
        event_ms=pooled.printed_ms if pooled.ours else {},
        host_ms=pooled.host_ms,
    )


def _against(reference: Reference | None, batch: int, tok_s: float) -> Iterator[str]:
    if reference is None or reference.batch != batch:
        return
    percent = 100 * (tok_s / reference.tok_s - 1)
    verdict = "a regression" if percent < -100 * _SAME else "no regression"
    yield (
        f"Against {reference.tok_s:.1f} tok/s ({reference.words}) that is {abs(percent):.1f} % "
        f"{'less' if percent < 0 else 'more'}: {verdict}."
    )
