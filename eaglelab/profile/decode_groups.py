"""What a log's decode lines say of one server start and one number of running requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from eaglelab.profile.stats import Stats

__all__ = ["KEPT_GROUPS", "KEPT_LINES", "DecodeGroup"]

# Statistics cover the newest lines of a group, so that a log of months fits in memory.
KEPT_LINES = 500
KEPT_GROUPS = 1_000


@dataclass(frozen=True)
class DecodeGroup:
    """Decode lines of one server start (0: before the first start in the log) and one number of running requests.

    `throughput` is tokens per second of all running requests together; `accept_length` is None where speculation was
    not active; `eager` counts the lines that say that no graph was used. `lines` counts all, the statistics cover the
    newest `KEPT_LINES`.
    """

    start: int
    running_requests: int
    lines: int
    throughput: Stats | None
    accept_length: Stats | None
    eager: int

    def to_json(self) -> dict[str, Any]:
        """One entry of `decode.groups`."""
        return {
            "start": self.start,
            "running_requests": self.running_requests,
            "lines": self.lines,
            "throughput_tok_s": None if self.throughput is None else self.throughput.to_json(),
            "accept_length": None if self.accept_length is None else self.accept_length.to_json(),
            "eager": self.eager,
        }
