"""Locks that the kernel keeps: taken on a descriptor, gone with the process, seen by every user of the host."""

from __future__ import annotations

import fcntl
import os
import time
from typing import Any, Callable, Iterable

from eaglelab.remote.agent.processes import describe
from eaglelab.remote.agent.wire import AgentError

__all__ = ["FolderLocks", "flock_holder", "try_flock"]


def try_flock(descriptor: int) -> bool:
    """Whether the lock is now this process's alone. Raises OSError where the file system keeps none."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def flock_holder(info: os.stat_result) -> dict[str, Any] | None:
    """Who holds the lock of a file, by /proc/locks: by, command, pid. None if nobody whom this process may see."""
    try:
        with open("/proc/locks") as file:
            rows = [row.split() for row in file]
    except OSError:
        return None
    device = "%02x:%02x" % (os.major(info.st_dev), os.minor(info.st_dev))
    # A row: number, FLOCK, ADVISORY, WRITE, pid, major:minor:inode, ... Some file systems name another device there.
    found = [row for row in rows if row[1] == "FLOCK" and row[5].rsplit(":", 1)[1] == str(info.st_ino)]
    found.sort(key=lambda row: not row[5].startswith(device))
    for row in found:
        who = describe(int(row[4]))
        # The command line of an agent is a program that nobody wants to read.
        command = "an agent of eaglelab" if "eaglelab_agent" in who["command"] else who["command"]
        return {"by": who["user"], "command": command, "pid": who["pid"]}
    return None


class FolderLocks:
    """Folders whose files this process may change, and nobody else's agent, whichever user runs it."""

    def __init__(self, sleep: Callable[[float], None] = time.sleep) -> None:
        self.sleep = sleep
        self._held: dict[tuple[int, int], int] = {}

    def hold(self, paths: Iterable[str]) -> None:
        """Takes the folders of these files, until this process ends. Raises AgentError `locked`."""
        for folder in sorted({os.path.dirname(os.path.realpath(path)) for path in paths}):
            self._hold(folder)

    def _hold(self, folder: str) -> None:
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return  # what has become of it is for the operation to say
        info = os.fstat(descriptor)
        place = (info.st_dev, info.st_ino)
        if place in self._held:
            os.close(descriptor)
            return
        try:
            self._take(descriptor, folder, info)
        except BaseException:
            os.close(descriptor)
            raise
        self._held[place] = descriptor

    def _take(self, descriptor: int, folder: str, info: os.stat_result) -> None:
        for _ in range(25):
            try:
                if try_flock(descriptor):
                    return
            except OSError:
                return  # no locks on folders here (NFS): the one in the state folder must do
            self.sleep(0.02)  # an agent that is just ending lets go of its locks one by one
        holder = flock_holder(info)
        raise AgentError("locked", "another run is at work in %s" % folder, path=folder, holder=holder or {})
