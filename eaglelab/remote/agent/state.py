"""The state folder of one user on one host: small JSON files that are whole or absent, and a log of what was done."""

from __future__ import annotations

import errno
import glob
import json
import os
import time
from typing import Any

from eaglelab.remote.agent.files import fsync_folder, os_error, read_bytes, write_new
from eaglelab.remote.agent.wire import AgentError

__all__ = ["StateFolder", "state_folder"]


def state_folder() -> str:
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(base, "eaglelab")


class StateFolder:
    """Reads and writes below `folder`, which only this user may enter."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def open(self) -> None:
        try:
            for name in ("objects", "history"):
                os.makedirs(os.path.join(self.folder, name), mode=0o700, exist_ok=True)
        except OSError as error:
            raise os_error(error, "cannot make the state folder %s" % self.folder) from error

    def note(self, op: str, **what: Any) -> None:
        """Appends one line and syncs it. A line is in the log whole or not at all, also on a full disk."""
        line = json.dumps(dict(what, op=op, time=time.time()), separators=(",", ":")).encode() + b"\n"
        try:
            descriptor = os.open(
                os.path.join(self.folder, "journal.jsonl"), os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600
            )
            try:
                size = os.fstat(descriptor).st_size
                if size and os.pread(descriptor, 1, size - 1) != b"\n":
                    line = b"\n" + line  # a crash cut the last line off: it must not take this one with it
                if os.write(descriptor, line) < len(line):
                    os.ftruncate(descriptor, size)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
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

    def read(self, name: str, *needed: str) -> dict[str, Any] | None:
        """A JSON file of the state folder; None if there is none. Raises `bad-state` where a `needed` key is missing."""
        path = os.path.join(self.folder, name)
        if not os.path.exists(path):
            return None
        try:
            found = dict(json.loads(read_bytes(path)))
        except (ValueError, TypeError) as error:
            raise AgentError("bad-state", "%s is not a JSON object: %s" % (path, error), path=path) from error
        missing = [key for key in needed if key not in found]
        if missing:
            raise AgentError("bad-state", "%s lacks %s" % (path, ", ".join(missing)), path=path)
        return found

    def write(self, name: str, content: dict[str, Any]) -> None:
        write_new(os.path.join(self.folder, name), json.dumps(content, indent=1, sort_keys=True).encode())

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
