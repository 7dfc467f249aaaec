"""One operator a host: a lock that ends with the agent that holds it, however that ends."""

from __future__ import annotations

import json
import os
import signal
import stat
import time
from typing import Any, Callable

from eaglelab.remote.agent.files import open_regular, os_error
from eaglelab.remote.agent.flocks import flock_holder, try_flock
from eaglelab.remote.agent.processes import boot_id, start_ticks
from eaglelab.remote.agent.state import StateFolder
from eaglelab.remote.agent.wire import AgentError

__all__ = ["Lock"]

_WRITING_LOOKS, _WRITING_S = 5, 0.02
"""Who takes the lock empties its file before it writes: for less than a moment nobody is named there."""

_SHOWN = ("by", "run", "command", "since", "doing", "pid")


class Lock:
    """The lock of one state folder. The file says who holds it; that it is held, only the kernel says."""

    def __init__(self, state: StateFolder, sleep: Callable[[float], None] = time.sleep) -> None:
        self.state = state
        self.sleep = sleep
        self._descriptor: int | None = None
        self._mine: dict[str, Any] = {}

    @property
    def held(self) -> bool:
        return self._descriptor is not None

    def take(self, holder: dict[str, Any], steal: bool = False) -> dict[str, Any] | None:
        """Takes the lock for `holder` (by, run, command, since), or keeps it. Returns who had it last, if that is known.

        Its `session` names one controller: an agent that this one has lost sight of, and that may be stuck behind a
        dead link, is ended. With `steal` so is anybody else's. What it was at is safe to cut off anywhere.
        Raises AgentError: `locked` with the one who has it, `not-allowed` where that one cannot be ended.
        """
        if self.held:
            return None
        if os.path.isdir(self.state.folder):
            self.state.check()  # on a full disk nothing more can be made, and a rollback needs no more
        else:
            self.state.open()
        descriptor = self._opened()
        try:
            if not try_flock(descriptor):
                self._end_holder(descriptor, holder, steal)
            before = _written(descriptor)
            self._mine = dict(holder, pid=os.getpid(), start=start_ticks(os.getpid()), boot=boot_id())
            try:
                os.ftruncate(descriptor, 0)
            except OSError:
                pass
            self._write_down(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        return _shown(before) if before else None

    def let_go(self) -> None:
        """Lets another have it before this process ends."""
        if self._descriptor is not None:
            try:
                os.ftruncate(self._descriptor, 0)  # this process lives on, and has it no more
            except OSError:
                pass
            os.close(self._descriptor)
            self._descriptor = None

    def doing(self, text: str) -> None:
        """Writes down what its holder is at. Never fails: it is for others to read, and may be of no use to anybody."""
        if self._descriptor is not None:
            self._mine["doing"] = text[:200]
            self._write_down(self._descriptor)

    def holder(self) -> dict[str, Any] | None:
        """Who has it now: by, run, command, since, doing, pid, each None where it is not known. Takes nothing."""
        if self.held:
            return _shown(self._mine)
        self.state.check()
        try:
            descriptor = open_regular(self._path, os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise os_error(error, "cannot read the lock %s" % self._path) from error
        try:
            written = _written(descriptor)
            found = written if _lives(written) else flock_holder(os.fstat(descriptor))
        finally:
            os.close(descriptor)
        return None if found is None else _shown(found)

    def last(self) -> dict[str, Any]:
        """What the one wrote who has it, or had it last: of a run that is at work there, also while its link is away.

        Nothing, where nobody ever had it, or the one had no room to write.
        """
        for _ in range(_WRITING_LOOKS):
            try:
                descriptor = open_regular(self._path, os.O_NOFOLLOW)
            except OSError:
                return {}
            try:
                found = _written(descriptor)
            finally:
                os.close(descriptor)
            if found:
                return found
            self.sleep(_WRITING_S)  # somebody is about to write: maybe its own run, whose link was lost
        return {}

    @property
    def _path(self) -> str:
        return os.path.join(self.state.folder, "lock")

    def _opened(self) -> int:
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        except OSError as error:
            raise os_error(error, "cannot open the lock %s" % self._path) from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise AgentError("not-regular", "%s is not a regular file" % self._path, path=self._path)
        return descriptor

    def _write_down(self, descriptor: int) -> None:
        data = json.dumps(self._mine).encode()
        try:
            # In this order a reader always finds a whole record first, and perhaps the end of an older one after it.
            os.pwrite(descriptor, data, 0)
            os.ftruncate(descriptor, len(data))
        except OSError:
            pass  # a full disk: nameless, but held

    def _end_holder(self, descriptor: int, holder: dict[str, Any], steal: bool) -> None:
        other = _written(descriptor)
        mine = holder.get("session") is not None and other.get("session") == holder["session"]
        lives = _lives(other)
        if not mine and not (steal and lives):
            found = other if lives else flock_holder(os.fstat(descriptor)) or {}
            what = "another run is at work on this host"
            if steal:
                what += ", and which process that is cannot be proven, so none was ended"
            raise AgentError("locked", what, holder=_shown(found))
        self._kill_until_free(descriptor, other)
        if not mine:
            self.state.note_if_possible("steal", **{"from": _shown(other), "by": _shown(dict(holder, pid=os.getpid()))})

    def _kill_until_free(self, descriptor: int, other: dict[str, Any]) -> None:
        for _ in range(250):
            if _lives(other):
                _kill(other)
            if try_flock(descriptor):
                return
            self.sleep(0.02)
        raise AgentError("locked", "the run that is at work on this host does not end", holder=_shown(other))


def _kill(other: dict[str, Any]) -> None:
    try:
        os.kill(other["pid"], signal.SIGKILL)
    except ProcessLookupError:
        pass
    except PermissionError as error:
        what = "the run of %s cannot be ended: its process %d is another user's" % (other.get("by"), other["pid"])
        raise AgentError("not-allowed", what, holder=_shown(other)) from error


def _lives(written: dict[str, Any]) -> bool:
    """Whether the very process that wrote this down lives. A pid alone says nothing: it may be another's by now."""
    pid, start = written.get("pid"), written.get("start")
    if not isinstance(pid, int) or start is None or written.get("boot") != boot_id():
        return False
    return pid > 1 and start_ticks(pid) == start


def _shown(written: dict[str, Any]) -> dict[str, Any]:
    return {key: written.get(key) for key in _SHOWN}


def _written(descriptor: int) -> dict[str, Any]:
    """What the lock's file says; nothing where its holder had no room to write."""
    text = os.pread(descriptor, 16384, 0).decode(errors="replace")
    try:
        found = json.JSONDecoder().raw_decode(text)[0]
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
