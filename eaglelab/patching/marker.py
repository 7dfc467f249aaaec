"""Every line that a patch inserts ends with its marker, so that taking the patch out is dropping those lines."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["comes_with", "is_marked", "mark", "named", "split_lines", "strip"]

_MARKER = re.compile(rb"# eaglelab:([A-Za-z0-9][A-Za-z0-9._-]*)")


def mark(line: str, patch_id: str) -> str:
    """`line` with the marker of `patch_id` at its end."""
    return f"{line}  # eaglelab:{patch_id}"


def is_marked(line: bytes, patch_id: str) -> bool:
    """True for a line, with or without its newline, that the patch `patch_id` inserted."""
    text, marker = line.rstrip(b"\r\n"), mark("", patch_id).encode()
    return text.endswith(marker) and text.count(marker) == 1


def named(lines: Iterable[bytes]) -> dict[int, str]:
    """The patches that lines name anywhere in them, by line number from 1."""
    found = ((number, _MARKER.search(line)) for number, line in enumerate(lines, start=1))
    return {number: match[1].decode() for number, match in found if match}


def comes_with(patch_id: str, module: bytes) -> bool:
    """True for a file that the patch brings along, of whatever version: a line of it names the patch."""
    return patch_id in named(split_lines(module)).values()


def split_lines(source: bytes) -> list[bytes]:
    """The lines of a file with their newlines, `\\n` or `\\r\\n`."""
    return source.splitlines(keepends=True)


def strip(source: bytes, patch_id: str) -> bytes:
    """`source` without the lines that the patch `patch_id` inserted; every other byte stays."""
    return b"".join(line for line in split_lines(source) if not is_marked(line, patch_id))
