"""Which processes a lab has started, and ending them. By the mark in their environment, never by name."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from eaglelab.errors import AttentionError

__all__ = ["end_marked", "marked", "start_time"]

PROC = Path("/proc")


def start_time(pid: int) -> str:
    """When a living process began (clock ticks since boot, as text); with the pid it is unique.

    "" where there is none, or where it has ended and nobody has asked for its exit code yet.
    """
    try:
        stat = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]


def marked(mark: str) -> list[int]:
    """Pids of the living processes with EAGLELAB_LAB=`mark`, this one left out."""
    wanted = f"EAGLELAB_LAB={mark}".encode()
    found = []
    for entry in PROC.iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environ = (entry / "environ").read_bytes()
        except OSError:
            continue
        if wanted in environ.split(b"\0"):
            found.append(int(entry.name))
    return found


def end_marked(mark: str, *, patience: float = 10.0, sleep: Callable[[float], None] = time.sleep) -> int:
    """Kill them until none is left; the number that were ended.

    Raises:
        AttentionError: some outlived `patience` seconds of SIGKILL.
    """
    ended: set[int] = set()
    waited = 0.0
    while pids := marked(mark):
        if waited >= patience:
            left = " ".join(map(str, pids))
            raise AttentionError(f"processes of the lab do not end: {left}", hint=f"kill -9 {left}")
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            ended.add(pid)
        sleep(0.02)
        waited += 0.02
    return len(ended)
