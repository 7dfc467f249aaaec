"""The probe's records of one server, read where it writes them and cut at marks."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eaglelab.profile.definitions import PHASES
from eaglelab.profile.records import CycleBlock, read_records

__all__ = ["ProbeFolder", "Times", "Window"]

Mark = Mapping[Path, int]

_SETTLE_TRIES, _SETTLE_PAUSE_S = 50, 0.1


class ProbeFolder:
    """`folder` holds one file a rank. `flush` makes the probe write what it holds."""

    def __init__(self, folder: Path, flush: Callable[[], None], sleep: Callable[[float], None] = time.sleep) -> None:
        self._folder, self._flush, self._sleep = folder, flush, sleep
        self._offsets: dict[Path, int] = {}
        self._blocks: dict[Path, list[CycleBlock]] = {}

    def mark(self) -> Mark:
        """Flushes, and remembers how far the records are. Raises ValueError for one that is none."""
        self._settle()
        return {file: len(blocks) for file, blocks in self._blocks.items()}

    def since(self, mark: Mark) -> Window:
        """Flushes; what has come since `mark`. Raises ValueError for a record that is none."""
        self._settle()
        return Window([block for file, blocks in self._blocks.items() for block in blocks[mark.get(file, 0) :]])

    def _settle(self) -> None:
        """A rank may write a moment after the first one's answer: waits, but not for ever, until all have counted alike."""
        self._flush()
        for _ in range(_SETTLE_TRIES):
            self._read()
            if len({sum(block.decode_cycles for block in blocks) for blocks in self._blocks.values()}) <= 1:
                return
            self._sleep(_SETTLE_PAUSE_S)

    def _read(self) -> None:
        """Whole lines only: the last one may be on its way."""
        for file in sorted(self._folder.glob("*.jsonl")):
            with file.open("rb") as records:
                records.seek(self._offsets.get(file, 0))
                whole, newline, _ = records.read().rpartition(b"\n")
            found = read_records(whole.splitlines())
            if found.problems:
                raise ValueError(f"{file.name}: {found.problems[0]}")
            self._offsets[file] = self._offsets.get(file, 0) + len(whole) + len(newline)
            self._blocks.setdefault(file, []).extend(found.blocks)


@dataclass(frozen=True)
class Times:
    """Sums over kept cycles (ms) by phase, by CUDA events and by host timers."""

    cycles: int
    event_ms: Mapping[str, float]
    host_ms: Mapping[str, float]

    @classmethod
    def of(cls, blocks: Iterable[CycleBlock]) -> Times:
        there = list(blocks)
        event = {phase: sum(sum(block.event_ms[phase]) for block in there) for phase in PHASES}
        host = {phase: sum(sum(block.host_ms[phase]) for block in there) for phase in PHASES}
        return cls(sum(block.cycles for block in there), event, host)

    def means(self, times: Mapping[str, float]) -> dict[str, float]:
        """Milliseconds a cycle; empty where no cycle was kept."""
        return {phase: round(total / self.cycles, 5) for phase, total in times.items()} if self.cycles else {}


@dataclass(frozen=True)
class Window:
    """Blocks between two marks, of all ranks."""

    blocks: Sequence[CycleBlock]

    def rank(self, number: int) -> Window:
        return Window([block for block in self.blocks if block.identity.rank == number])

    def steps(self, count: int) -> Window:
        return Window([block for block in self.blocks if block.steps == count])

    @property
    def ranks(self) -> list[int]:
        return sorted({block.identity.rank for block in self.blocks})

    @property
    def histograms(self) -> dict[int, list[int]]:
        """Right drafts by step count, as `gpu.truth.histograms` gives them."""
        found: dict[int, list[int]] = {}
        for block in self.blocks:
            bins = found.setdefault(block.steps, [0] * (block.steps + 1))
            for correct, count in enumerate(block.correct_hist):
                bins[correct] += count
        return dict(sorted(found.items()))

    @property
    def tokens(self) -> int:
        return sum(block.tokens for block in self.blocks)

    @property
    def unknown(self) -> int:
        return sum(block.unknown for block in self.blocks)

    @property
    def decode_cycles(self) -> int:
        return sum(block.decode_cycles for block in self.blocks)

    @property
    def times(self) -> Times:
        return Times.of(self.blocks)

    def standard_error(self, phase: str) -> float | None:
        """Of the mean event time (ms) of kept cycles, taken as independent; None for fewer than two.

        Too large where the pace drifts: one of each few cycles is timed, so that the timed ones drift with the others.
        """
        times = [ms for block in self.blocks for ms in block.event_ms[phase]]
        return statistics.stdev(times) / math.sqrt(len(times)) if len(times) > 1 else None

    def quickest(self, phase: str, share: float) -> dict[str, float]:
        """Of the `share` of kept cycles in which the host was quickest with `phase`: how many, and its mean ms on both clocks."""
        pairs = sorted(pair for b in self.blocks for pair in zip(b.host_ms[phase], b.event_ms[phase], strict=True))
        pairs = pairs[: math.ceil(share * len(pairs))]
        host, event = ([pair[side] for pair in pairs] for side in (0, 1))
        return (
            {"cycles": len(pairs), "host_ms": statistics.fmean(host), "event_ms": statistics.fmean(event)}
            if pairs
            else {}
        )
