"""The probe's JSON lines (schema 1): bytes in, checked records out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from eaglelab.profile.definitions import PHASES
from eaglelab.profile.record_fields import RecordError, count, items, mapping, number, text, whole

__all__ = [
    "GRAPH",
    "KEPT_PROBLEMS",
    "SCHEMA",
    "Asked",
    "CycleBlock",
    "Identity",
    "Problem",
    "RecordError",
    "Records",
    "Start",
    "parse_record",
    "read_records",
]

SCHEMA = 1
KEPT_PROBLEMS = 100
_LONGEST_PROBLEM = 300
GRAPH = ("cuda_graph", "eager")
"""How a cycle's target ran."""


@dataclass(frozen=True)
class Identity:
    """Who wrote a record. `time` is unix seconds, `every` cycles a block, `sync` the synchronising cross-check mode."""

    probe: str
    sglang: str
    worker: str
    rank: int
    world: int
    pid: int
    time: float
    every: int
    sync: bool


@dataclass(frozen=True)
class Start:
    """The probe has seen its first decode cycle."""

    identity: Identity


@dataclass(frozen=True)
class Asked:
    """What the requests of some cycles asked for. `why` says what kept `wanted` from being `active`, None if nothing did.

    `wanted` is None where no single step count was asked for; `active` is the block's.
    """

    wanted: int | None
    active: int
    cycles: int
    why: str | None


@dataclass(frozen=True)
class CycleBlock:
    """Cycles of one step count and batch size.

    `event_ms` and `host_ms` map each phase to one value a kept cycle (ms); `kept_tokens` are the tokens of the same
    cycles, bonus included, None where the count could not be read. `correct_hist[j]` counts the request-cycles with j
    correct drafts over all decode cycles, dropped ones included. `graph` counts the decode cycles whose target ran as a
    CUDA graph (`cuda_graph`) or eagerly (`eager`), where the worker said so; None where it never did. `steps_from_rid`
    is what the requests asked for, None where request ids choose nothing; its cycles add up to `decode_cycles`.
    """

    identity: Identity
    steps: int
    batch_size: int
    decode_cycles: int
    cycles: int
    tokens: int
    correct_hist: tuple[int, ...]
    unknown: int
    dropped: Mapping[str, int]
    skipped: int
    kept_tokens: tuple[int | None, ...]
    event_ms: Mapping[str, tuple[float, ...]]
    host_ms: Mapping[str, tuple[float, ...]]
    graph: Mapping[str, int] | None = None
    steps_from_rid: tuple[Asked, ...] | None = None


@dataclass(frozen=True)
class Problem:
    """A line that was left out, or kept in spite of a contradiction. `line` counts from 1."""

    line: int
    what: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.what}"


@dataclass
class Records:
    """All records of one or several probe files, in order.

    Of problems the first `KEPT_PROBLEMS` are kept and `more_problems` counts the others. With `limit` only so many of
    the newest blocks and starts are kept, and `left_out` counts the blocks before them.
    """

    starts: list[Start] = field(default_factory=list)
    blocks: list[CycleBlock] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    more_problems: int = 0
    limit: int | None = None
    left_out: int = 0

    def add(self, line: bytes | str, number: int) -> None:
        """Parse one line and file it; a bad line becomes a problem."""
        try:
            record = parse_record(line)
        except RecordError as error:
            self._problem(number, str(error))
            return
        if isinstance(record, Start):
            self.starts.append(record)
            if self.limit is not None:
                del self.starts[: -self.limit]
            return
        self.blocks.append(record)
        for what in _contradictions(record):
            self._problem(number, f"{what}; block kept")
        if self.limit is not None and len(self.blocks) > self.limit:
            del self.blocks[0]
            self.left_out += 1

    def told(self) -> list[str]:
        """The problems as sentences, with the number of those that were not kept."""
        more = [f"and {self.more_problems} more lines like these"] if self.more_problems else []
        return [*map(str, self.problems), *more]

    def _problem(self, number: int, what: str) -> None:
        if len(self.problems) < KEPT_PROBLEMS:
            self.problems.append(Problem(number, what[:_LONGEST_PROBLEM]))
        else:
            self.more_problems += 1


def read_records(lines: Iterable[bytes | str]) -> Records:
    """Read JSON lines of one file, or of several chained. Never raises on content: see `Records.problems`."""
    records = Records()
    for place, line in enumerate(lines, start=1):
        if line.strip():
            records.add(line, place)
    return records


