"""Disks: full, or read-only from one moment on. Needs root: the harness has put a small file system there."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path
from typing import Any

from kinds.moment import Scene

__all__ = ["FIRE"]


def _folder(scene: Scene, where: str) -> Path:
    return {"state": Path(scene.state), "package": Path(scene.package), "log": Path(scene.log).parent}[where]


def full(scene: Scene, step: dict[str, Any]) -> None:
    """`where` is a folder on a small file system of its own."""
    fill = _folder(scene, step["where"]) / ".fill"
    with fill.open("wb") as file:
        room = os.statvfs(fill).f_bavail * os.statvfs(fill).f_frsize
        try:
            os.posix_fallocate(file.fileno(), 0, max(1, room))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


def read_only(scene: Scene, step: dict[str, Any]) -> None:
    folder = _folder(scene, step["where"])
    subprocess.run(["mount", "--bind", folder, folder], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)


FIRE = {
    "disk.full-state": full,
    "disk.full-package": full,
    "disk.full-log": full,
    "disk.read-only-state": read_only,
    "disk.read-only-package": read_only,
    "disk.read-only-log": read_only,
}
