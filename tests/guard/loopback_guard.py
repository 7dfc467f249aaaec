"""Refuses every address but loopback, for the process that installs it and for as long as it lives."""

from __future__ import annotations

import ipaddress
import sys
from typing import Any

__all__ = ["OutsideLoopback", "install", "is_loopback"]

_EVENTS = {"socket.connect": 1, "socket.sendto": 1, "socket.sendmsg": 1, "socket.getaddrinfo": 0}
"""Audit events that reach out, and where the address stands among their arguments."""


class OutsideLoopback(BaseException):
    """Somebody tried to reach another machine. Not an Exception: no handler may turn it into a mere failure."""


def is_loopback(host: str) -> bool:
    if host in ("", "localhost"):
        return True
    try:
        return ipaddress.ip_address(host.split("%")[0]).is_loopback
    except ValueError:
        return False


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if event not in _EVENTS:
        return
    address = args[_EVENTS[event]]
    if isinstance(address, tuple):  # Unix sockets have a path here
        address = address[0]
    elif event != "socket.getaddrinfo":
        return
    host = address.decode() if isinstance(address, bytes) else address
    if host is not None and not is_loopback(str(host)):
        raise OutsideLoopback(f"{event} to {host}: the test suite contacts nothing but this machine")


def install() -> None:
    """An audit hook cannot be taken out again, which is the point."""
    sys.addaudithook(_audit)
