"""One measurement looked at from all sides: the requests of one setting, the probe's blocks, the server's log."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from eaglelab.profile.acceptance import Acceptance, acceptance
from eaglelab.profile.bench import BenchResult
from eaglelab.profile.checks import check_cache, check_decode_lines, check_failures, check_graph, check_text
from eaglelab.profile.closure import check_closure
from eaglelab.profile.cross import (
    Reading,
    agree,
    cross_finding,
    from_decode_lines,
    from_meta,
    from_metrics,
    from_probe,
    from_server_info,
)
from eaglelab.profile.decode_groups import DecodeGroup
from eaglelab.profile.findings import Finding
from eaglelab.profile.records import CycleBlock, Records
from eaglelab.profile.samples import RequestSample
from eaglelab.profile.select_blocks import as_asked, at_batch
from eaglelab.profile.summary import Setting, summarise
from eaglelab.profile.tokens import check_tokens, count_tokens

__all__ = ["Evidence", "Examined", "examine"]


@dataclass(frozen=True)
class Evidence:
    """What one measurement of one setting left behind.

    `result` are the requests that the probe measured, `blocks` the probe's records of these very requests (flushed before
    and after, so that no other cycle is in them), `decode` the decode lines meanwhile, of which `after_idle` were left
    out already. `one_load`: the step count came from the request ids. `flushed`: the prefix cache was to be empty.
    `server_info` and `metrics` are the answers of the server right after the measurement, None where not asked.
    """

    result: BenchResult
    blocks: Sequence[CycleBlock] = ()
    decode: Sequence[DecodeGroup] = ()
    after_idle: int = 0
    one_load: bool = False
    flushed: bool = True
    random_prompts: bool = False
    server_info: Mapping[str, Any] | None = None
    metrics: str | None = None


@dataclass(frozen=True)
class Examined:
    """What came out.

    `setting` describes the cycles at the wanted concurrency, None without any. `accepted` is over all cycles of the wanted
    steps, those in which a round began and ended included: acceptance knows no batch size, and these are the verifies that
    the requests tell of.
    """

    setting: Setting | None
    accepted: Acceptance | None
    findings: tuple[Finding, ...]
    readings: tuple[Reading, ...]


def examine(evidence: Evidence) -> Examined:
    """Make every check that the evidence allows, and keep the blocks that count.

    Raises nothing on bad figures: that is what the findings are for.
    """
    result = evidence.result
    blocks: tuple[CycleBlock, ...] = tuple(evidence.blocks)
    findings: tuple[Finding, ...] = ()
    if evidence.one_load:
        asked = as_asked([block for block in blocks if _concerns(block, result.steps)])
        blocks, findings = asked.blocks, asked.findings
    blocks = tuple(block for block in blocks if block.steps == result.steps)
    # Where cycles ran with other steps than asked for, that is told, and the tokens of the others are no full count.
    counted = () if findings else blocks
    running = at_batch(blocks, result.batch)
    setting = next(iter(summarise(Records(blocks=list(running.blocks))).settings), None)
    accepted = _accepted(blocks, result.steps)
    readings = agree(_readings(evidence, accepted))
    crossed = (cross_finding(readings),) if len(readings) > 1 else ()
    return Examined(
        setting, accepted, (*findings, *running.findings, *_findings(evidence, counted, setting), *crossed), readings
    )


def _concerns(block: CycleBlock, steps: int | None) -> bool:
    """Whether a block of a load with several step counts has to do with requests of this one."""
    asked = block.steps_from_rid
    return asked is None or block.steps == steps or any(entry.wanted == steps for entry in asked)


def _accepted(blocks: Sequence[CycleBlock], steps: int | None) -> Acceptance | None:
    by_batch = [
        each.acceptance.histogram for each in summarise(Records(blocks=list(blocks))).settings if each.acceptance
    ]
    return acceptance(list(map(sum, zip_longest(*by_batch, fillvalue=0))), steps or 0)


def _findings(evidence: Evidence, counted: Sequence[CycleBlock], setting: Setting | None) -> Iterator[Finding]:
    samples = evidence.result.requests
    yield from check_failures(samples)
    if counted:
        yield check_tokens(count_tokens(samples, counted))
    if setting is not None:
        yield check_closure(setting, samples)
        yield from check_graph(setting)
    yield from check_decode_lines(evidence.decode, evidence.after_idle, evidence.result.batch)
    if evidence.flushed:
        yield from check_cache(samples)
    yield from check_text(samples, random_prompts=evidence.random_prompts)


def _readings(evidence: Evidence, accepted: Acceptance | None) -> Iterator[Reading | None]:
    steps, alone = evidence.result.steps, not evidence.one_load
    # A flush before each round leaves the server's average with the last round only.
    whole = alone and not evidence.flushed
    if steps is None:
        return
    release = evidence.blocks[0].identity.sglang if evidence.blocks else None
    batch = evidence.result.batch
    yield from_probe(accepted)
    yield from_meta(evidence.result.requests, steps, release)
    if evidence.server_info is not None:
        yield from_server_info(evidence.server_info, alone=whole, release=release)
    yield from_decode_lines(evidence.decode, batch, alone=alone, release=release)
    if evidence.metrics is not None and accepted is not None and accepted.stdev is not None:
        between = _between(evidence.result.requests)
        yield from_metrics(
            evidence.metrics, stdev=accepted.stdev, between=between, batch=batch, alone=alone, release=release
        )


def _between(samples: Sequence[RequestSample]) -> float:
    """Standard deviation of the accept length between requests, that of chance within them included."""
    lengths = [(sample.tokens - 1) / sample.verifies for sample in samples if sample.answered and sample.verifies]
    return statistics.stdev(lengths) if len(lengths) > 1 else 0.0
