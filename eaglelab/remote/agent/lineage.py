"""Who started a process, and who takes it in when its parent ends."""

from __future__ import annotations

import os
import time

from eaglelab.remote.agent.processes import parent_of

__all__ = ["ancestors", "find_reaper"]

_TRIES = 10


def ancestors(pid: int) -> list[int] | None:
    """Its parents, the nearest first; the last is process 1, or one whose parent is in no namespace of ours.

    None if the process has ended.
    """
    for _ in range(_TRIES):
        found: list[int] = []
        at: int | None = parent_of(pid)
        if at is None:
            return None
        while at:
            found.append(at)
            at = parent_of(at)
        if at == 0:
            return found
        # One of them ended while it was looked at, and its children have another parent by now.
    return found


def find_reaper() -> int:
    """The process whose child a grandchild of this one becomes: 1, or a subreaper (`systemd --user`, a container's init).

    The kernel shows nobody who that is, so it is found by making such an orphan.
    """
    read, write = os.pipe()
    try:
        child = os.fork()
    except OSError:  # no more processes
        os.close(read)
        os.close(write)
        return 1
    if child == 0:
        try:
            child = os.getpid()
            if os.fork() == 0:
                while os.getppid() == child:
                    time.sleep(0.001)
                os.write(write, b"%d" % os.getppid())
        finally:
            os._exit(0)  # never back into the agent's loop
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        os.waitpid(child, 0)
        return int(answer.read() or b"1")
