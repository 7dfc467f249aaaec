"""The state folder of one user on one host: small JSON files that are whole or absent, and a log of what was done."""

from __future__ import annotations

import glob
import json
import os
import shlex
import stat
import time
from typing import Any, Callable, Mapping

from eaglelab.remote.agent.files import os_error, read_bytes, sha256
from eaglelab.remote.agent.processes import user_name
from eaglelab.remote.agent.shapes import misfit
from eaglelab.remote.agent.wire import AgentError
from eaglelab.remote.agent.writing import fsync_folder, write_all, write_new

__all__ = ["StateFolder"]

_ALWAYS = ("objects", "history", "runs", "files")
_AT_NEED = ("launch", "images", "tasks", "agent")


class StateFolder:
    """Reads and writes below `folder`, which only this user may enter: what lies there decides what is put back.

    `home`: the state folder that this one is a place of (see places.py); without it, it is one itself.
    """

    def __init__(self, folder: str, home: StateFolder | None = None) -> None:
        self.folder = folder
        self.home = home or self

    def _folders(self) -> list[str]:
        return [self.folder] + [os.path.join(self.folder, name) for name in _ALWAYS + _AT_NEED]

    def open(self, *more: str) -> None:
        """Makes what is missing of it, and of `more`, which not every host needs. Raises as `check`."""
        try:
            os.makedirs(os.path.dirname(self.folder), mode=0o700, exist_ok=True)
            for folder in [self.folder] + [os.path.join(self.folder, name) for name in _ALWAYS + more]:
                try:
                    os.mkdir(folder, 0o700)
                except FileExistsError:
                    pass
                _must_be_private(folder, self._folders())
        except OSError as error:
            raise os_error(error, "cannot make the state folder %s" % self.folder) from error

    def check(self) -> None:
        """Raises `unsafe-state` where a folder that is there is not this user's alone; `mend` is the remedy."""
        for folder in self._folders():
            _must_be_private(folder, self._folders())

    def note(self, op: str, **what: Any) -> None:
        """Appends one line and syncs it. A line is in the log whole or not at all, also on a full disk."""
        line = json.dumps(dict(what, op=op, time=time.time()), separators=(",", ":")).encode() + b"\n"
        path = os.path.join(self.folder, "journal.jsonl")
        self.check()
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
            try:
                info = os.fstat(descriptor)
                if not stat.S_ISREG(info.st_mode):
                    raise AgentError("not-regular", "%s is not a regular file" % path, path=path)
                if info.st_size and os.pread(descriptor, 1, info.st_size - 1) != b"\n":
                    line = b"\n" + line  # a crash cut the last line off: it must not take this one with it
                try:
                    write_all(descriptor, line)
                except OSError:
                    os.ftruncate(descriptor, info.st_size)
                    raise
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise os_error(error, "cannot write the journal in %s" % self.folder) from error

    def note_if_possible(self, op: str, **what: Any) -> None:
        """As `note`; but what puts a host back must go on when its disk is full."""
        try:
            self.note(op, **what)
        except AgentError:
            pass

    def read(
        self,
        name: str,
        needed: Mapping[str, Callable[[Any], bool]] | None = None,
        known: Mapping[str, Callable[[Any], bool]] | None = None,
    ) -> dict[str, Any] | None:
        """A JSON file of the state folder; None if there is none.

        Raises `bad-state`, also where a `needed` key is missing, or the check of its value or of a `known` one fails.
        """
        self.check()
        path = os.path.join(self.folder, name)
        try:
            found = json.loads(read_bytes(path, os.O_NOFOLLOW))
        except (ValueError, RecursionError) as error:
            raise AgentError("bad-state", "%s is not a JSON object: %s" % (path, error), path=path) from error
        except AgentError as error:
            if error.code == "no-such-file":
                return None
            raise AgentError("bad-state", error.what, path=path) from error
        if not isinstance(found, dict):
            raise AgentError("bad-state", "%s is not a JSON object" % path, path=path)
        wrong = misfit(found, needed or {}, known or {})
        if wrong:
            raise AgentError("bad-state", "%s %s" % (path, wrong), path=path)
        return found

    def write(self, name: str, content: dict[str, Any]) -> None:
        write_new(os.path.join(self.folder, name), json.dumps(content, indent=1, sort_keys=True).encode())

    def keep(self, suffix: str, data: bytes) -> str:
        """A file that a server of ours is started with, named by its content. Returns its path."""
        self.open()
        path = os.path.join(self.folder, "files", sha256(data)[:16] + suffix)
        try:
            if read_bytes(path, os.O_NOFOLLOW) == data:
                return path
        except AgentError as error:
            if error.code != "no-such-file":
                raise
        write_new(path, data)
        return path

    def remove(self, name: str) -> None:
        path = os.path.join(self.folder, name)
        try:
            os.unlink(path)
            fsync_folder(self.folder)
        except FileNotFoundError:
            return
        except OSError as error:
            raise os_error(error, "cannot remove %s" % path) from error

    def sweep(self) -> None:
        """Removes what killed agents left half written. Only for the holder of the lock.

        A keeper holds no lock and may be writing how its server ended, so what belongs to a living process stays.
        """
        for path in glob.glob(os.path.join(glob.escape(self.folder), "**", "*.eaglelab-*.tmp"), recursive=True):
            writer = path.rsplit("-", 1)[1][: -len(".tmp")]
            if writer != str(os.getpid()) and os.path.exists("/proc/" + writer):
                continue
            try:
                os.unlink(path)
            except OSError:
                continue  # it is in nobody's way


def _must_be_private(folder: str, all_folders: list[str]) -> None:
    """A folder that is missing harms nobody. One command mends the modes of all."""
    try:
        info = os.lstat(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise os_error(error, "cannot look at the state folder %s" % folder) from error
    name, mode = shlex.quote(folder), stat.S_IMODE(info.st_mode)
    if stat.S_ISLNK(info.st_mode):
        what, mend = "is a link, and whoever may change it decides what is put back", "rm %s" % name
    elif not stat.S_ISDIR(info.st_mode):
        what, mend = "is not a folder", "mv %s %s.old" % (name, name)
    elif info.st_uid != os.geteuid():
        me = user_name(os.geteuid())
        what = "belongs to %s, and you are %s there" % (user_name(info.st_uid), me)
        mend = "sudo chown -R %s %s" % (shlex.quote(me), name)
    elif mode & 0o077:
        what = "may be entered by other users (mode %03o)" % mode
        mend = "chmod 700 " + " ".join(shlex.quote(path) for path in all_folders if _is_open(path))
    else:
        return
    raise AgentError("unsafe-state", "the state folder %s %s" % (folder, what), path=folder, mend=mend)


def _is_open(folder: str) -> bool:
    try:
        mode = os.lstat(folder).st_mode
    except OSError:
        return False
    return stat.S_ISDIR(mode) and bool(mode & 0o077)
