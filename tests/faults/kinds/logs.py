"""The server's log while it is read: rotated, truncated, taken away."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from kinds.moment import Scene

__all__ = ["FIRE"]


def rotated(scene: Scene, _: dict[str, Any]) -> None:
    """As logrotate does it: renamed, and a new one in its place; the server goes on writing to the old one."""
    log = Path(scene.log)
    log.rename(log.with_name("server.log.1"))
    log.touch()


def copied_and_truncated(scene: Scene, _: dict[str, Any]) -> None:
    log = Path(scene.log)
    log.with_name("server.log.1").write_bytes(log.read_bytes())
    os.truncate(log, 0)


def gone(scene: Scene, _: dict[str, Any]) -> None:
    Path(scene.log).unlink()


FIRE = {"log.rotated": rotated, "log.truncated": copied_and_truncated, "log.gone": gone}
