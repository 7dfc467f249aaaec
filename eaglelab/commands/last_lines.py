"""The last lines of a file of any size, each cut to what a person reads: memory grows with neither."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path

__all__ = ["last_lines"]

_BLOCK = 1 << 16
_LONGEST = 2000
_END = re.compile(rb"\n|\r(?!\n)")


def last_lines(path: Path, count: int) -> Iterator[str]:
    """At most `count` lines, without their ends. Each state of a progress bar, which redraws its line, is one.

    Of a line of more than 2000 characters the first ones come, and how many more it has.
    """
    if count < 1:
        return
    with path.open("rb") as file:
        file.seek(_start_of(file, count))
        text = io.TextIOWrapper(file, encoding="utf-8", errors="replace")
        while line := text.readline(_LONGEST):
            more, piece = 0, line
            while piece and not piece.endswith("\n"):
                piece = text.readline(_BLOCK)
                more += len(piece.rstrip("\n"))
            yield line.rstrip("\n") + (f" ... and {more} more characters" if more else "")


def _start_of(file: io.BufferedReader, count: int) -> int:
    """The byte at which the last `count` lines begin."""
    position = end = file.seek(0, io.SEEK_END)
    after = b""
    while position > 0:
        size = min(_BLOCK, position)
        position -= size
        file.seek(position)
        block = file.read(size)
        # With the byte that follows: a carriage return before a newline ends no line of its own.
        found = [match.end() for match in _END.finditer(block + after) if match.end() <= size]
        # The end of the file's last line begins no other.
        ends = [position + at for at in found if position + at < end]
        if len(ends) >= count:
            return ends[-count]
        count -= len(ends)
        after = block[:1]
    return 0
