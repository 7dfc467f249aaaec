"""The server: killed, or a process of it, at a moment of ours. How it may be sick by itself: fakes/launch_server.py."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from kinds.moment import Scene

__all__ = ["FIRE"]


def _record(scene: Scene) -> dict[str, Any]:
    return dict(json.loads((Path(scene.state) / "server.json").read_text()))


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def killed(scene: Scene, _: dict[str, Any]) -> None:
    _kill(_record(scene)["pid"])


def keeper_killed(scene: Scene, _: dict[str, Any]) -> None:
    _kill(_record(scene)["session"])


def record_gone(scene: Scene, _: dict[str, Any]) -> None:
    (Path(scene.state) / "server.json").unlink()


def sick(_: Scene, __: dict[str, Any]) -> None:
    """The harness has told the server before the command began."""


FIRE = {
    "server.killed": killed,
    "server.keeper-killed": keeper_killed,
    "server.record-gone": record_gone,
    "server.sick": sick,
}
