"""Where patches lie: one folder each under patches/ of the project."""

from __future__ import annotations

from pathlib import Path

from eaglelab.errors import InputError
from eaglelab.nearest import did_you_mean

__all__ = ["find_patch"]


def find_patch(project: Path, name: str) -> Path:
    """The folder of a patch. Raises InputError with the nearest name there is."""
    folder = project / "patches" / name
    if not (folder / "patch.yaml").is_file():
        known = sorted(path.parent.name for path in (project / "patches").glob("*/patch.yaml"))
        raise InputError(
            f"there is no patch '{name}'",
            where=str(project / "patches"),
            hint=did_you_mean(name, known, label="patches"),
        )
    return folder
