"""Knows the probe's own blocks by their exact text, so that one is passed in one step and read only if it is shown."""

from __future__ import annotations

import re

from eaglelab.profile.block_reader import BlockReader, BlockText

__all__ = ["REGULAR_LINES", "read_regular", "regular_span"]

REGULAR_LINES = 8
_HEADER = b"EAGLE3_PROF"
_TIME = rb" {1,20}\d{1,9}\.\d{1,6} ms"
_SHARE = rb" \( {0,3}\d{1,3}\.\d\%\) {1,2}\[host \d{1,9}(?:\.\d{1,6})?\]"
_REGULAR = re.compile(
    rb"EAGLE3_PROF \(\d{1,9} cycles, \d{1,9} timed, steps=\d{1,9}, bs=\d{1,9}, rank \d{1,9}, gpu time by cuda events, "
    rb"host timers in brackets\)\r?\n"
    rb" {0,8}Draft steps:" + _TIME + _SHARE + rb"\r?\n"
    rb" {0,8}Target verify:" + _TIME + _SHARE + rb"\r?\n"
    rb" {0,8}Draft re-extend:" + _TIME + _SHARE + rb"\r?\n"
    rb" {0,8}Other overhead:" + _TIME + _SHARE + rb"\r?\n"
    rb" {0,8}TOTAL:" + _TIME + rb"\r?\n"
    rb" {0,8}Accept len: {1,20}\d{1,4}\.\d{1,4} tokens per verify, bonus token included\r?\n"
    rb" {0,8}Eff tok/s: {1,20}\d{1,9}\.\d{1,4}\r?\n"
)


def regular_span(chunk: bytes, start: int, end: int) -> tuple[int, int] | None:
    """Where the block stands whose header is in the line from `start` to `end`; None if it is not one of the probe's, whole."""
    place = chunk.find(_HEADER, start, end)
    match = _REGULAR.match(chunk, place) if place >= 0 else None
    return match.span() if match else None


def read_regular(text: bytes, number: int) -> list[BlockText]:
    """Read the lines of such a block, the first of which has the number `number`."""
    reader = BlockReader()
    found: list[BlockText] = []
    for line in text.decode("utf-8", errors="replace").splitlines():
        found += reader.feed(line, number)
        number += 1
    return found
