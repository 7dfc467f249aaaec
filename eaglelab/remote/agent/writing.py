"""Files of the host, written: in one step or not at all."""

from __future__ import annotations

import glob
import os
from typing import Callable

from eaglelab.remote.agent.attributes import copy_attributes
from eaglelab.remote.agent.files import os_error, sha256_of
from eaglelab.remote.agent.wire import AgentError

__all__ = ["fsync_folder", "remove_bytecode", "replace", "temporaries", "write_all", "write_new"]


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
    _unlink_quietly(temporary)  # of a killed process that had this pid
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
        _unlink_quietly(temporary)
        raise
    return temporary


def _contents(descriptor: int) -> bytes:
    os.lseek(descriptor, 0, os.SEEK_SET)
    with os.fdopen(descriptor, "rb", closefd=False) as file:
        return file.read()


def _unlink_quietly(path: str) -> None:
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
            _unlink_quietly(temporary)
            raise
        fsync_folder(os.path.dirname(path))
    except OSError as error:
        raise os_error(error, "cannot write %s" % path) from error


def temporaries(path: str) -> list[str]:
    """Unfinished writes of `path` that a process which was killed has left beside it."""
    return glob.glob(glob.escape(path) + ".eaglelab-*.tmp")


def replace(path: str, expected: str | None, data: bytes, mode: int, uid: int, gid: int) -> None:
    """Compare and swap: `path` becomes `data` if its sha256 is `expected` (None: there is no such file).

    A link stays a link: the file behind it is what is swapped. Its other hard links keep the old bytes.
    Mode and owner are those given, extended attributes (ACL, SELinux context) those of the old file. The new file is
    complete and synced beside the old one before one rename puts it in place, so a reader sees the old or the new.
    Raises AgentError: `changed` if somebody else wrote the file since it was read, `attribute-lost`.
    """
    real = os.path.realpath(path)

    def dress(descriptor: int) -> None:
        info = os.fstat(descriptor)
        if (info.st_uid, info.st_gid) != (uid, gid):
            os.fchown(descriptor, uid, gid)
        if expected is not None:
            copy_attributes(real, descriptor)

    _must_still_be(path, real, expected)  # before anything is written through a link that leads nowhere
    try:
        temporary = _write_temporary(real, data, mode, dress)
        try:
            _must_still_be(path, real, expected)
            os.rename(temporary, real)
        except Exception:
            _unlink_quietly(temporary)
            raise
        fsync_folder(os.path.dirname(real))
    except OSError as error:
        raise os_error(error, "cannot write %s" % path) from error


def _must_still_be(path: str, real: str, expected: str | None) -> None:
    if os.path.realpath(path) != real or (expected is None and os.path.lexists(path)):
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
    folder, name = os.path.split(os.path.realpath(path))
    stem = glob.escape(os.path.splitext(name)[0])
    for compiled in glob.glob(os.path.join(glob.escape(folder), "__pycache__", stem + ".*.pyc")):
        try:
            os.unlink(compiled)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise os_error(error, "cannot remove stale bytecode %s" % compiled) from error
