"""Knows blocks of the usual shape by their exact text, so that one is passed in one step and read only if it is shown.

They are the probe's and the old hand-made ones, as they were printed or with a prefix before every line (a collector's,
Ray's), in which only digits may differ from line to line. What looks otherwise is left to `BlockReader`.
"""

from __future__ import annotations

import re
from functools import lru_cache

from eaglelab.profile.block_reader import BlockReader, BlockText, may_be_read

__all__ = ["REGULAR_LINES", "read_regular", "regular_span"]

REGULAR_LINES = 8
_HEADER, _FIRST = b"EAGLE3_PROF", b"Draft steps:"
_LONGEST_PREFIX = 200
# Blocks are known by their text with a zero for every digit, which the header has one of too.
_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_TIME = rb" {1,20}\d{1,9}\.\d{1,6} ms"
_SHARE = rb"(?: \( {0,3}\d{1,3}\.\d%\)(?: {1,2}\[host \d{1,9}(?:\.\d{1,6})?\])?)?"
_TITLE = (
    rb"EAGLE0_PROF \(\d{1,9} cycles, (?:\d{1,9} accepted|"
    rb"\d{1,9} timed, steps=\d{1,9}, bs=\d{1,9}, rank \d{1,9}, gpu time by cuda events, host timers in brackets)\)"
)
_LINES = (
    b"Draft steps:" + _TIME + _SHARE,
    b"Target verify:" + _TIME + _SHARE,
    b"Draft re-extend:" + _TIME + _SHARE,
    b"Other overhead:" + _TIME + _SHARE,
    b"TOTAL:" + _TIME,
    rb"Accept len: {1,20}\d{1,4}\.\d{1,4}(?: tokens per verify, bonus token included)?",
    rb"Eff tok/s: {1,20}\d{1,9}\.\d{1,4}",
)


def regular_span(chunk: bytes, start: int, end: int) -> tuple[int, int] | None:
    """Where in these `REGULAR_LINES` lines the block stands, whose header is in the first; None if it is not a usual one."""
    title = chunk.find(_HEADER, start, end)
    return (title, end) if title >= 0 and _usual(chunk[title:end].translate(_ZEROS)) else None


def read_regular(text: bytes, number: int) -> list[BlockText]:
    """Read the lines of such a block, the first of which has the number `number`."""
    reader = BlockReader()
    found: list[BlockText] = []
    for line in text.decode("utf-8", errors="replace").splitlines():
        found += reader.feed(line, number)
        number += 1
    return found


@lru_cache(maxsize=1024)
def _usual(shape: bytes) -> bool:
    """Whether a text with zeros for all digits is a whole block; one server's blocks have few shapes."""
    second = shape.find(b"\n") + 1
    first = shape.find(_FIRST, second, second + _LONGEST_PREFIX)
    block = _block(shape[second:first].rstrip(b" ")) if first >= 0 else None
    return block is not None and block.fullmatch(shape) is not None


@lru_cache(maxsize=64)
def _block(prefix: bytes) -> re.Pattern[bytes] | None:
    """A block whose lines have this prefix; None where the prefix may have a meaning of its own."""
    if not prefix.isascii() or b"\n" in prefix or b"\r" in prefix or may_be_read(prefix.decode()):
        return None
    # A label counts only where a word begins.
    gap = b" {1,8}" if prefix[-1:].isalnum() or prefix.endswith(b"_") else b" {0,8}"
    lines = (re.escape(prefix) + gap + line + rb"\r?\n" for line in _LINES)
    return re.compile(_TITLE + rb"\r?\n" + b"".join(lines))
