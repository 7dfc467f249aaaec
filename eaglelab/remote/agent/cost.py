"""What a load's client costs itself, so that a figure that it limits can be told from one of the server's."""

from __future__ import annotations

import time
from typing import Any

__all__ = ["ClientCost"]

_SLOW_S = 0.001


class ClientCost:
    """Counts while the load runs. A turn is the time (s) between two waits for the sockets.

    So much later than its arrival a chunk may be timed, and by what the process then waited for a CPU.
    """

    def __init__(self) -> None:
        self._cpu = time.process_time()
        self._queued = _queued()
        self._turns = self._slow_turns = 0
        self._busy = self._longest = 0.0
        self._late: list[float] = []

    def turn(self, seconds: float) -> None:
        self._turns += 1
        self._busy += seconds
        self._longest = max(self._longest, seconds)
        if seconds > _SLOW_S:
            self._slow_turns += 1

    def late(self, seconds: float) -> None:
        """A request started so much after its time."""
        self._late.append(seconds)

    def summary(self, elapsed: float, tokens: int) -> dict[str, Any]:
        cpu = time.process_time() - self._cpu
        waited, times = (after - before for after, before in zip(_queued(), self._queued))
        return {
            "cpu_s": round(cpu, 6),
            "cpu_us_per_token": round(cpu / tokens * 1e6, 2) if tokens else None,
            "cpu_wait_s": round(waited / 1e9, 6) if times else None,
            "cpu_wait_mean_s": round(waited / times / 1e9, 6) if times else None,
            "busy_share": round(self._busy / elapsed, 4) if elapsed else 0.0,
            "turns": self._turns,
            "turns_over_1ms": self._slow_turns,
            "longest_turn_s": round(self._longest, 6),
            "late_mean_s": round(sum(self._late) / len(self._late), 6) if self._late else None,
            "late_max_s": round(max(self._late), 6) if self._late else None,
        }


def _queued() -> tuple[int, int]:
    """How long (ns) this process has stood ready without a CPU, and how often it was given one; 0, 0 where unknown."""
    try:
        with open("/proc/self/schedstat") as file:
            _, waited, times = file.read().split()
    except (OSError, ValueError):
        return 0, 0
    return int(waited), int(times)
