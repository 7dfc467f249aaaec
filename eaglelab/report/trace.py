"""The probe's cycles as a trace that Perfetto and chrome://tracing show: a process a rank, a track of cycles and their phases.

The trace event format is Google's ("Trace Event Format", the JSON object form): complete events (`ph` X) for cycles and
phases, a counter (`ph` C) for tokens per verify, metadata (`ph` M) for names; times in microseconds.

A record does not say when each cycle began. It says when it was written (`time`) and how long each kept cycle and its
phases took on the GPU, in order. So the cycles of a block are laid end to end such that the last ends at `time`, and never
before the end of the block before it of the same process: where more GPU time was told than wall time has passed (other
step counts were measured in between; a simulated GPU's clock), a block follows the one before it at once. Between blocks
there is a gap: cycles that were dropped or not measured are in it. Lengths are exact to the microsecond, places to some
milliseconds. Ranks are laid out by their own clocks, so what lies side by side need not have happened together.
"""

from __future__ import annotations

import gzip
import io
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from eaglelab.errors import InputError
from eaglelab.profile.definitions import PHASES
from eaglelab.profile.records import CycleBlock, Identity, RecordError, parse_record

__all__ = ["Traced", "trace_events", "write_trace"]

_CYCLES, _BLOCKS = 0, 1
"""Tracks of a process."""

_Track = tuple[int, int]
"""Rank and pid: a restarted server has other pids under the same ranks."""


@dataclass
class Traced:
    """What was written: `cycles`, `blocks`, and `left_out` lines that were to be records and are none."""

    cycles: int = 0
    blocks: int = 0
    left_out: int = 0


@dataclass
class _Layout:
    """Where on the time line (us from `zero`, Unix us) each process's next block may begin."""

    zero: float | None = None
    ends: dict[_Track, float] = field(default_factory=dict)
    numbers: dict[_Track, int] = field(default_factory=dict)

    def begin(self, track: _Track, written_s: float, length_us: float) -> float:
        """The begin of a block that was written at `written_s` and is so long."""
        if self.zero is None:
            self.zero = written_s * 1e6 - length_us
        begin = max(written_s * 1e6 - length_us - self.zero, self.ends.get(track, 0.0))
        self.ends[track] = begin + length_us
        return begin


def write_trace(lines: Iterable[bytes], path: Path, about: Mapping[str, str]) -> Traced:
    """Writes a trace, compressed where the name ends with `.gz`, an event at a time: memory does not grow with it.

    `about` goes into its `otherData`. Raises InputError where the file cannot be written, or no record is in the lines; no
    file is left then.
    """
    traced = Traced()
    events = trace_events(lines, traced)
    first = next(events, None)
    if first is None:
        raise InputError(
            "there is no cycle for a trace: it needs the probe's JSON lines", where=str(path), hint="leave --trace out"
        )
    half = path.with_name(f".{path.name}.part")
    try:
        with ExitStack() as opened:
            file = opened.enter_context(_opened(half, packed=path.suffix == ".gz"))
            file.write(f'{{"displayTimeUnit": "ms", "otherData": {json.dumps(dict(about))}, "traceEvents": [\n')
            file.write(json.dumps(first))
            for event in events:
                file.write(f",\n{json.dumps(event)}")
            file.write("\n]}\n")
        half.replace(path)
    except OSError as error:
        half.unlink(missing_ok=True)
        what = f"the trace cannot be written: {error.strerror}"
        raise InputError(what, where=str(path), hint="--trace takes a file that you may write") from error
    return traced


def _opened(path: Path, *, packed: bool) -> IO[str]:
    if not packed:
        return path.open("w", encoding="utf-8")
    # mtime 0: the same run gives the same bytes.
    return io.TextIOWrapper(gzip.GzipFile(path, "wb", mtime=0), encoding="utf-8")


def trace_events(lines: Iterable[bytes], traced: Traced) -> Iterator[dict[str, Any]]:
    """The events of all records among the lines, in their order; other lines are passed over. Counts into `traced`."""
    layout = _Layout()
    for line in lines:
        if not line.startswith(b"{") or b'"schema"' not in line:
            continue
        try:
            record = parse_record(line)
        except RecordError:
            traced.left_out += 1
            continue
        if isinstance(record, CycleBlock) and record.cycles:
            traced.blocks += 1
            traced.cycles += record.cycles
            yield from _block(record, layout)


def _block(block: CycleBlock, layout: _Layout) -> Iterator[dict[str, Any]]:
    who = block.identity
    track = (who.rank, who.pid)
    if track not in layout.numbers:
        layout.numbers[track] = len(layout.numbers) + 1
        yield from _names(who, layout.numbers[track])
    pid = layout.numbers[track]
    parts = [[1000 * ms for ms in block.event_ms[phase]] for phase in PHASES[:-1]]
    length = sum(map(sum, parts))
    at = layout.begin(track, who.time, length)
    about = {"steps": block.steps, "batch_size": block.batch_size}
    dropped = {reason: count for reason, count in block.dropped.items() if count}
    counts = {"cycles": block.cycles, "decode_cycles": block.decode_cycles, "skipped": block.skipped, **dropped}
    name = f"{block.steps} steps, batch size {block.batch_size}"
    yield _complete(pid, _BLOCKS, name, "block", at, length, {**about, **counts})
    verifies = sum(block.correct_hist)
    if verifies:
        accepted = verifies + sum(j * count for j, count in enumerate(block.correct_hist))
        value = {"tokens per verify": round(accepted / verifies, 4)}
        yield {"ph": "C", "pid": pid, "tid": _BLOCKS, "name": "accept length", "ts": _us(at), "args": value}
    for tokens, times in zip(block.kept_tokens, zip(*parts, strict=True), strict=True):
        yield _complete(pid, _CYCLES, "cycle", "cycle", at, sum(times), {**about, "tokens": tokens})
        ends = list(itertools.accumulate(times, initial=at))
        for phase, begin, time in zip(PHASES, ends, times, strict=False):
            yield _complete(pid, _CYCLES, phase, "phase", begin, time, {})
        at = ends[-1]


def _names(who: Identity, pid: int) -> Iterator[dict[str, Any]]:
    """A process gets a number of its own: pids of different hosts may be the same."""
    label = f"rank {who.rank} of {who.world} ({who.worker}, pid {who.pid})"
    yield {"ph": "M", "pid": pid, "tid": _CYCLES, "name": "process_name", "args": {"name": label}}
    yield {"ph": "M", "pid": pid, "tid": _CYCLES, "name": "process_sort_index", "args": {"sort_index": who.rank}}
    for tid, name in ((_CYCLES, "cycles"), (_BLOCKS, "blocks")):
        yield {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": name}}


def _complete(
    pid: int, tid: int, name: str, category: str, at: float, length: float, args: Mapping[str, Any]
) -> dict[str, Any]:
    # Both ends are rounded, not the length: what is within another event stays within it.
    begin, end = _us(at), _us(at + length)
    event = {
        "ph": "X",
        "pid": pid,
        "tid": tid,
        "name": name,
        "cat": category,
        "ts": begin,
        "dur": round(end - begin, 3),
    }
    return {**event, "args": dict(args)} if args else event


def _us(time: float) -> float:
    return round(time, 3)
