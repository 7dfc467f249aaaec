"""The lines of a plain file by ranges of bytes, so that several can read it side by side."""

from __future__ import annotations

import os
from collections.abc import Iterator

from eaglelab.profile.log_source import LONGEST_LINE

__all__ = ["line_at", "lines_from", "text_at"]

_CHUNK = 1 << 21
# The rest of a line at the end of a range is mostly shorter.
_LOOK = 1 << 13


def lines_from(file: int, start: int, end: int, step: int = _CHUNK) -> Iterator[tuple[int, bytes]]:
    """The lines that begin in a range of an open file, in chunks of about `step` bytes, each with its place in the file.

    Of a line longer than LONGEST_LINE at least that much is given, and maybe no more.
    """
    place = _next_line(file, start - 1, end) if start else 0
    while place < end:
        near = min(place + step, end)
        stop = _next_line(file, near - 1, near + LONGEST_LINE)
        chunk = os.pread(file, stop - place, place)
        if not chunk:
            return
        yield place, chunk
        place = stop if chunk.endswith(b"\n") else _next_line(file, stop, end)


def text_at(file: int, place: int, size: int) -> bytes:
    """A part of the file; zeros where there is none any more because the file was cut."""
    return os.pread(file, size, place).ljust(size, b"\0")


def line_at(file: int, place: int) -> bytes:
    """The line that begins at a place, of a long one its beginning; nothing where the file was cut."""
    piece = os.pread(file, _LOOK, place)
    return piece[: piece.find(b"\n") + 1 or None]


def _next_line(file: int, place: int, end: int) -> int:
    """Where the first line behind a newline at or after `place` begins; `end` if that is not before it."""
    while place < end and (piece := os.pread(file, _LOOK, place)):
        newline = piece.find(b"\n")
        if newline >= 0:
            return min(place + newline + 1, end)
        place += len(piece)
    return end
