"""Which node of a server died first: the others follow it, and their last lines say only that it is gone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from eaglelab.server.readiness import ServerDied

__all__ = ["End", "blames_another", "died_first"]

_BLAMES = re.compile(
    r"Connection (?:closed|reset) by (?:remote )?peer|[Rr]emote process (?:exited|has failed)|ncclRemoteError"
    r"|recvValue failed|sendBytes failed|Broken pipe.*(?:gloo|nccl|TCPStore)|socketProgress.*(?:closed|reset)"
)
"""What Gloo, NCCL and torch's store say of another rank that is gone."""


@dataclass(frozen=True)
class End:
    """How one node's part of the server ended; `at` is when, by its own clock (s since 1970), None where nobody noted it.

    `follows`: its log blames another rank.
    """

    died: ServerDied
    at: float | None
    follows: bool


def blames_another(lines: Iterable[str]) -> bool:
    """Whether the last lines of a log say that another rank is gone."""
    return any(_BLAMES.search(line) for line in lines)


def died_first(ends: Mapping[str, End | None]) -> str | None:
    """The node that the others followed: one whose log blames nobody, and the earliest of these. None where none died."""
    dead = [(name, end) for name, end in ends.items() if end is not None]
    own = [(name, end) for name, end in dead if not end.follows] or dead
    if not own:
        return None
    return min(own, key=lambda item: (item[1].at is None, item[1].at or 0.0))[0]
