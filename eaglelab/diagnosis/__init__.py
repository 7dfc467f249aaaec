"""Says what limits a server, or will, from what is known of it: an engine, and rules as data."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eaglelab.diagnosis.diagnosis import Certainty, Diagnosis, not_said_again
    from eaglelab.diagnosis.engine import diagnose
    from eaglelab.diagnosis.facts import Fact, Facts
    from eaglelab.diagnosis.of_log import facts_of_log
    from eaglelab.diagnosis.of_run import facts_of_run

__all__ = [
    "Certainty",
    "Diagnosis",
    "Fact",
    "Facts",
    "diagnose",
    "facts_of_log",
    "facts_of_run",
    "not_said_again",
]

_IN = {
    **dict.fromkeys(("Certainty", "Diagnosis", "not_said_again"), "diagnosis"),
    **dict.fromkeys(("Fact", "Facts"), "facts"),
    "diagnose": "engine",
    "facts_of_log": "of_log",
    "facts_of_run": "of_run",
}


def __getattr__(name: str) -> Any:
    """Imported when it is asked for: what looks at a host before a load needs nothing that reads a run."""
    if name not in _IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_IN[name]}"), name)
