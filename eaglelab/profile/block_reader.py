"""Finds EAGLE3_PROF text blocks in a log and reads what they print, without judging it.

Lenient, because the old ones were made by hand: any prefix (a logger's, grep's), any order and spacing, `:` or `=`, the
unit attached or absent, foreign lines in between, the blocks of several ranks interleaved as long as the lines say TPn.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from eaglelab.profile.decode_lines import is_decode_line, strip_ansi

__all__ = ["BlockReader", "BlockText", "may_be_read"]

_HEADER = re.compile(r"EAGLE3_PROF\b(?!\s*probe\b)")
# A word that has its own `=` or `:` takes no number before it: `cycles=400 accepted=394`.
_COUNTS = {
    "cycles": re.compile(r"(\d{1,15})\s+cycles?\b(?!\s*[:=])|\bcycles?\s*[:=]\s*(\d{1,15})"),
    "accepted": re.compile(r"(\d{1,15})\s+accepted\b(?!\s*[:=])|\baccepted\s*[:=]\s*(\d{1,15})"),
    "timed": re.compile(r"(\d{1,15})\s+timed\b"),
    "steps": re.compile(r"\bsteps\s*=\s*(\d{1,15})"),
    "batch_size": re.compile(r"\bbs\s*=\s*(\d{1,15})"),
    "rank": re.compile(r"\brank\s+(\d{1,15})"),
}
_LABELS = {
    "draft": r"draft\s+steps?",
    "verify": r"target\s+verify",
    "extend": r"draft\s+(?:re-?)?extend",
    "other": r"other(?:\s+overhead)?",
    "total": r"total",
    "accept_length": r"accept(?:ed|ance)?\s+len(?:gth)?",
    "tok_s": r"eff(?:ective)?\.?\s+tok(?:ens)?/s",
}
_FIELD = re.compile(
    # The first letters of all labels: most places are passed by them alone.
    r"(?=[dtoae])(?<!\w)(?:" + "|".join(f"(?P<{name}>{label})" for name, label in _LABELS.items()) + r")\s*[:=]\s*"
    r"(?P<value>\d{1,15}(?:\.\d*)?|\.\d+)\s*(?P<unit>ms|us|µs|s\b)?"
    r"(?:\s*\(\s*(?P<share>\d+(?:\.\d+)?)\s*%\s*\))?"
    r"(?:\s*\[host\s+(?P<host>\d+(?:\.\d+)?)\])?",
    re.IGNORECASE,
)
_MS = {"s": 1000.0, "ms": 1.0, "us": 0.001, "µs": 0.001}
_RANK_TAG = re.compile(r"\bTP(\d{1,9})\b")
# A block is over once this many lines in a row belong to something else.
_PATIENCE = 20


@dataclass
class BlockText:
    """What one block prints.

    `line` is that of the header, from 1. `counts` holds what the header says of cycles, accepted, timed, steps,
    batch_size and rank. `values` holds the five phases in ms, `accept_length` and `tok_s`; `shares` the printed
    percentages; `host_ms` the bracketed host timers. `repeated` tells that a value came twice (the first is kept).
    """

    line: int
    counts: dict[str, int]
    says_events: bool
    says_bonus: bool = False
    values: dict[str, float] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)
    host_ms: dict[str, float] = field(default_factory=dict)
    repeated: bool = False

    def take(self, match: re.Match[str]) -> None:
        """File one `label: value` of the block."""
        name = next(name for name in _LABELS if match[name] is not None)
        if name in self.values:
            self.repeated = True
            return
        self.values[name] = float(match["value"]) * _MS[(match["unit"] or "ms").lower()]
        if match["share"] is not None:
            self.shares[name] = float(match["share"])
        if match["host"] is not None:
            self.host_ms[name] = float(match["host"])


class BlockReader:
    """Collects blocks from lines fed one at a time."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[BlockText, int]] = {}
        self._latest = ""

    @property
    def open(self) -> bool:
        """Whether lines without a header may still belong to a block."""
        return bool(self._open)

    def feed(self, line: str, number: int) -> list[BlockText]:
        """Take one line (`number` from 1); give the blocks that it completes."""
        header = _HEADER.search(line) if "EAGLE3_PROF" in line else None
        if header is None and not self._open:
            return []
        line = strip_ansi(line)
        tag = _RANK_TAG.search(line) if "TP" in line else None
        if header is None:
            done = self._close([name for name, (_, last) in self._open.items() if number - last > _PATIENCE])
            return done + self._read(line, number, tag[1] if tag and tag[1] in self._open else self._latest)
        self._latest = tag[1] if tag else ""
        done = self._close([self._latest])
        text = line[line.index("EAGLE3_PROF") :]
        first = _FIELD.search(text)
        title = text[: first.start()] if first else text
        block = BlockText(number, _counts(title), says_events="cuda events" in title)
        if tag:
            block.counts.setdefault("rank", int(tag[1]))
        self._open[self._latest] = (block, number)
        return done + self._read(text, number, self._latest)

    def finish(self) -> list[BlockText]:
        """The blocks still open at the end of the log."""
        return self._close(list(self._open))

    def _read(self, line: str, number: int, name: str) -> list[BlockText]:
        """Gives the block if that was the last of its values."""
        if name not in self._open or is_decode_line(line):
            return []
        block = self._open[name][0]
        for match in _FIELD.finditer(line):
            if _is_chance(match, line):
                continue
            block.take(match)
            block.says_bonus |= match["accept_length"] is not None and "bonus token included" in line
            self._open[name] = (block, number)
        return self._close([name]) if len(block.values) == len(_LABELS) else []

    def _close(self, names: Iterable[str]) -> list[BlockText]:
        closed = [self._open.pop(name)[0] for name in names if name in self._open]
        return [block for block in closed if block.values or "cycles" in block.counts]


def may_be_read(prefix: str) -> bool:
    """Whether a reader would see more in a prefix of lines than that it is there."""
    telling = (_FIELD, _RANK_TAG, _HEADER)
    return "\x1b" in prefix or is_decode_line(prefix) or any(pattern.search(prefix) for pattern in telling)


def _is_chance(match: re.Match[str], line: str) -> bool:
    """`total` and `other` are everyday words: without a unit they count only at the start of a line."""
    everyday = match["total"] is not None or match["other"] is not None
    return everyday and match["unit"] is None and line[: match.start()].strip() != ""


def _counts(title: str) -> dict[str, int]:
    found = {name: pattern.search(title) for name, pattern in _COUNTS.items()}
    return {name: int(next(filter(None, match.groups()))) for name, match in found.items() if match}
