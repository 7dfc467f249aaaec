"""Reads the decode lines of a chunk many at a time.

The lines of one scheduler begin alike: the same prefix and the same words up to the number of running requests, with
other digits in the time. One line that `parse_decode_line` has read serves as the pattern for all that begin like it;
what differs from every pattern is left to the parser of single lines, and both give the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from eaglelab.profile.chunk_lines import Bytes, ChunkLines, Ints, numbers_at
from eaglelab.profile.decode_lines import DecodeLine, anchor_of, clock, time_spans

Words = npt.NDArray[np.uint64]

__all__ = ["Pattern", "Rows", "merged", "narrow", "pattern_of", "rows_of"]

_FIRST_FIELD = b" #running-req: "
_MOST_DIGITS = 5
_RUNNING = re.compile(rb"\d{1,5},")
_ZERO, _COMMA = ord("0"), ord(",")
_AT_ONCE = 8
_HIGH_HALF, _ABOVE_NINE, _TO_HIGH_HALF = 0xF0, 6, np.uint64(0xF0 // 6)
_LONGEST_HEAD = 400
_LONGEST = 1_000
# "2026-11-29 10:00" are as many bytes as are compared at once, twice; then come a colon and the seconds.
_SECONDS = 17


@dataclass(frozen=True)
class Pattern:
    """How decode lines of one origin begin: `head`, in which the bytes at `digits` may be any digit.

    `width` is the length of the head; `time` is where in it the time stands, None where there is none; `anchor` where the
    words do. The bytes are compared eight at a time, so the arrays hold one entry for eight: `head` where `mask` is set,
    and `digits` has a 6 for each digit, which carries beyond 9 into the next half of a byte.
    """

    head: Words
    mask: Words
    digits: Words
    width: int
    anchor: int
    time: int | None
    dp_rank: int | None


@dataclass(frozen=True)
class Rows:
    """Decode lines, one entry a line in each array; -1 for what a line does not say.

    `line` is the number of the line, `second` its time in s since 1970 as printed, `running` its running requests;
    `eager` is 1 where it says that no graph was used, else 0.
    """

    line: Ints
    dp_rank: Ints
    second: Ints
    running: Ints
    eager: Ints

    def __len__(self) -> int:
        return len(self.line)

    def part(self, which: Ints | npt.NDArray[np.bool_] | slice) -> Rows:
        """Some of the lines."""
        return Rows(self.line[which], self.dp_rank[which], self.second[which], self.running[which], self.eager[which])

    def narrow(self) -> Rows:
        """The same in as few bytes as the numbers need, to be sent; only `wide` makes it fit for anything else."""
        return Rows(*(narrow(getattr(self, each.name)) for each in fields(self)))

    def wide(self, first: int) -> Rows:
        """The same in 8 bytes a number, the lines counted from `first`."""
        wide = Rows(*(getattr(self, each.name).astype(np.int64) for each in fields(self)))
        return replace(wide, line=wide.line + first)


def pattern_of(raw: bytes, parsed: DecodeLine) -> Pattern | None:
    """The pattern of a line that was read; None for one that is not regular enough to stand for others."""
    anchor = anchor_of(raw)
    if anchor is None or anchor.end() > _LONGEST_HEAD:
        return None
    head = raw[: anchor.end()] + _FIRST_FIELD
    if not raw.startswith(head) or not _RUNNING.match(raw, len(head)) or not head.isascii() or b"\x1b" in head:
        return None
    spans = time_spans(raw[: anchor.start()])
    literal, mask, digits = (np.zeros(-(-len(head) // _AT_ONCE) * _AT_ONCE, np.uint8) for _ in range(3))
    literal[: len(head)], mask[: len(head)] = np.frombuffer(head, np.uint8), 0xFF
    for start, end in [*spans, anchor.span("iteration")]:
        places = [place for place in range(max(start, 0), end) if raw[place : place + 1].isdigit()]
        literal[places], mask[places], digits[places] = _ZERO, _HIGH_HALF, _ABOVE_NINE
    words = [part.view(np.uint64) for part in (literal, mask, digits)]
    return Pattern(
        words[0], words[1], words[2], len(head), anchor.start(), spans[-1][0] if spans else None, parsed.dp_rank
    )


def rows_of(lines: ChunkLines, among: Ints, pattern: Pattern) -> Rows:
    """Those of the lines `among` (numbers, ascending) that begin like the pattern; `eager` is 0 in all of them."""
    lengths = lines.bounds[among + 1] - lines.bounds[among]
    among = among[(lengths > pattern.width + _AT_ONCE) & (lengths <= _LONGEST)]
    found = _alike(lines.text, lines.bounds, among, pattern)
    after = lines.bounds[found] + pattern.width
    running, digits = numbers_at(lines.text, after, _MOST_DIGITS)
    whole = (digits > 0) & (lines.text[after + digits] == _COMMA)
    found, running = found[whole], running[whole]
    good, second = _times(lines.text, lines.bounds[found], pattern)
    rank = -1 if pattern.dp_rank is None else pattern.dp_rank
    return Rows(found, np.full(len(found), rank), second, running, np.zeros(len(found), np.int64)).part(good)


def narrow(column: Ints) -> Ints:
    """The same numbers in as few bytes as hold them all."""
    low, high = column.min(initial=0), column.max(initial=0)
    sizes = (np.int8, np.int16, np.int32, np.int64)
    size = next(size for size in sizes if np.iinfo(size).min <= low and high <= np.iinfo(size).max)
    return column.astype(size)


def merged(found: Sequence[Rows]) -> Rows:
    """Rows from several places in the order of their lines."""
    if len(found) == 1:
        return found[0]
    columns = ([np.zeros(0, np.int64), *(getattr(each, field.name) for each in found)] for field in fields(Rows))
    rows = Rows(*(np.concatenate(column) for column in columns))
    return rows.part(np.argsort(rows.line, kind="stable"))


def _alike(text: Bytes, starts: Ints, lines: Ints, pattern: Pattern) -> Ints:
    """Those of the lines whose first bytes fit."""
    first = pattern.head.view(np.uint8)
    for place in (pattern.anchor, pattern.anchor + 1):
        lines = lines[text[starts[lines] + place] == first[place]]
    if not len(lines):
        return lines
    heads = np.lib.stride_tricks.sliding_window_view(text, len(first))[starts[lines]]
    heads = np.ascontiguousarray(heads).view(np.uint64)
    wrong = np.zeros(len(lines), np.uint64)
    for word, (head, mask, digits) in enumerate(zip(pattern.head, pattern.mask, pattern.digits, strict=True)):
        wrong |= (heads[:, word] ^ head) & mask
        if digits:
            # Of a digit both this and the line before look at the high half, which is 3 as long as it is at most 9.
            wrong |= ((heads[:, word] + digits) ^ head) & (digits * _TO_HIGH_HALF)
    alike: Ints = lines[wrong == 0]
    return alike


def _times(text: Bytes, starts: Ints, pattern: Pattern) -> tuple[npt.NDArray[np.bool_], Ints]:
    """Which lines have a true time, and the time of each. A date is read once for all lines in a row of one minute."""
    if pattern.time is None or not len(starts):
        return np.ones(len(starts), bool), np.full(len(starts), -1)
    at = starts + pattern.time
    days = np.ascontiguousarray(np.lib.stride_tricks.sliding_window_view(text, 2 * _AT_ONCE)[at]).view(np.uint64)
    firsts = np.concatenate([[0], np.flatnonzero((np.diff(days[:, 0]) != 0) | (np.diff(days[:, 1]) != 0)) + 1])
    read = [clock(days[first].tobytes().decode() + ":00") for first in firsts]
    bases = np.repeat([-1 if base is None else base for base in read], np.diff([*firsts, len(starts)]))
    seconds = (text[at + _SECONDS] - _ZERO).astype(np.int64) * 10 + (text[at + _SECONDS + 1] - _ZERO)
    return (bases >= 0) & (seconds < 60), bases + seconds
