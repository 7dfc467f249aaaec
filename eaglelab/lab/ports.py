"""A TCP port that is still free when it is needed, some time after it was chosen."""

from __future__ import annotations

import random
import socket
from pathlib import Path

__all__ = ["lasting_port"]

_LOWEST = 10_000
_HIGHEST = 65_535
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_TRIES = 1_000


def lasting_port(chance: random.Random | None = None) -> int:
    """A port of loopback that nobody has, and that the kernel gives to nobody by itself.

    What asks for any port, as every connection to a server does, gets one of the kernel's own range: one of those
    may be a stranger's by the time the server is started. Raises OSError where no port is free.
    """
    chance = chance or random.SystemRandom()
    least, most = _given_by_the_kernel()
    rest = [port for port in range(_LOWEST, _HIGHEST + 1) if not least <= port <= most]
    for _ in range(_TRIES if rest else 0):
        port = chance.choice(rest)
        if _free(port):
            return port
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _given_by_the_kernel() -> tuple[int, int]:
    try:
        least, most = map(int, _RANGE.read_text().split())
    except (OSError, ValueError):
        return 32_768, 60_999
    return least, most


def _free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
