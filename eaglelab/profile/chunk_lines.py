"""The lines of a chunk, found at once and handed out by number."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from eaglelab.profile.log_source import LONGEST_LINE

__all__ = ["Bytes", "ChunkLines", "Flags", "Ints", "numbers_at"]

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_ZERO = ord("0")
_PIECE = 1 << 17


class ChunkLines:
    """Lines are numbered from 0; line i is `chunk[bounds[i] : bounds[i + 1]]`. `text` holds the same bytes.

    Where a line is too long, `chunk` is not what was given but has that line cut.
    """

    def __init__(self, chunk: bytes) -> None:
        self.chunk = chunk
        self.text, self.bounds = _lines(chunk)
        self.cut = len(chunk) > LONGEST_LINE and int(np.diff(self.bounds).max()) > LONGEST_LINE + 1
        if self.cut:
            self.chunk = b"\n".join(line[:LONGEST_LINE] for line in chunk.split(b"\n"))
            self.text, self.bounds = _lines(self.chunk)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def raw(self, line: int) -> bytes:
        """One line with its newline."""
        return self.chunk[self.bounds[line] : self.bounds[line + 1]]

    def of(self, offsets: Ints) -> Ints:
        """The line in which each of these offsets is."""
        return np.searchsorted(self.bounds, offsets, side="right") - 1

    def with_any(self, offsets: Ints) -> Flags:
        """Which lines have one of these offsets."""
        return self.marked(self.of(offsets))

    def marked(self, numbers: Ints) -> Flags:
        """One flag a line, set for these."""
        flags = np.zeros(len(self), bool)
        flags[numbers] = True
        return flags


def numbers_at(text: Bytes, places: Ints, most: int) -> tuple[Ints, Ints]:
    """The whole numbers that begin at these places, each of up to `most` digits, and how many digits each has."""
    value, digits = np.zeros(len(places), np.int64), np.zeros(len(places), np.int64)
    inside = np.ones(len(places), bool)
    for place in range(most):
        digit = text[np.minimum(places + place, len(text) - 1)] - _ZERO
        inside &= (digit <= 9) & (places + place < len(text))
        if not inside.any():
            break
        value = np.where(inside, value * 10 + digit, value)
        digits += inside
    return value, digits


def _lines(chunk: bytes) -> tuple[Bytes, Ints]:
    text: Bytes = np.frombuffer(chunk, np.uint8)
    # Piece by piece, so that what is compared stays in the cache.
    pieces = range(0, len(text), _PIECE)
    ends = (np.flatnonzero(text[start : start + _PIECE] == ord("\n")) + (start + 1) for start in pieces)
    tail = [len(chunk)] if chunk and not chunk.endswith(b"\n") else []
    return text, np.concatenate([np.zeros(1, np.int64), *ends, np.array(tail, np.int64)])
