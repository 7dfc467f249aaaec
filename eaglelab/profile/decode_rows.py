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
# Where the digits of hours, minutes and seconds stand in "2026-11-29 10:00:00".
_HOURS, _MINUTES, _SECONDS = 11, 14, 17
# The date and what follows it are 11 bytes: these of the second eight, in the order in which they stand in memory.
_OF_DATE = np.frombuffer(b"\xff\xff\xff\0\0\0\0\0", np.uint64)[0]


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
    among = among[(lengths >= _room(pattern)) & (lengths <= _LONGEST)]
    found, text = _alike(lines.text, lines.bounds, among, pattern)
    starts = np.arange(len(found)) * _room(pattern)
    running, digits = numbers_at(text, starts + pattern.width, _MOST_DIGITS)
    whole = (digits > 0) & (text[starts + pattern.width + digits] == _COMMA)
    good, second = _times(text, starts[whole], pattern)
    rank = -1 if pattern.dp_rank is None else pattern.dp_rank
    found, running = found[whole], running[whole]
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


def _room(pattern: Pattern) -> int:
    """So many bytes of a line are looked at: its head and the number behind that."""
    return _AT_ONCE * (len(pattern.head) + 1)


def _alike(text: Bytes, starts: Ints, lines: Ints, pattern: Pattern) -> tuple[Ints, Bytes]:
    """Those of the lines whose first bytes fit, and the first bytes of each, one line's after the other's."""
    first = pattern.head.view(np.uint8)
    for place in (pattern.anchor, pattern.anchor + 1):
        lines = lines[text[starts[lines] + place] == first[place]]
    if not len(lines):
        return lines, np.zeros(0, np.uint8)
    heads = _cut(text, starts[lines], _room(pattern)).view(np.uint64).reshape(len(lines), -1)
    wrong = np.zeros(len(lines), np.uint64)
    for word, (head, mask, digits) in enumerate(zip(pattern.head, pattern.mask, pattern.digits, strict=True)):
        wrong |= (heads[:, word] ^ head) & mask
        if digits:
            # Of a digit both this and the line before look at the high half, which is 3 as long as it is at most 9.
            wrong |= ((heads[:, word] + digits) ^ head) & (digits * _TO_HIGH_HALF)
    alike = wrong == 0
    return lines[alike], heads[alike].view(np.uint8).reshape(-1)


def _times(text: Bytes, starts: Ints, pattern: Pattern) -> tuple[npt.NDArray[np.bool_], Ints]:
    """Which lines have a true time, and the time of each. A date is read once for all lines in a row that have it."""
    if pattern.time is None or not len(starts):
        return np.ones(len(starts), bool), np.full(len(starts), -1)
    at = starts + pattern.time
    year_month, day = (_cut(text, at + place, _AT_ONCE).view(np.uint64) for place in (0, _AT_ONCE))
    changes = (np.diff(year_month) != 0) | (np.diff(day & _OF_DATE) != 0)
    firsts = np.concatenate([[0], np.flatnonzero(changes) + 1])
    read = [clock(text[place : place + _HOURS].tobytes().decode() + "00:00:00") for place in at[firsts].tolist()]
    days = np.repeat([-1 if base is None else base for base in read], np.diff([*firsts, len(starts)]))
    hours, minutes, seconds = (_two_digits(text, at + place) for place in (_HOURS, _MINUTES, _SECONDS))
    true = (days >= 0) & (hours < 24) & (minutes < 60) & (seconds < 60)
    return true, days + (hours * 60 + minutes) * 60 + seconds


def _cut(text: Bytes, places: Ints, width: int) -> Bytes:
    """The `width` bytes at each of these places, one after the other. As one item each they are copied fastest."""
    items = np.ndarray((len(text) - width + 1,), f"V{width}", text, strides=(1,))
    return items[places].view(np.uint8)


def _two_digits(text: Bytes, places: Ints) -> Ints:
    pair: Ints = (text[places] - _ZERO).astype(np.int64) * 10 + (text[places + 1] - _ZERO)
    return pair
