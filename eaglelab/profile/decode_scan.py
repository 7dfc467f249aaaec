"""Finds the decode lines of a chunk: the regular ones as rows, the others by number."""

from __future__ import annotations

from itertools import chain

import numpy as np

from eaglelab.profile.chunk_lines import ChunkLines, Ints
from eaglelab.profile.decode_lines import parse_decode_line
from eaglelab.profile.decode_rows import Pattern, Rows, merged, pattern_of, rows_of
from eaglelab.profile.needles import decode_offsets

__all__ = ["DecodeScan"]

# A pattern a scheduler; a log with more of them is read line by line.
_MOST_PATTERNS = 64
_TRIES = 8
_SCATTERED = 0.2


class DecodeScan:
    """Knows the patterns of the lines seen so far; those that no line of a chunk fits are forgotten."""

    def __init__(self) -> None:
        self._patterns: list[Pattern] = []

    def find(self, lines: ChunkLines) -> tuple[Rows, Ints]:
        """Decode lines as rows, and the numbers of the lines with a decode line's words that fit no pattern."""
        found: list[tuple[Pattern, Rows]] = []
        free: Ints = np.arange(len(lines))
        for pattern in self._patterns:
            free = _find(lines, free, pattern, found)
        rest = np.intersect1d(lines.of(_word_offsets(lines, free)), free, assume_unique=True)
        tries = 0
        while tries < min(len(rest), _TRIES) and len(found) < _MOST_PATTERNS:
            known = _pattern(lines.raw(int(rest[tries])))
            left = rest if known is None else _find(lines, rest, known, found)
            tries += len(left) == len(rest)
            rest = left
        self._patterns = [pattern for pattern, _ in found]
        return merged([rows for _, rows in found]), rest


def _find(lines: ChunkLines, among: Ints, pattern: Pattern, found: list[tuple[Pattern, Rows]]) -> Ints:
    """Adds the rows that fit to `found`; gives the other lines."""
    rows = rows_of(lines, among, pattern)
    if not len(rows):
        return among
    found.append((pattern, rows))
    return np.setdiff1d(among, rows.line, assume_unique=True)


def _pattern(raw: bytes) -> Pattern | None:
    parsed = parse_decode_line(raw.decode("utf-8", errors="replace"))
    return None if parsed is None else pattern_of(raw, parsed)


def _word_offsets(lines: ChunkLines, free: Ints) -> list[int]:
    """Where the words of a decode line stand in the free lines, and maybe in others.

    Neighbours are searched as one text; if the free lines lie too scattered, all of the chunk is.
    """
    if not len(free):
        return []
    breaks = np.flatnonzero(np.diff(free) > 1)
    if len(breaks) > _SCATTERED * (len(lines) - len(free)):
        return decode_offsets(lines.chunk)
    firsts = lines.bounds[free[np.concatenate([[0], breaks + 1])]].tolist()
    lasts = lines.bounds[free[np.concatenate([breaks, [len(free) - 1]])] + 1].tolist()
    found = (
        [start + offset for offset in decode_offsets(lines.chunk[start:end])]
        for start, end in zip(firsts, lasts, strict=True)
    )
    return list(chain.from_iterable(found))
