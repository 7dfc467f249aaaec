"""The agent's own compiled code, kept on its host: what is known there need not be sent and compiled at every start.

This part is sent by itself and first, so it needs nothing of its neighbours. What is kept is believed only where nobody
but its user can have written it, and where it is whole; else the source is asked for, as if nothing were there.
"""

from __future__ import annotations

import gc
import hashlib
import marshal
import os
import stat
import sys
from types import CodeType

__all__ = ["WANTED", "begin", "keep_code", "kept_code", "state_folder"]

WANTED = b"\nEAGLELAB-AGENT-WANTED\n"
"""Printed where the source is needed."""

_VERSIONS = 4
"""Versions of eaglelab, or Pythons, that take turns on one host."""
_LEFT = 64 << 20
"""Disk (bytes) that must be left: what a rollback writes matters more."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def state_folder() -> str:
    """Below XDG_STATE_HOME; a relative one is invalid by its specification, and to be ignored."""
    base = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(base, "eaglelab")


def begin(digest: str) -> None:
    """Runs the agent whose source has this sha256. What it has to keep is its global FRESH, None where it is kept."""
    gc.disable()  # until it serves: what is loaded stays, and looking through it takes a tenth of the start
    fresh, code = None, kept_code(state_folder(), digest)
    if code is None:
        sys.stdout.buffer.write(WANTED)
        sys.stdout.buffer.flush()
        source = sys.stdin.buffer.read(int(sys.stdin.buffer.readline() or b"0"))
        if hashlib.sha256(source).hexdigest() != digest:
            sys.exit("the source of the agent did not arrive whole")
        code = compile(source, "eaglelab-agent", "exec", dont_inherit=True)
        fresh = (digest, code)
    exec(code, {"__name__": "eaglelab_agent", "FRESH": fresh})


def kept_code(state: str, digest: str) -> CodeType | None:
    """None where there is none that can be trusted."""
    try:
        folder = _private(state)
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(_kept_name(digest), flags, dir_fd=folder)
        finally:
            os.close(folder)
        with os.fdopen(descriptor, "rb") as file:
            info = os.fstat(descriptor)
            if not stat.S_ISREG(info.st_mode) or not _mine_alone(info):
                return None
            seal, body = file.read(32), file.read()
    except OSError:
        return None
    if seal != _seal(digest, body):
        return None
    code = marshal.loads(body)
    return code if isinstance(code, CodeType) else None


def keep_code(state: str, digest: str, code: CodeType) -> None:
    """Keeps it for the next start. Never fails: nothing depends on it."""
    try:
        disk = os.statvfs(state)
        if disk.f_bavail * disk.f_frsize < _LEFT:
            return
        try:
            os.mkdir(os.path.join(state, "agent"), 0o700)
        except FileExistsError:
            pass
        folder = _private(state)
    except OSError:
        return
    body, temporary = marshal.dumps(code), "%s.eaglelab-%d.tmp" % (_kept_name(digest), os.getpid())
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(_seal(digest, body) + body)
            os.rename(temporary, _kept_name(digest), src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            os.unlink(temporary, dir_fd=folder)
            raise
        names = [name for name in os.listdir(folder) if not name.endswith(".tmp")]
        names.sort(key=lambda name: os.lstat(name, dir_fd=folder).st_mtime)
        for name in names[:-_VERSIONS]:
            os.unlink(name, dir_fd=folder)
    except OSError:
        pass
    finally:
        os.close(folder)


def _private(state: str) -> int:
    """The folder itself, so that nobody can put another in its place meanwhile. Raises OSError where others may write."""
    outer = os.open(state, _FOLDER)
    try:
        inner = os.open("agent", _FOLDER, dir_fd=outer)
        if not (_mine_alone(os.fstat(outer)) and _mine_alone(os.fstat(inner))):
            os.close(inner)
            raise PermissionError(state)
        return inner
    finally:
        os.close(outer)


def _mine_alone(info: os.stat_result) -> bool:
    return info.st_uid == os.geteuid() and not stat.S_IMODE(info.st_mode) & 0o077


def _kept_name(digest: str) -> str:
    return "%s.%s" % (digest, sys.implementation.cache_tag)


def _seal(digest: str, body: bytes) -> bytes:
    """A torn write, a decayed disk, or the code of another Python must not reach marshal."""
    return hashlib.sha256(("%s %s\n" % (digest, sys.version)).encode() + body).digest()
