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
