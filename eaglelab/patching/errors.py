"""The one way in which planning a patch fails."""

from __future__ import annotations

from collections.abc import Sequence

from eaglelab.errors import EaglelabError

__all__ = ["PatchRefused"]


class PatchRefused(EaglelabError):
    """The patch does not fit a file, which is left exactly as it was (exit 1).

    `reason` is one sentence; `looked_at` holds the (line number, line) pairs it is about, numbered from 1.
    """

    def __init__(self, reason: str, *, path: str, looked_at: Sequence[tuple[int, str]] = (), hint: str = "") -> None:
        excerpt = "".join(f"\n  {number:>5} | {line}" for number, line in looked_at)
        where = f"{path}:{looked_at[0][0]}" if looked_at else path
        super().__init__(reason + excerpt, where=where, hint=hint)
        self.reason = reason
        self.looked_at = tuple(looked_at)
