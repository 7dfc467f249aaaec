"""From the probe's records to the profile of a run: per setting what was measured, how surely, and what limits it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eaglelab.profile.acceptance import Acceptance, acceptance
from eaglelab.profile.definitions import DEFINITIONS, PHASES
from eaglelab.profile.phases import Phase, host_sentence, limit_sentence, limiting_phase, summarise_phases
from eaglelab.profile.records import GRAPH, CycleBlock, Records
from eaglelab.profile.stats import ratio_ci95, rounded, rounded_pair

__all__ = ["PROFILE_SCHEMA", "Profile", "Rank", "Rate", "Setting", "summarise"]

PROFILE_SCHEMA = 1

_Key = tuple[str, int, int, bool]


@dataclass(frozen=True)
class Rate:
    """Output tokens per second of GPU-timeline time over `cycles` kept cycles, for all requests of the batch together."""

    in_all: float
    ci95: tuple[float, float] | None
    batch_size: int
    cycles: int

    @property
    def per_request(self) -> float:
        """Tokens per second that one request of the batch sees."""
        return self.in_all / self.batch_size

    @property
    def per_request_ci95(self) -> tuple[float, float] | None:
        """The interval of `per_request`."""
        return None if self.ci95 is None else (self.ci95[0] / self.batch_size, self.ci95[1] / self.batch_size)

    def to_json(self) -> dict[str, Any]:
        """Each rate with its interval."""
        return {
            "per_request": rounded(self.per_request),
            "per_request_ci95": rounded_pair(self.per_request_ci95),
            "in_all": rounded(self.in_all),
            "in_all_ci95": rounded_pair(self.ci95),
            "cycles": self.cycles,
        }


@dataclass(frozen=True)
class Rank:
    """One rank's view of the same setting: kept cycles and mean event time per phase (ms; empty when none kept)."""

    rank: int
    cycles: int
    event_ms: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        """Means only: the full figures are those of the main rank."""
        return {
            "rank": self.rank,
            "cycles": self.cycles,
            "event_ms": {phase: rounded(mean) for phase, mean in self.event_ms.items()},
        }


@dataclass(frozen=True)
class Setting:
    """One worker class, step count and batch size. All figures are those of `rank`, the lowest that reported."""

    worker: str
    steps: int
    batch_size: int
    sync: bool
    rank: int
    world: int
    cycles: int
    decode_cycles: int
    dropped: Mapping[str, int]
    skipped: int
    unknown: int
    graph: Mapping[str, int] | None
    tokens: int
    phases: tuple[Phase, ...]
    acceptance: Acceptance | None
    rate: Rate | None
    ranks: tuple[Rank, ...]

    @property
    def skew_ms(self) -> dict[str, float] | None:
        """Largest minus smallest mean event time per phase; None with fewer than two ranks that kept cycles."""
        timed = [rank.event_ms for rank in self.ranks if rank.event_ms]
        if len(timed) < 2:
            return None
        return {phase: max(times[phase] for times in timed) - min(times[phase] for times in timed) for phase in PHASES}

    @property
    def limit(self) -> str:
        """Which phase limits, in a sentence."""
        return limit_sentence(self.phases)

    @property
    def host_timers(self) -> str:
        """What host timers would have said, in a sentence; empty when no cycle was kept."""
        return host_sentence(self.phases)

    def to_json(self) -> dict[str, Any]:
        """One entry of `settings` in profile.json."""
        limit = limiting_phase(self.phases)
        skew = self.skew_ms
        return {
            "worker": self.worker,
            "steps": self.steps,
            "batch_size": self.batch_size,
            "sync": self.sync,
            "rank": self.rank,
            "world": self.world,
            "cycles": {
                "kept": self.cycles,
                "decode": self.decode_cycles,
                "dropped": dict(self.dropped),
                "skipped": self.skipped,
                "unknown": self.unknown,
                "graph": None if self.graph is None else dict(self.graph),
            },
            "tokens": self.tokens,
            "phases": {phase.name: phase.to_json() for phase in self.phases},
            "acceptance": None if self.acceptance is None else self.acceptance.to_json(),
            "tok_s": None if self.rate is None else self.rate.to_json(),
            "limit": {"phase": None if limit is None else limit.name, "sentence": self.limit},
            "host_timers": self.host_timers,
            "ranks": [rank.to_json() for rank in self.ranks],
            "skew_ms": None if skew is None else {phase: rounded(value) for phase, value in skew.items()},
        }


