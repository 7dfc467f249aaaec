"""A growing file of the host brought home whole: over lost links, past rotations, and proven by its sha256."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from eaglelab.behind import Behind
from eaglelab.context import Context, LogMark
from eaglelab.errors import HostError
from eaglelab.pieces import lines_of, maskable

__all__ = ["Part", "fetch", "lines_from", "read_from"]

_CHUNK = 4 << 20
_AHEAD = 2
"""Chunks that have come and are not hashed and written yet: what a slow disk here may cost in memory."""


@dataclass
class Part:
    """What came of one file of the host: its bytes from `begin` on. A log that was rotated comes in several.

    `rotated`: the file no longer lies where the log does. `truncated`: it had been cut to nothing, so what it held
    after the part before is missing. `gone`: so is all that the file before still had; `lost` bytes of it, None where
    nobody knows, and perhaps in one of `compressed`.
    """

    path: str
    inode: int | None
    begin: int
    rotated: bool = False
    truncated: bool = False
    gone: bool = False
    lost: int | None = None
    compressed: list[str] = field(default_factory=list)
    size: int = 0
    sha256: Any = field(default_factory=hashlib.sha256)

    @property
    def end(self) -> int:
        return self.begin + self.size

    def add(self, data: bytes) -> None:
        self.sha256.update(data)
        self.size += len(data)

    def to_json(self) -> dict[str, Any]:
        said = {name: True for name in ("rotated", "truncated") if getattr(self, name)}
        lost = {"lost": self.lost, "compressed": self.compressed} if self.gone else {}
        what = {"path": self.path, "begin": self.begin, "end": self.end, "bytes": self.size}
        return {**what, "sha256": self.sha256.hexdigest(), **said, **lost}

    def missing(self) -> str | None:
        """What is not here, in words; None if all is."""
        if self.truncated:
            return f"{self.path} was cut to nothing on the host meanwhile: what was not fetched before that is lost"
        if not self.gone:
            return None
        count = "an unknown number of bytes" if self.lost is None else f"at least {self.lost} bytes"
        held = f"; look into {', '.join(self.compressed)} there" if self.compressed else ""
        return f"the file that this log was is gone from the host: {count} lost{held}"


def read_from(context: Context, mark: LogMark) -> Iterator[tuple[Part, bytes]]:
    """A file from its mark to its present end, in pieces, each with the part that it belongs to.

    What is written meanwhile belongs to a later fetch. Where a rotation put another file in its place, the rest of the
    old one comes first, then those after it from their start.
    """
    offset, inode, before, part, end = mark.offset, mark.inode, mark.before, None, 0
    while True:
        answer, data = context.client.call_bytes(
            "tail", path=mark.path, offset=offset, limit=_CHUNK, inode=inode, before=before
        )
        inode, before = answer["inode"] or None, answer["before"]
        if part is None or inode != part.inode or answer.get("truncated"):
            known = end - offset if part is not None and end > offset else None
            part, end = _part(answer, inode, known), answer["size"]
        data = data[: max(0, end - answer["offset"])]
        yield part, data
        offset = answer["offset"] + len(data)
        if data and offset < end:
            continue
        if answer.get("follower") is None:
            return
        inode, offset, before, part = answer["follower"], 0, None, None


def lines_from(context: Context, mark: LogMark) -> Iterator[bytes]:
    """The lines of a file from its mark to its present end; see `pieces.lines_of`."""
    return lines_of(block for _, block in read_from(context, mark))


def _part(answer: dict[str, Any], inode: int | None, known: int | None) -> Part:
    return Part(
        path=answer.get("path", ""),
        inode=inode,
        begin=answer["offset"],
        rotated=answer.get("rotated", False),
        truncated=answer.get("truncated", False),
        gone="lost" in answer,
        lost=answer.get("lost") if answer.get("lost") is not None else known,
        compressed=answer.get("compressed", []),
    )


def fetch(context: Context, mark: LogMark, name: str) -> int:
    """Copies a file of the host from its mark into the bundle. Returns bytes. It is masked as it comes: memory does not grow with it.

    What came is what the host has: both sides' sha256 are compared, and it is fetched once more where they differ.
    fetch.json of the bundle tells of every part. Raises HostError where they differ again.
    """
    for last in (False, True):
        parts = _copy(context, mark, name)
        differing = _differing(context, mark, parts)
        if differing is None:
            break
        if last:
            part, theirs = differing
            raise HostError(
                f"{part.path} arrived damaged twice: bytes {part.begin} to {part.end} have the sha256 "
                f"{part.sha256.hexdigest()} here and {theirs} there",
                where=context.host.name,
                hint="something rewrites that file, or the disk there is failing: look at both",
            )
    _note(context, mark, name, parts)
    for part in parts:
        missing = part.missing()
        if missing:
            context.say.line(f"  {PurePosixPath(name).name}: {missing}", style="yellow")
    return sum(part.size for part in parts)


def _copy(context: Context, mark: LogMark, name: str) -> list[Part]:
    context.bundle.path(name).unlink(missing_ok=True)
    parts = list[Part]()

    def blocks(found: Iterator[tuple[Part, bytes]]) -> Iterator[bytes]:
        for part, block in found:
            part.add(block)
            yield block

    def write(found: Iterator[tuple[Part, bytes]]) -> None:
        for piece in maskable(blocks(found), context.bundle.masker):
            context.bundle.append(name, piece)

    context.bundle.append(name, b"")
    with Behind(write, _AHEAD) as behind:
        for part, block in read_from(context, mark):
            if not parts or part is not parts[-1]:
                parts.append(part)
            behind.put((part, block))
    return parts


def _differing(context: Context, mark: LogMark, parts: list[Part]) -> tuple[Part, str] | None:
    """The first part of which the host says another sha256, and which."""
    for part in parts:
        if part.size:
            span: dict[str, Any] = {"offset": part.begin, "end": part.end, "inode": part.inode}
            theirs = context.client.call("digest", path=mark.path, **span)["sha256"]
            if theirs != part.sha256.hexdigest():
                return part, theirs
    return None


def _note(context: Context, mark: LogMark, name: str, parts: list[Part]) -> None:
    entry = {"path": mark.path, "bytes": sum(part.size for part in parts), "parts": [part.to_json() for part in parts]}
    with context.bundle.alone:
        path = context.bundle.path("fetch.json")
        known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        context.bundle.json("fetch.json", {**known, name: entry})
