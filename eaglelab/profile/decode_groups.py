"""SGLang's decode lines, gathered per server start and number of running requests in bounded memory."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from eaglelab.profile.decode_lines import DecodeLine
from eaglelab.profile.stats import Stats, describe

__all__ = ["KEPT_LINES", "DecodeGroup", "DecodeGroups"]

# Statistics cover the newest lines of a group, so that a log of months fits in memory.
KEPT_LINES = 10_000
_PREFILL_ON_IDLE = re.compile(r"Prefill batch\b.*#running-req: 0\b")
_DP_RANK = re.compile(r"[\s\[]DP(\d{1,9})[\s\]]")
# Without prefill lines an idle stretch shows as a gap this much longer than the one before it.
_GAP_FACTOR = 3.0
_GAP_SLACK_S = 2.0


@dataclass(frozen=True)
class DecodeGroup:
    """Decode lines of one server start (0: before the first start in the log) and one number of running requests.

    `throughput` is tokens per second of all running requests together; `accept_length` is None where speculation was
    not active; `eager` counts the lines that say that no graph was used. `lines` counts all, the statistics cover the
    newest `KEPT_LINES`.
    """

    start: int
    running_requests: int
    lines: int
    throughput: Stats | None
    accept_length: Stats | None
    eager: int

    def to_json(self) -> dict[str, Any]:
        """One entry of `decode.groups`."""
        return {
            "start": self.start,
            "running_requests": self.running_requests,
            "lines": self.lines,
            "throughput_tok_s": None if self.throughput is None else self.throughput.to_json(),
            "accept_length": None if self.accept_length is None else self.accept_length.to_json(),
            "eager": self.eager,
        }


@dataclass
class _Gathered:
    lines: int = 0
    eager: int = 0
    throughput: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT_LINES))
    accept_length: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT_LINES))


@dataclass
class _Stream:
    """What is known of the lines of one DP rank: whether the next one follows idleness, and how far apart they come."""

    after_idle: bool = True
    time: datetime | None = None
    gap_s: float | None = None

    def follows_idle(self, line: DecodeLine) -> bool:
        """Whether the interval that this line reports has idle time in it; moves on to this line."""
        idle = self.after_idle
        self.after_idle = False
        time = _clock(line.time)
        if time is not None and self.time is not None:
            gap_s = (time - self.time).total_seconds()
            idle = idle or (self.gap_s is not None and gap_s > _GAP_FACTOR * self.gap_s + _GAP_SLACK_S)
            if not idle:
                self.gap_s = gap_s
        self.time = time
        return idle


class DecodeGroups:
    """Takes decode lines in the order of the log. Those that follow idle time are counted and left out."""

    def __init__(self) -> None:
        self.lines = 0
        self.after_idle = 0
        self._start = 0
        self._streams: dict[int | None, _Stream] = {}
        self._groups: dict[tuple[int, int], _Gathered] = {}

    def server_started(self) -> None:
        """The lines from here on belong to another server."""
        self._start += 1
        self._streams.clear()

    def prefill(self, line: str) -> None:
        """Take a line that is no decode line: a prefill with nothing running means that the server was idle."""
        if _PREFILL_ON_IDLE.search(line):
            rank = _DP_RANK.search(line)
            self._stream(int(rank[1]) if rank else None).after_idle = True

    def add(self, line: DecodeLine) -> None:
        """Take one decode line."""
        self.lines += 1
        if self._stream(line.dp_rank).follows_idle(line):
            self.after_idle += 1
            return
        if line.running_requests is None:
            return
        group = self._groups.setdefault((self._start, line.running_requests), _Gathered())
        group.lines += 1
        group.eager += line.graph is False
        if line.throughput is not None:
            group.throughput.append(line.throughput)
        if line.accept_length is not None:
            group.accept_length.append(line.accept_length)

    def groups(self) -> tuple[DecodeGroup, ...]:
        """In the order of server starts, then of running requests."""
        return tuple(
            DecodeGroup(
                start, running, found.lines, describe(found.throughput), describe(found.accept_length), found.eager
            )
            for (start, running), found in sorted(self._groups.items())
        )

    def _stream(self, dp_rank: int | None) -> _Stream:
        return self._streams.setdefault(dp_rank, _Stream())


def _clock(time: str | None) -> datetime | None:
    try:
        return None if time is None else datetime.fromisoformat(time[:19])
    except ValueError:
        return None
