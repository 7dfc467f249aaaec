"""Locks that the kernel keeps: taken on a descriptor, gone with the process, seen by every user of the host."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager
from typing import Any, Callable, Iterable, Iterator

from eaglelab.remote.agent.files import place_of
from eaglelab.remote.agent.processes import describe, process_ids, start_ticks
from eaglelab.remote.agent.wire import AgentError, Beat

__all__ = ["FolderLocks", "alone_in", "flock_holder", "try_flock"]

_AGENT = "an agent of eaglelab"


def try_flock(descriptor: int) -> bool:
    """Whether the lock is now this process's alone. Raises OSError where the file system keeps none."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def alone_in(folder: str) -> Iterator[None]:
    """For a moment no other agent is at that in `folder`. Where the file system keeps no locks, nothing is waited for."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError:
            pass
        yield
    finally:
        os.close(descriptor)


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
        pid = int(row[4])
        if start_ticks(pid) is None:  # as in `flock 9`, which ends; who started it keeps the lock open
            pid = next(_keepers(info), 0)
        who = describe(pid)
        # The command line of an agent is a program that nobody wants to read.
        command = _AGENT if "eaglelab_agent" in who["command"] else who["command"]
        return {"by": who["user"], "command": command, "pid": who["pid"]}
    return None


def _keepers(info: os.stat_result) -> Iterator[int]:
    """Processes with a descriptor through which the lock of that file was taken, also by another process."""
    for pid in process_ids():
        folder = "/proc/%d/fd" % pid
        try:
            for name in os.listdir(folder):
                there = os.stat(os.path.join(folder, name))
                if (there.st_dev, there.st_ino) == (info.st_dev, info.st_ino):
                    with open("/proc/%d/fdinfo/%s" % (pid, name)) as file:
                        if "FLOCK" in file.read():
                            yield pid
        except OSError:
            continue


class FolderLocks:
    """Folders whose files this process may change, and nobody else's agent, whichever user runs it."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.clock = clock
        self.sleep = sleep
        self._held: dict[tuple[int, int], int] = {}

    def hold(self, paths: Iterable[str], beat: Beat, patience: float = 0.5) -> None:
        """Takes the folders of these files, until this process ends. Raises AgentError `locked`.

        `patience`: how long (s) to wait for one that somebody else's program has locked. An agent keeps it for its whole
        run, which is not waited for.
        """
        places = {found for path in paths for found in (place_of(path), os.path.realpath(path))}
        for folder in sorted({os.path.dirname(place) for place in places}):
            self._hold(folder, beat, patience)

    def _hold(self, folder: str, beat: Beat, patience: float) -> None:
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
            self._take(descriptor, folder, beat, patience)
        except BaseException:
            os.close(descriptor)
            raise
        self._held[place] = descriptor

    def _take(self, descriptor: int, folder: str, beat: Beat, patience: float) -> None:
        began = self.clock()
        while True:
            try:
                if try_flock(descriptor):
                    return
            except OSError:
                return  # no locks on folders here (NFS): the one in the state folder must do
            holder = flock_holder(os.fstat(descriptor)) or {}
            # An agent that is just ending lets go of its locks one by one.
            if self.clock() - began >= (min(patience, 0.5) if holder.get("command") == _AGENT else patience):
                what = (
                    "another run is at work in" if not holder or holder["command"] == _AGENT else "somebody has locked"
                )
                raise AgentError("locked", "%s %s" % (what, folder), path=folder, holder=holder)
            beat({"waiting": folder, "holder": holder})
            self.sleep(0.05)
