"""The controller: signals, the last of which no handler sees, and a machine that loses its power."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from kinds.moment import Scene

__all__ = ["FIRE"]


def _send(number: int) -> Callable[[Scene, dict[str, Any]], None]:
    def fire(_: Scene, __: dict[str, Any]) -> None:
        os.kill(os.getpid(), number)

    return fire


def power(scene: Scene, _: dict[str, Any]) -> None:
    """The host sees no end of the connection: nobody is there to send one."""
    scene.tell("freeze")
    os.kill(os.getpid(), signal.SIGKILL)


FIRE = {
    "controller.int": _send(signal.SIGINT),
    "controller.int-twice": _send(signal.SIGINT),
    "controller.term": _send(signal.SIGTERM),
    "controller.hup": _send(signal.SIGHUP),
    "controller.kill": _send(signal.SIGKILL),
    "controller.power": power,
}
