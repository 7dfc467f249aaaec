"""What can go wrong: each kind of fault is a function that does it, in the driver's process, at the moment it is due."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kinds import agent, controller, disk, files, link, logs, rival, server
from kinds.moment import Scene

__all__ = ["ANSWER_LOST", "FIRE"]

Fire = Callable[[Scene, dict[str, Any]], None]

FIRE: dict[str, Fire] = {
    **link.FIRE,
    **agent.FIRE,
    **controller.FIRE,
    **disk.FIRE,
    **files.FIRE,
    **server.FIRE,
    **logs.FIRE,
    **rival.FIRE,
}

ANSWER_LOST = (frozenset(link.FIRE) | frozenset(agent.FIRE)) - {"agent.short-stop", "link.short-freeze"}
"""Faults after which an answer that is under way never arrives."""
