"""Every line that a patch inserts ends with its marker, so that taking the patch out is dropping those lines."""

from __future__ import annotations

__all__ = ["is_marked", "mark", "split_lines", "strip"]


def mark(line: str, patch_id: str) -> str:
    """`line` with the marker of `patch_id` at its end."""
    return f"{line}  # eaglelab:{patch_id}"


def is_marked(line: bytes, patch_id: str) -> bool:
    """True for a line, with or without its newline, that the patch `patch_id` inserted."""
    return line.rstrip(b"\r\n").endswith(mark("", patch_id).encode())


def split_lines(source: bytes) -> list[bytes]:
    """The lines of a file with their newlines, `\\n` or `\\r\\n`."""
    return source.splitlines(keepends=True)


def strip(source: bytes, patch_id: str) -> bytes:
    """`source` without the lines that the patch `patch_id` inserted; every other byte stays."""
    return b"".join(line for line in split_lines(source) if not is_marked(line, patch_id))
