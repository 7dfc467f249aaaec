"""Files of the host: read them whole, show lines of them, replace them in one step or not at all."""

from __future__ import annotations

import errno
import glob
import hashlib
import os
import stat
import subprocess
from collections.abc import Sequence
from typing import Any

from eaglelab.remote.agent.wire import AgentError

__all__ = [
    "describe_file",
    "fsync_folder",
    "os_error",
    "read_bytes",
    "read_file",
    "remove_bytecode",
    "replace",
    "sed",
    "sha256",
    "temporaries",
    "write_new",
]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def os_error(error: OSError, doing: str) -> AgentError:
    """The operating system's refusal in words, with a code for the usual ones."""
    codes = {
        errno.ENOSPC: ("disk-full", "no space left on the disk"),
        errno.EDQUOT: ("disk-full", "the disk quota is used up"),
        errno.EROFS: ("read-only", "the file system is read-only"),
        errno.EACCES: ("not-writable", "permission denied"),
        errno.EPERM: ("not-writable", "operation not permitted (immutable file?)"),
        errno.ENOENT: ("no-such-file", "no such file"),
    }
    code, text = codes.get(error.errno or 0, ("os-error", error.strerror or str(error)))
    return AgentError(code, "%s: %s" % (doing, text), path=error.filename or "")


def read_bytes(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise os_error(error, "cannot read %s" % path) from error


def read_file(path: str) -> tuple[dict[str, Any], bytes]:
    """The regular file behind `path` (links resolved), described, and its bytes.

    Described are real path, sha256, mode, owner, size, number of hard links, and whether lines of a patch are in it.
    """
    real = os.path.realpath(path)
    try:
        info = os.stat(real)
    except OSError as error:
        raise os_error(error, "cannot read %s" % real) from error
    if not stat.S_ISREG(info.st_mode):  # looked at first: reading a pipe or a device need not end
        raise AgentError("not-regular", "%s is not a regular file" % real, path=real)
    data = read_bytes(real)
    described = {
        "path": real,
        "asked": path,
        "sha256": sha256(data),
        "mode": stat.S_IMODE(info.st_mode),
        "uid": info.st_uid,
        "gid": info.st_gid,
        "size": len(data),
        "links": info.st_nlink,
        "marked": b"# eaglelab:" in data,
    }
    return described, data


def describe_file(path: str) -> dict[str, Any]:
    """What `read_file` says of a file, without its bytes."""
    return read_file(path)[0]


def sed(path: str, ranges: Sequence[Sequence[int]]) -> dict[int, str]:
    """Lines of a file by `sed -n`, the host's own view of its line numbers: number -> text (latin-1, so every byte survives).

    `ranges` holds (first, last), 1-based and inclusive, in order and not overlapping.
    """
    script = ";".join("%d,%dp" % (first, last) for first, last in ranges)
    try:
        done = subprocess.run(
            ["sed", "-n", script, path],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"LC_ALL": "C", "PATH": os.environ.get("PATH", os.defpath)},
            timeout=20,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AgentError("sed-failed", "cannot run sed on this host: %s" % error, path=path) from error
    if done.returncode:
        raise AgentError(
            "sed-failed", "sed -n '%s' %s: %s" % (script, path, done.stderr.decode(errors="replace").strip()), path=path
        )
    numbers = [number for first, last in ranges for number in range(first, last + 1)]
    lines = done.stdout.decode("latin-1").split("\n")
    return dict(zip(numbers, lines[:-1] if lines[-1] == "" else lines))


def fsync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_temporary(path: str, data: bytes, mode: int) -> str:
    """A complete, synced sibling of `path` that holds `data`; removed again if it could not be completed."""
    temporary = "%s.eaglelab-%d.tmp" % (path, os.getpid())
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0), 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        with open(temporary, "rb") as file:
            if sha256(file.read()) != sha256(data):
                raise AgentError("write-failed", "what was written to %s is not what was sent" % temporary, path=path)
    except Exception:
        _unlink_quietly(temporary)
        raise
    return temporary


def _unlink_quietly(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass  # it never came to be, or the folder takes no change: the caller reports the first error


def write_new(path: str, data: bytes, mode: int = 0o600) -> None:
    """Writes `path` so that it is there whole or not at all, whatever it held before."""
    try:
        temporary = _write_temporary(path, data, mode)
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
    Raises AgentError `changed` if somebody else wrote the file since it was read.
    """
    real = os.path.realpath(path)
    try:
        temporary = _write_temporary(real, data, mode)
        try:
            info = os.stat(temporary)
            if (info.st_uid, info.st_gid) != (uid, gid):
                os.chown(temporary, uid, gid)
                os.chmod(temporary, mode)  # chown clears set-id bits
            if expected is not None:
                _copy_attributes(real, temporary)
            found = sha256(read_bytes(real)) if os.path.lexists(real) else None
            if found != expected:
                raise AgentError(
                    "changed",
                    "%s was changed by somebody else: its sha256 is %s, expected %s" % (path, found, expected),
                    path=path,
                )
            os.rename(temporary, real)
        except Exception:
            _unlink_quietly(temporary)
            raise
        fsync_folder(os.path.dirname(real))
    except OSError as error:
        raise os_error(error, "cannot write %s" % path) from error


def _copy_attributes(source: str, target: str) -> None:
    """Gives `target` the extended attributes of `source`, and takes from it the ACL that a folder hands down."""
    if not hasattr(os, "listxattr"):
        return
    try:
        wanted = {name: os.getxattr(source, name) for name in os.listxattr(source)}
        there = {name: os.getxattr(target, name) for name in os.listxattr(target)}
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            return
        raise
    for name in there:
        if name not in wanted and not name.startswith("security."):
            os.removexattr(target, name)
    for name, value in wanted.items():
        if there.get(name) != value:
            os.setxattr(target, name, value)


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