@dataclass(frozen=True)
class Profile:
    """What a run measured. `simulated` is the label of a simulated GPU, None on real hardware."""

    simulated: str | None
    sglang: tuple[str, ...]
    probe: tuple[str, ...]
    settings: tuple[Setting, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """profile.json, schema 1: see docs/reading-a-report.md."""
        return {
            "kind": "eaglelab-profile",
            "schema": PROFILE_SCHEMA,
            "simulated": self.simulated,
            "sglang": list(self.sglang),
            "probe": list(self.probe),
            "definitions": dict(DEFINITIONS),
            "settings": [setting.to_json() for setting in self.settings],
            "notes": list(self.notes),
        }


def summarise(records: Records, *, simulated: str | None = None) -> Profile:
    """Pool the blocks of each setting, lowest rank first, and describe them.

    Settings are ordered by worker class, steps, batch size. Problems of the records come back as notes.
    """
    groups: dict[_Key, list[CycleBlock]] = {}
    for block in records.blocks:
        key = (block.identity.worker, block.steps, block.batch_size, block.identity.sync)
        groups.setdefault(key, []).append(block)
    identities = [*(start.identity for start in records.starts), *(block.identity for block in records.blocks)]
    return Profile(
        simulated=simulated,
        sglang=tuple(sorted({identity.sglang for identity in identities})),
        probe=tuple(sorted({identity.probe for identity in identities})),
        settings=tuple(_setting(key, groups[key]) for key in sorted(groups)),
        notes=tuple(_notes(records)),
    )


def _setting(key: _Key, blocks: Sequence[CycleBlock]) -> Setting:
    worker, steps, batch_size, sync = key
    by_rank: dict[int, list[CycleBlock]] = {}
    for block in blocks:
        by_rank.setdefault(block.identity.rank, []).append(block)
    rank = min(by_rank)
    main = by_rank[rank]
    dropped: Counter[str] = Counter()
    for block in main:
        dropped.update(block.dropped)
    told = [block.graph for block in main if block.graph is not None]
    return Setting(
        worker=worker,
        steps=steps,
        batch_size=batch_size,
        sync=sync,
        rank=rank,
        world=main[-1].identity.world,
        cycles=sum(block.cycles for block in main),
        decode_cycles=sum(block.decode_cycles for block in main),
        dropped=dict(dropped),
        skipped=sum(block.skipped for block in main),
        unknown=sum(block.unknown for block in main),
        graph={how: sum(graph[how] for graph in told) for how in GRAPH} if told else None,
        tokens=sum(block.tokens for block in main),
        phases=summarise_phases(
            {phase: [ms for block in main for ms in block.event_ms[phase]] for phase in PHASES},
            {phase: [ms for block in main for ms in block.host_ms[phase]] for phase in PHASES},
        ),
        acceptance=acceptance(_pooled(block.correct_hist for block in main), steps),
        rate=_rate(main, batch_size),
        ranks=tuple(_rank(number, by_rank[number]) for number in sorted(by_rank)),
    )


def _pooled(histograms: Iterable[Sequence[int]]) -> list[int]:
    pooled: list[int] = []
    for histogram in histograms:
        pooled.extend([0] * (len(histogram) - len(pooled)))
        for j, count in enumerate(histogram):
            pooled[j] += count
    return pooled


def _rate(blocks: Sequence[CycleBlock], batch_size: int) -> Rate | None:
    """Over the kept cycles whose tokens are known; None when there are none or they took no time."""
    pairs = [
        (tokens, ms / 1000)
        for block in blocks
        for tokens, ms in zip(block.kept_tokens, block.event_ms["total"], strict=True)
        if tokens is not None
    ]
    tokens = [count for count, _ in pairs]
    seconds = [time for _, time in pairs]
    whole = math.fsum(seconds)
    if whole <= 0:
        return None
    return Rate(sum(tokens) / whole, ratio_ci95(tokens, seconds), batch_size, len(pairs))


def _rank(number: int, blocks: Sequence[CycleBlock]) -> Rank:
    cycles = sum(block.cycles for block in blocks)
    if not cycles:
        return Rank(number, 0, {})
    means = {phase: math.fsum(ms for block in blocks for ms in block.event_ms[phase]) / cycles for phase in PHASES}
    return Rank(number, cycles, means)


def _notes(records: Records) -> Iterable[str]:
    if not records.blocks:
        yield "The probe wrote no block of decode cycles."
    processes: dict[int, set[int]] = {}
    for block in records.blocks:
        processes.setdefault(block.identity.rank, set()).add(block.identity.pid)
    restarts = max((len(pids) for pids in processes.values()), default=1)
    if restarts > 1:
        yield f"The records come from {restarts} processes of one rank (a restart); their cycles are pooled."
    if any(block.identity.sync for block in records.blocks):
        yield "EAGLE3_PROFILE_SYNC was on: the phases are right, but the server ran slower than it does without."
    if records.left_out:
        yield f"Of {records.left_out + len(records.blocks)} blocks in the log the newest {len(records.blocks)} are used."
    yield from (f"probe records, {problem}" for problem in records.told())