def parse_record(line: bytes | str) -> Start | CycleBlock:
    """Parse one JSON line.

    Raises RecordError for anything that is not a start or block record of schema 1 with lists of matching lengths.
    """
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RecordError("not JSON (cut short?)") from error
    if not isinstance(data, dict):
        raise RecordError("not a JSON object")
    if data.get("schema") != SCHEMA:
        raise RecordError(f"schema {data.get('schema')!r} is not known; this version reads schema {SCHEMA}")
    kind = data.get("kind")
    if kind == "start":
        return Start(_identity(data))
    if kind == "block":
        return _block(data)
    raise RecordError(f"kind {kind!r} is not known")


def _contradictions(block: CycleBlock) -> Iterator[str]:
    expected = (block.decode_cycles - block.unknown) * block.batch_size
    if sum(block.correct_hist) != expected:
        yield f"correct_hist counts {sum(block.correct_hist)} request-cycles, the cycles say {expected}"
    asked = block.steps_from_rid
    if asked is not None and sum(entry.cycles for entry in asked) != block.decode_cycles:
        told = sum(entry.cycles for entry in asked)
        yield f"steps_from_rid counts {told} cycles, the block {block.decode_cycles}"


def _identity(data: dict[str, Any]) -> Identity:
    return Identity(
        probe=text(data, "probe"),
        sglang=text(data, "sglang"),
        worker=text(data, "class"),
        rank=count(data, "rank"),
        world=count(data, "world"),
        pid=count(data, "pid"),
        time=number(data.get("time"), "time"),
        every=count(data, "every"),
        sync=bool(data.get("sync", False)),
    )


def _block(data: dict[str, Any]) -> CycleBlock:
    cycles = count(data, "cycles")
    batch_size = count(data, "batch_size")
    if batch_size < 1:
        raise RecordError("batch_size is 0")
    return CycleBlock(
        identity=_identity(data),
        steps=count(data, "steps"),
        batch_size=batch_size,
        decode_cycles=count(data, "decode_cycles"),
        cycles=cycles,
        tokens=count(data, "tokens"),
        correct_hist=tuple(whole(value, "correct_hist") for value in items(data, "correct_hist")),
        unknown=count(data, "unknown"),
        dropped={str(reason): whole(value, "dropped") for reason, value in mapping(data, "dropped").items()},
        skipped=count(data, "skipped"),
        kept_tokens=_kept_tokens(data, cycles),
        event_ms=_times(data, "event_ms", cycles),
        host_ms=_times(data, "host_ms", cycles),
        graph=_graph(data),
        steps_from_rid=_steps_from_rid(data),
    )


def _graph(data: dict[str, Any]) -> dict[str, int] | None:
    """Records before probe 1.1.0 do not have it."""
    if "graph" not in data:
        return None
    counts = mapping(data, "graph")
    return {key: whole(counts.get(key), f"graph.{key}") for key in GRAPH}


def _steps_from_rid(data: dict[str, Any]) -> tuple[Asked, ...] | None:
    """Records before probe 1.2.0, and those of a server whose ids choose nothing, do not have it."""
    key = "steps_from_rid"
    if key not in data:
        return None
    found = []
    for entry in items(data, key):
        if not isinstance(entry, dict):
            raise RecordError(f"{key} has an entry {entry!r}, not an object")
        wanted, why = entry.get("wanted"), entry.get("why")
        if why is not None and not isinstance(why, str):
            raise RecordError(f"{key}.why is {why!r}, not a text")
        found.append(
            Asked(
                wanted=None if wanted is None else whole(wanted, f"{key}.wanted"),
                active=whole(entry.get("active"), f"{key}.active"),
                cycles=whole(entry.get("cycles"), f"{key}.cycles"),
                why=why,
            )
        )
    return tuple(found)


def _kept_tokens(data: dict[str, Any], cycles: int) -> tuple[int | None, ...]:
    values = items(data, "kept_tokens")
    if len(values) != cycles:
        raise RecordError(f"kept_tokens has {len(values)} values for {cycles} cycles")
    return tuple(None if value is None else whole(value, "kept_tokens") for value in values)


def _times(data: dict[str, Any], key: str, cycles: int) -> dict[str, tuple[float, ...]]:
    lists = mapping(data, key)
    times = {}
    for phase in PHASES:
        values = items(lists, phase)
        if len(values) != cycles:
            raise RecordError(f"{key}.{phase} has {len(values)} values for {cycles} cycles")
        times[phase] = tuple(number(value, f"{key}.{phase}") for value in values)
    return times
