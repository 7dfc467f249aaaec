"""The way to the host: sshd's session killed or frozen, the network cut, silent, or closed for a time."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

from kinds.moment import Scene

__all__ = ["FIRE"]

SHORT_S = 1.0
AWAY_S = 1.2


def killed(scene: Scene, _: dict[str, Any]) -> None:
    scene.signal_sessions(signal.SIGKILL)


def frozen(scene: Scene, _: dict[str, Any]) -> None:
    """For good: the harness ends the session once the command has ended."""
    scene.signal_sessions(signal.SIGSTOP)


def thawed(scene: Scene, _: dict[str, Any]) -> None:
    """For a moment that is shorter than any limit of silence."""
    _later(scene, SHORT_S)


def late(scene: Scene, _: dict[str, Any]) -> None:
    """Comes back when the controller has given this session up."""
    _later(scene, 4 * SHORT_S)


def _later(scene: Scene, seconds: float) -> None:
    stopped = scene.sessions()
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)

    def go_on() -> None:
        time.sleep(seconds)
        for pid in stopped:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                continue

    threading.Thread(target=go_on, daemon=True).start()


def cut(scene: Scene, _: dict[str, Any]) -> None:
    scene.tell("cut")


def silent(scene: Scene, _: dict[str, Any]) -> None:
    """No byte passes any more and nobody sees an end; a new connection works."""
    scene.tell("freeze")


def refused(scene: Scene, _: dict[str, Any]) -> None:
    """Cut, and the port is closed for a time."""
    scene.tell("refuse")

    def open_again() -> None:
        time.sleep(AWAY_S)
        scene.tell("accept")

    threading.Thread(target=open_again, daemon=True).start()


def away(scene: Scene, _: dict[str, Any]) -> None:
    """Cut, and the port stays closed until the command has ended."""
    scene.tell("refuse")


FIRE = {
    "link.killed": killed,
    "link.frozen": frozen,
    "link.short-freeze": thawed,
    "link.late-thaw": late,
    "link.cut": cut,
    "link.silent": silent,
    "link.refused": refused,
    "link.away": away,
}
