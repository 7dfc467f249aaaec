"""Finds the decode lines of a chunk: the regular ones as rows, the others by number."""

from __future__ import annotations

from itertools import chain

import numpy as np

from eaglelab.profile.chunk_lines import ChunkLines, Ints
from eaglelab.profile.decode_lines import parse_decode_line
from eaglelab.profile.decode_rows import Pattern, Rows, merged, pattern_of, rows_of
from eaglelab.profile.needles import decode_offsets

__all__ = ["DecodeScan", "word_offsets"]

# A pattern a scheduler; a log with more of them is read line by line.
_MOST_PATTERNS = 64
_TRIES = 8
_SCATTERED = 0.2


class DecodeScan:
    """Knows the patterns of the lines seen so far; those that no line of a chunk fits are forgotten."""

    def __init__(self) -> None:
        self._patterns: list[Pattern] = []
        self._found: list[tuple[Pattern, Rows]] = []

    def known(self, lines: ChunkLines) -> Ints:
        """Begin with a chunk: the numbers of the lines that fit no pattern known so far."""
        self._found = []
        free: Ints = np.arange(len(lines))
        for pattern in self._patterns:
            free = self._fit(lines, free, pattern)
        return free

    def find(self, lines: ChunkLines, rest: Ints) -> tuple[Rows, Ints]:
        """Of lines with a decode line's words that fitted no pattern, learn new ones.

        Gives all decode lines of the chunk as rows, and the numbers of those of `rest` that fit no pattern still.
        """
        tries = 0
        while tries < min(len(rest), _TRIES) and len(self._found) < _MOST_PATTERNS:
            pattern = _pattern(lines.raw(int(rest[tries])))
            left = rest if pattern is None else self._fit(lines, rest, pattern)
            tries += len(left) == len(rest)
            rest = left
        self._patterns = [pattern for pattern, _ in self._found]
        return merged([rows for _, rows in self._found]), rest

    def _fit(self, lines: ChunkLines, among: Ints, pattern: Pattern) -> Ints:
        """Notes the lines that fit; gives the others."""
        rows = rows_of(lines, among, pattern)
        if not len(rows):
            return among
        self._found.append((pattern, rows))
        return among[~lines.marked(rows.line)[among]]


def word_offsets(lines: ChunkLines, free: Ints) -> list[int]:
    """Where the words of a decode line stand in the free lines, which are few, and maybe in others.

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


def _pattern(raw: bytes) -> Pattern | None:
    parsed = parse_decode_line(raw.decode("utf-8", errors="replace"))
    return None if parsed is None else pattern_of(raw, parsed)
