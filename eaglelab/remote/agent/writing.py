"""Files of the host, written: in one step or not at all."""

from __future__ import annotations

import glob
import os
from typing import Callable

from eaglelab.remote.agent.attributes import copy_attributes
from eaglelab.remote.agent.files import os_error, place_of, sha256_of
from eaglelab.remote.agent.wire import AgentError

__all__ = [
    "fsync_folder",
    "must_still_be",
    "remove_bytecode",
    "replace",
    "temporaries",
    "unlink_quietly",
    "write_all",
    "write_new",
]


def write_all(descriptor: int, data: bytes) -> None:
    """Writes all of `data`; a disk may take a part of it. Raises OSError."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def fsync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_temporary(path: str, data: bytes, mode: int, dress: Callable[[int], None]) -> str:
    """A complete, synced sibling of `path` that holds `data`; removed again if it could not be completed.

    `dress` gives it owner and attributes. All goes through one descriptor: whoever may write the folder could
    put a link in the place of the name.
    """
    temporary = "%s.eaglelab-%d.tmp" % (path, os.getpid())
    unlink_quietly(temporary)  # of a killed process that had this pid
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            write_all(descriptor, data)
            dress(descriptor)
            os.fchmod(descriptor, mode)  # last, for a new owner clears set-id bits
            os.fsync(descriptor)
            if _contents(descriptor) != data:
                raise AgentError("write-failed", "what was written to %s is not what was sent" % temporary, path=path)
        finally:
            os.close(descriptor)
    except Exception:
        unlink_quietly(temporary)
        raise
    return temporary


def _contents(descriptor: int) -> bytes:
    os.lseek(descriptor, 0, os.SEEK_SET)
    with os.fdopen(descriptor, "rb", closefd=False) as file:
        return file.read()


def unlink_quietly(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass  # it never came to be, or the folder takes no change: the caller reports the first error


def write_new(path: str, data: bytes, mode: int = 0o600) -> None:
    """Writes `path` so that it is there whole or not at all, whatever it held before."""
    try:
        temporary = _write_temporary(path, data, mode, lambda _: None)
        try:
            os.rename(temporary, path)
        except OSError:
            unlink_quietly(temporary)
            raise
        fsync_folder(os.path.dirname(path))
    except OSError as error:
        raise os_error(error, "cannot write %s" % path) from error


def temporaries(path: str) -> list[str]:
    """Unfinished writes of `path` that a process which was killed has left beside it."""
    return glob.glob(glob.escape(path) + ".eaglelab-*.tmp")


def replace(
    path: str, expected: str | None, data: bytes, mode: int, uid: int, gid: int, link: str | None = None
) -> None:
    """Compare and swap: `path` becomes `data` if its sha256 is `expected` (None: there is no such file).

    A link stays a link: the file behind it is what is swapped. But one that says `link` gives way to a file of its own,
    and what is behind it stays as it is. Other hard links of the file keep the old bytes.
    Mode and owner are those given, extended attributes (ACL, SELinux context) those of the old file. The new file is
    complete and synced beside the old one before one rename puts it in place, so a reader sees the old or the new.
    Raises AgentError: `changed` if somebody else wrote the file since it was read, `attribute-lost`.
    """
    real = os.path.realpath(path) if link is None else place_of(path)

    def dress(descriptor: int) -> None:
        info = os.fstat(descriptor)
        if (info.st_uid, info.st_gid) != (uid, gid):
            os.fchown(descriptor, uid, gid)
        if expected is not None:
            copy_attributes(real, descriptor)

    must_still_be(path, real, expected, link)  # before anything is written through a link that leads nowhere
    try:
        temporary = _write_temporary(real, data, mode, dress)
        try:
            must_still_be(path, real, expected, link)
            os.rename(temporary, real)
        except Exception:
            unlink_quietly(temporary)
            raise
        fsync_folder(os.path.dirname(real))
    except OSError as error:
        raise os_error(error, "cannot write %s" % path) from error


def must_still_be(path: str, real: str, expected: str | None, link: str | None) -> None:
    """Raises AgentError `changed` unless `path` leads to `real`, or is a link that says `link`, and has that sha256."""
    turned = os.path.realpath(path) != real and not (link and os.path.islink(real) and os.readlink(real) == link)
    if turned or (expected is None and os.path.lexists(path)):
        raise AgentError(
            "changed", "%s was changed by somebody else: there is something new in its place" % path, path=path
        )
    found = sha256_of(real)
    if found != expected:
        raise AgentError(
            "changed",
            "%s was changed by somebody else: its sha256 is %s, expected %s" % (path, found, expected),
            path=path,
        )


def remove_bytecode(path: str) -> None:
    """Deletes compiled forms of a module: Python trusts them by time and size, which a quick edit can keep."""
    folder, name = os.path.split(place_of(path))
    stem = glob.escape(os.path.splitext(name)[0])
    for compiled in glob.glob(os.path.join(glob.escape(folder), "__pycache__", stem + ".*.pyc")):
        try:
            os.unlink(compiled)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise os_error(error, "cannot remove stale bytecode %s" % compiled) from error
