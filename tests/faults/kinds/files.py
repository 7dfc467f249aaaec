"""Files of the host that somebody else touches: made immutable, replaced by an upgrade, taken away."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from kinds.moment import Scene

__all__ = ["FIRE", "STRANGER"]

STRANGER = b"# a newer release\n"
"""What an upgrade adds to a worker."""


def immutable(scene: Scene, step: dict[str, Any]) -> None:
    subprocess.run(["chattr", "+i", str(Path(scene.package) / step["file"])], check=True)


def replaced(scene: Scene, step: dict[str, Any]) -> None:
    """As pip does it: a new file, renamed into place."""
    file = Path(scene.package) / step["file"]
    newer = file.with_name(".newer")
    shutil.copy2(file, newer)
    newer.write_bytes(file.read_bytes() + STRANGER)
    newer.rename(file)


def gone(scene: Scene, step: dict[str, Any]) -> None:
    (Path(scene.package) / step["file"]).unlink()


def nothing(_: Scene, __: dict[str, Any]) -> None:
    """The harness has arranged what is wrong before the command began."""


FIRE = {
    "file.immutable": immutable,
    "file.replaced": replaced,
    "file.gone": gone,
    "lock.held": nothing,
    "lock.stale": nothing,
    "record.stale": nothing,
}
