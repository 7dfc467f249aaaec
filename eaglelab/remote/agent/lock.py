"""One operator a host: a lock that ends with the agent that holds it, however that ends."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from typing import Any, Callable

from eaglelab.remote.agent.files import os_error
from eaglelab.remote.agent.processes import start_ticks
from eaglelab.remote.agent.state import StateFolder
from eaglelab.remote.agent.wire import AgentError

__all__ = ["Lock"]


class Lock:
    """The lock of one state folder. The file says who holds it; that it is held, only the kernel says."""

    def __init__(self, state: StateFolder, sleep: Callable[[float], None] = time.sleep) -> None:
        self.state = state
        self.sleep = sleep
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        return self._descriptor is not None

    def take(self, holder: dict[str, Any]) -> None:
        """Takes the lock for `holder`, or keeps it. Raises AgentError `locked` with the one who has it.

        Its `session` names one controller: an agent that this one has lost sight of, and that may be stuck behind a
        dead link, is ended. What it was at is safe to cut off anywhere.
        """
        if self.held:
            return
        self.state.open()
        path = os.path.join(self.state.folder, "lock")
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise os_error(error, "cannot open the lock %s" % path) from error
        try:
            if not _try(descriptor):
                self._end_earlier_self(descriptor, holder)
            try:
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, _written(holder), 0)
            except OSError:
                pass  # a full disk: nameless, but held
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def _end_earlier_self(self, descriptor: int, holder: dict[str, Any]) -> None:
        text = os.pread(descriptor, 4096, 0).decode(errors="replace")
        other = _parsed(text)
        mine = holder.get("session") is not None and other.get("session") == holder["session"]
        for _ in range(250 if mine else 0):
            if start_ticks(other["pid"]) == other["start"]:
                os.kill(other["pid"], signal.SIGKILL)
            if _try(descriptor):
                return
            self.sleep(0.02)
        raise AgentError("locked", "another run is at work on this host", holder=text)


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _written(holder: dict[str, Any]) -> bytes:
    return json.dumps(dict(holder, pid=os.getpid(), start=start_ticks(os.getpid()))).encode()


def _parsed(text: str) -> dict[str, Any]:
    try:
        return dict(json.loads(text))
    except (ValueError, TypeError):
        return {}  # its holder could not write down who it is
