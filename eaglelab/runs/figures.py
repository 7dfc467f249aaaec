"""Whether a run has anything to report on, told from its files' names: what reads them takes long to load."""

from __future__ import annotations

from pathlib import Path

__all__ = ["has_figures"]


def has_figures(folder: Path) -> bool:
    """Whether something in a host's folder says anything about speed; see `RunEvidence.empty`."""
    if any((folder / name).is_file() for name in ("measurements.json", "serving.json")):
        return True
    return next(folder.rglob("profile.json"), None) is not None
