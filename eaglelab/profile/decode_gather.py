"""Gathers SGLang's decode lines per server start and number of running requests, in bounded memory."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from eaglelab.profile.decode_groups import KEPT_GROUPS, KEPT_LINES, DecodeGroup
from eaglelab.profile.decode_lines import NO_GRAPH, DecodeLine, clock, decode_figures
from eaglelab.profile.decode_rows import Rows, merged
from eaglelab.profile.stats import describe

__all__ = ["DecodeGather", "Line", "Raw"]

_LONGEST_KEPT = 1_000
_MOST_WAITING = 5_000
_PREFILL_ON_IDLE = re.compile(r"Prefill batch\b.*#running-req: 0\b")
_DP_RANK = re.compile(r"[\s\[]DP(\d{1,9})[\s\]]")
# Without prefill lines an idle stretch shows as a gap this much longer than the one before it.
_GAP_FACTOR = 3.0
_GAP_SLACK_S = 2.0


Line = bytes | int
"""A line of the log, or where it stands in a file that is still there."""

Raw = Callable[[list[int]], Sequence[Line]]
"""Gives lines of the log by their numbers."""
_Waiting = tuple[tuple[int, ...], bytes]


@dataclass
class _Gathered:
    lines: int = 0
    eager: int = 0
    newest: deque[Line] = field(default_factory=lambda: deque(maxlen=KEPT_LINES))
    latest: list[int] = field(default_factory=list)

    def fetch(self, raw: Raw) -> None:
        """Move the lines of the latest numbers to the newest lines."""
        self.newest.extend(raw(self.latest))
        self.latest = []

    def read(self, line_at: Callable[[int], bytes]) -> None:
        """Have the text of all lines."""
        self.newest = deque((line_at(line) if isinstance(line, int) else line for line in self.newest), KEPT_LINES)


@dataclass
class _Stream:
    """What is known of the lines of one DP rank: where idleness ended, and how far apart they come (s, -1 unknown)."""

    idle_until: list[int] = field(default_factory=lambda: [0])
    second: int = -1
    gap_s: int = -1

    def follows_idle(self, rows: Rows) -> npt.NDArray[np.bool_]:
        """Whether the interval that each of the next lines reports has idle time in it; moves on to the last of them."""
        before = np.concatenate([[self.second], rows.second[:-1]])
        gaps = rows.second - before
        known = (rows.second >= 0) & (before >= 0)
        # The gap before: of a clock that was set back there is none.
        usable = np.maximum.accumulate(np.where(known & (gaps >= 0), np.arange(len(rows)), -1))
        last = np.concatenate([[-1], usable[:-1]])
        normal = np.where(last >= 0, gaps[last], self.gap_s)
        idle: npt.NDArray[np.bool_] = known & (normal >= 0) & (gaps > _GAP_FACTOR * normal + _GAP_SLACK_S)
        after = np.searchsorted(rows.line, self.idle_until)
        idle[after[after < len(rows)]] = True
        self.idle_until = [line for line, place in zip(self.idle_until, after, strict=True) if place == len(rows)][-1:]
        self.second = int(rows.second[-1])
        self.gap_s = int(gaps[usable[-1]]) if usable[-1] >= 0 else self.gap_s
        return idle


class DecodeGather:
    """Takes decode lines, each with its number in the log; those that follow idle time are counted and left out.

    Lines wait until there are many, so that most of the work is done for many at once.
    """

    def __init__(self) -> None:
        self.start = 0
        self.lines = 0
        self.after_idle = 0
        self.passed_over = 0
        self._streams: dict[int, _Stream] = {}
        self._groups: dict[tuple[int, int], _Gathered] = {}
        self._waiting: dict[int, _Waiting] = {}
        self._rows = merged([])
        self._raw: Raw = _nothing
        self._latest_raw: Raw = _nothing

    def server_started(self, number: int) -> None:
        """The lines from `number` on belong to another server."""
        self.settle(number)
        self.start += 1
        self._streams.clear()

    def prefill(self, line: str, number: int) -> None:
        """Take a line that is no decode line: a prefill with nothing running means that the server was idle."""
        if _PREFILL_ON_IDLE.search(line):
            rank = _DP_RANK.search(line)
            self._streams.setdefault(int(rank[1]) if rank else -1, _Stream()).idle_until.append(number)

    def add(self, line: DecodeLine, raw: bytes, number: int) -> None:
        """Take one decode line, read and as it stands in the log."""
        self._waiting[number] = (_row(line, raw), raw[:_LONGEST_KEPT])
        if len(self._waiting) >= _MOST_WAITING:
            self.settle(number + 1)

    def expect(self, rows: Rows, raw: Raw) -> None:
        """Lines that are to come, of which `raw` gives the bytes by their number; one that is added as well counts once."""
        self._rows, self._raw = rows, raw

    def settle(self, number: int) -> None:
        """Take in what came before the line `number`."""
        until = int(np.searchsorted(self._rows.line, number))
        rows, self._rows = self._rows.part(slice(None, until)), self._rows.part(slice(until, None))
        waiting, self._waiting = self._waiting, {}
        raw = self._raw
        if waiting:
            single = np.array(list(waiting), np.int64)
            columns = (np.array(column, np.int64) for column in zip(*(row for row, _ in waiting.values()), strict=True))
            rows = merged([rows.part(~np.isin(rows.line, single)), Rows(single, *columns)])
            raw = _either(waiting, raw)
        if len(rows):
            self._take(rows, raw)

    def keep(self, line_at: Callable[[int], bytes]) -> None:
        """Read the lines that may still be shown; `line_at` gives those of which only the place is known.

        `raw` of what was expected is not asked any more.
        """
        for group in self._groups.values():
            group.fetch(self._latest_raw)
            group.read(line_at)
        self._latest_raw = _nothing

    def groups(self) -> tuple[DecodeGroup, ...]:
        """In the order of server starts, then of running requests."""
        self.keep(_nowhere)
        return tuple(_described(start, running, found) for (start, running), found in sorted(self._groups.items()))

    def _take(self, rows: Rows, raw: Raw) -> None:
        self.lines += len(rows)
        idle = np.zeros(len(rows), bool)
        ranks = [int(rows.dp_rank[0])] if (rows.dp_rank == rows.dp_rank[0]).all() else np.unique(rows.dp_rank).tolist()
        for rank in ranks:
            mine = rows.dp_rank == rank if len(ranks) > 1 else slice(None)
            idle[mine] = self._streams.setdefault(rank, _Stream()).follows_idle(rows.part(mine))
        self.after_idle += int(idle.sum())
        kept = rows.part(~idle & (rows.running >= 0))
        # Of 16 bits numbers are sorted several times as fast, and a server runs no more requests at once than they hold.
        short = kept.running.max(initial=0) <= np.iinfo(np.uint16).max
        order = np.argsort(kept.running.astype(np.uint16) if short else kept.running, kind="stable")
        values, firsts = np.unique(kept.running[order], return_index=True)
        bounds = [*firsts.tolist(), len(kept)]
        found = {
            (self.start, running): kept.part(order[first:end])
            for running, first, end in zip(values.tolist(), bounds[:-1], bounds[1:], strict=True)
        }
        # Most lines are never looked at: newer ones of their group will have come before the log ends.
        for key, group in self._groups.items():
            if group.latest and (key not in found or len(found[key]) < KEPT_LINES):
                group.fetch(self._latest_raw)
        self._latest_raw = raw
        for key, lines in found.items():
            self._gather(key, lines)

    def _gather(self, key: tuple[int, int], rows: Rows) -> None:
        """Numbers of running requests are few; what a garbled log prints need not be."""
        if key not in self._groups and len(self._groups) >= KEPT_GROUPS:
            self.passed_over += len(rows)
            return
        group = self._groups.setdefault(key, _Gathered())
        group.lines += len(rows)
        group.eager += int(rows.eager.sum())
        group.latest = rows.line[-KEPT_LINES:].tolist()


def _nothing(numbers: list[int]) -> Sequence[Line]:
    return [b"" for _ in numbers]


def _nowhere(_place: int) -> bytes:
    return b""


def _either(waiting: dict[int, _Waiting], raw: Raw) -> Raw:
    """Lines that came singly, and those of a chunk."""

    def get(numbers: list[int]) -> Sequence[Line]:
        others = iter(raw([number for number in numbers if number not in waiting]))
        return [waiting[number][1] if number in waiting else next(others) for number in numbers]

    return get


def _row(line: DecodeLine, raw: bytes) -> tuple[int, ...]:
    said = (line.dp_rank, clock(line.time), line.running_requests)
    return (*(-1 if value is None else value for value in said), NO_GRAPH in raw)


def _described(start: int, running: int, found: _Gathered) -> DecodeGroup:
    """The figures of the newest lines are read only now: of a long log most lines are never looked at again."""
    read = [decode_figures(line) for line in found.newest if isinstance(line, bytes)]
    throughput = [value for value, _ in read if value is not None]
    accept_length = [value for _, value in read if value is not None]
    return DecodeGroup(start, running, found.lines, describe(throughput), describe(accept_length), found.eager)
