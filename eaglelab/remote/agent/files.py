"""Files of the host, read: whole, by lines, by what they are. Nothing here waits for anybody."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import subprocess
from collections.abc import Sequence
from typing import Any

from eaglelab.remote.agent.wire import AgentError

__all__ = [
    "describe_file",
    "open_regular",
    "os_error",
    "place_of",
    "read_bytes",
    "read_file",
    "sed",
    "sha256",
    "sha256_of",
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
        errno.ENOTDIR: ("no-such-file", "a part of its path is not a folder"),
        errno.ENXIO: ("not-regular", "it is a socket, or a device that is not there"),
        errno.ELOOP: ("not-regular", "it is a symbolic link, or its links go in a circle"),
    }
    code, text = codes.get(error.errno or 0, ("os-error", error.strerror or str(error)))
    return AgentError(code, "%s: %s" % (doing, text), path=error.filename or "")


def place_of(path: str) -> str:
    """Where the name itself is: its folder's links resolved, but not its own. There Python keeps its bytecode, too."""
    folder, name = os.path.split(path)
    return os.path.join(os.path.realpath(folder), name)


def open_regular(path: str, flags: int = 0) -> int:
    """A descriptor to read a regular file. Raises OSError, or AgentError `not-regular`: a pipe's end may never come."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise AgentError("not-regular", "%s is not a regular file" % path, path=path)
    return descriptor


def read_bytes(path: str, flags: int = 0) -> bytes:
    """All bytes of a regular file. Raises AgentError."""
    try:
        with os.fdopen(open_regular(path, flags), "rb") as file:
            return file.read()
    except OSError as error:
        raise os_error(error, "cannot read %s" % path) from error


def sha256_of(path: str) -> str | None:
    """Of the file behind `path`; None if there is none. Raises AgentError for what cannot be read, such as a folder."""
    try:
        return sha256(read_bytes(path))
    except AgentError as error:
        if error.code == "no-such-file":
            return None
        raise


def read_file(path: str) -> tuple[dict[str, Any], bytes]:
    """The regular file behind `path` (links resolved), described, and its bytes.

    Described are real path, sha256, mode, owner, size, number of hard links, and whether lines of a patch are in it.
    """
    real = os.path.realpath(path)
    try:
        with os.fdopen(open_regular(real), "rb") as file:
            info = os.fstat(file.fileno())
            data = file.read()
    except OSError as error:
        raise os_error(error, "cannot read %s" % real) from error
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
