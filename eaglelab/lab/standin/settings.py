"""What the lab wrote for its host: `settings.json` beside this package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["Settings"]


class Settings:
    """Load time (wall seconds), clock rate (simulated seconds a second) and model; `folder` holds the file."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or Path(__file__).resolve().parent.parent
        data = json.loads((self.folder / "settings.json").read_text(encoding="utf-8"))
        self.load_seconds: float = data["load_seconds"]
        self.clock_rate: float = data["clock_rate"]
        self.model: dict[str, Any] = data["model"]

    def load_times(self, asked: float | None) -> tuple[float, float]:
        """Wall seconds until the port opens, and from then until the warm-up request; together they are the load.

        `asked`: the command line's own load time, if it has one.
        """
        seconds = self.load_seconds if asked is None else asked
        warm_up = min(1.0, seconds / 4)
        return seconds - warm_up, warm_up
