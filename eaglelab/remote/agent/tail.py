"""Files that grow while they are read, and that a rotation renames, removes, or cuts to nothing meanwhile.

A file is known by its inode. Where another one has taken its path, it is looked for beside it and read to its end first.
"""

from __future__ import annotations

import hashlib
import os
import re
from typing import Any, Iterable

from eaglelab.remote.agent.files import open_regular, os_error
from eaglelab.remote.agent.wire import AgentError, Beat, Reply

__all__ = ["digest_range", "fingerprint", "read_tail"]

_MOST = 4 << 20
_BEFORE = 256
"""Bytes before an offset by which it is told that a file was cut to nothing and has grown past that offset again."""

_COMPRESSED = (".gz", ".xz", ".bz2", ".zst", ".lz4", ".Z")


class _Open:
    """A file that was found. `follower`: the inode of the one that was written after it, None if it is the last."""

    def __init__(self, descriptor: int, path: str) -> None:
        self.descriptor = descriptor
        self.path = path
        self.info = os.fstat(descriptor)
        self.follower: int | None = None


def fingerprint(path: str, offset: int) -> str | None:
    """sha256 of the few bytes before `offset`; None where they cannot be read."""
    try:
        descriptor = open_regular(path)
    except (OSError, AgentError):
        return None
    try:
        return _fingerprint(descriptor, offset)
    finally:
        os.close(descriptor)


def _fingerprint(descriptor: int, offset: int) -> str:
    count = min(_BEFORE, offset)
    return hashlib.sha256(os.pread(descriptor, count, offset - count)).hexdigest()


def read_tail(
    path: str,
    offset: int,
    limit: int,
    inode: int | None,
    before: str | None = None,
    elsewhere: Iterable[str] = (),
) -> Reply:
    """Bytes from `offset` on, at most `limit`, of the file that was `inode` when it lay at `path` (None: what lies there).

    An offset of -1 is its end. `before`: the `fingerprint` at `offset`, as an earlier answer gave it. `elsewhere`
    names other ways to the file (descriptors of who writes it), for one that has no name any more.

    Answers path, inode, size and offset of what was read, and `before` for the byte after it. With `rotated` it lies at
    `path` no more, `end` is its size and `follower` the inode to go on with, from 0. `truncated`: it is shorter than
    `offset`, or another was written over it, and is read from its start. `lost`: the file is gone, and so is what it had from `offset` on; its bytes, None where nobody knows;
    `compressed` are files beside it that may hold them. What is read then is the file at `path`, from its start.
    """
    real = os.path.realpath(os.path.expanduser(path))
    try:
        found = _find(real, inode, elsewhere)
        gone = found is None and inode is not None
        if gone:
            found, offset = _at(real), 0
        message: dict[str, Any] = {"path": real, "size": 0, "inode": 0, "offset": 0, "before": None}
        if gone:
            message.update(lost=None, compressed=[name for name in _siblings(real) if name.endswith(_COMPRESSED)])
        if found is None:
            return message, b""
        try:
            size = found.info.st_size
            offset = size if offset < 0 else offset
            same = offset <= size and before in (None, _fingerprint(found.descriptor, offset))
            start = offset if same or gone else 0
            data = os.pread(found.descriptor, min(limit, _MOST), start)
            after = _fingerprint(found.descriptor, start + len(data))
        finally:
            os.close(found.descriptor)
    except OSError as error:
        raise os_error(error, "cannot read %s" % path) from error
    message.update(path=found.path, size=size, inode=found.info.st_ino, offset=start, before=after)
    if start != offset:
        message["truncated"] = True
    if found.path != real:
        message.update(rotated=True, end=size, follower=found.follower)
    return message, data


def digest_range(
    path: str, offset: int, end: int, inode: int | None, beat: Beat, elsewhere: Iterable[str] = ()
) -> dict[str, Any]:
    """sha256 of the bytes from `offset` to `end`, and how many there are; of none where the file is gone."""
    found_sha, at = hashlib.sha256(), offset
    try:
        found = _find(os.path.realpath(os.path.expanduser(path)), inode, elsewhere)
        if found is not None:
            try:
                while at < end:
                    data = os.pread(found.descriptor, min(_MOST, end - at), at)
                    if not data:
                        break
                    found_sha.update(data)
                    at += len(data)
                    beat({"hashed": at - offset})
            finally:
                os.close(found.descriptor)
    except OSError as error:
        raise os_error(error, "cannot read %s" % path) from error
    return {"sha256": found_sha.hexdigest(), "bytes": at - offset}


def _at(path: str) -> _Open | None:
    try:
        descriptor = open_regular(path)
    except FileNotFoundError:
        return None
    return _Open(descriptor, path)


def _find(real: str, inode: int | None, elsewhere: Iterable[str]) -> _Open | None:
    here = _at(real)
    if here is not None and inode in (None, here.info.st_ino):
        return here
    if here is not None:
        os.close(here.descriptor)
    if inode is None:
        return None
    rotations = _rotations(real)
    for path in rotations + [name for name in _siblings(real) if name not in rotations] + list(elsewhere):
        try:
            if os.stat(path).st_ino != inode:
                continue
            found = _at(path)
        except (OSError, AgentError):
            continue  # it is gone again, or is none that can be read
        if found is not None and found.info.st_ino == inode:
            found.follower = _follower(path, rotations, real)
            return found
        if found is not None:
            os.close(found.descriptor)
    return None


def _siblings(real: str) -> list[str]:
    folder, name = os.path.split(real)
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return [os.path.join(folder, other) for other in sorted(names) if other.startswith(name) and other != name]


def _rotations(real: str) -> list[str]:
    """What a rotation made of the file, the oldest first: .2 before .1, -20260102 before -20260103."""
    numbered, dated = [], []
    for path in _siblings(real):
        suffix = re.match(r"[.-](\d+)(?:[.-]\d+)*\Z", path[len(real) :])
        if suffix is not None and len(suffix.group(1)) < 6:
            numbered.append((-int(suffix.group(1)), path))
        elif suffix is not None:
            dated.append(path)
    return [path for _, path in sorted(numbered)] + dated


def _follower(path: str, rotations: list[str], real: str) -> int | None:
    after = rotations[rotations.index(path) + 1 :] if path in rotations else []
    for candidate in after + [real]:
        try:
            return os.stat(candidate).st_ino
        except OSError:
            continue
    return None
