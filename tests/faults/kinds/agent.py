"""The agent on the host: its Python killed or stopped."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

from kinds.moment import Scene

__all__ = ["FIRE"]

SHORT_S = 1.0


def _there(scene: Scene) -> list[int]:
    return [scene.agent] if scene.agent else scene.agents()


def killed(scene: Scene, _: dict[str, Any]) -> None:
    for pid in _there(scene):
        os.kill(pid, signal.SIGKILL)


def stopped(scene: Scene, _: dict[str, Any]) -> None:
    """For good, as if its disk hung: only SIGKILL ends it."""
    for pid in _there(scene):
        os.kill(pid, signal.SIGSTOP)


def short_stop(scene: Scene, _: dict[str, Any]) -> None:
    pids = _there(scene)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)

    def go_on() -> None:
        time.sleep(SHORT_S)
        for pid in pids:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                continue

    threading.Thread(target=go_on, daemon=True).start()


FIRE = {"agent.killed": killed, "agent.stopped": stopped, "agent.short-stop": short_stop}
