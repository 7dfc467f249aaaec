"""Lines of a server's log that explain why it is slow: which they are, and a bounded list of those that were found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["NOTABLE", "NOTABLE_PARTS", "NotableLine", "NotableLines"]

NOTABLE = {
    "kv-retraction": ("KV cache pool is full. Retract requests.", "Decode out of memory happened"),
    "out-of-memory": (
        "CUDA out of memory",
        "OutOfMemoryError",
        "Decode out of memory. ",
        "Prefill out of memory. ",
        "Out of memory",
    ),
    "overlap-disabled": (
        "Overlap scheduler is disabled",
        "Overlap schedule is disabled",
        "Disabling overlap schedule",
        "mixed chunked prefill are disabled",
        "Non-overlap (synchronous) spec v2 is used",
    ),
    "spec-v1": ("Spec v1 is used",),
    "spec-v2": ("Spec v2 is enabled",),
    "custom-all-reduce-disabled": (
        "Custom allreduce is disabled",
        "Setup Custom allreduce failed",
        "custom all reduce is disabled",
    ),
    "adaptive-start": ("AdaptiveSpeculativeParams initialized",),
    "adaptive-steps-changed": ("Adaptive spec params updated",),
    "adaptive-refused": ("speculative_adaptive disabled",),
    "graph-capture-failed": ("Capture cuda graph failed",),
    "graph-disabled": ("Cuda graph is disabled", "CUDA graph is disabled"),
    "draft-graph-captured": ("Capture draft cuda graph end", "Capture draft CUDA graph end"),
    "draft-extend-graph-captured": ("Capture draft extend cuda graph end", "Capture draft extend CUDA graph end"),
    "draft-context-overridden": ("Overriding the draft model's max_position_embeddings",),
    "context-length": ("derived context_length",),
    "draft-tokens-adjusted": ("speculative_num_draft_tokens is adjusted",),
    "grammar-backend-disabled": ("Grammar backend disabled",),
    "grammar-refused-token": ("Grammar accept_token failed",),
    "watchdog": ("Watchdog timeout", "watchdog timeout"),
}
"""Code -> words, one of which is in each such line: the sentences of SGLang's sources up to 0.5.23."""

NOTABLE_PARTS = (
    "cache pool is full",
    "ut of memory",
    "OutOfMemoryError",
    "verlap schedule",
    "chunked prefill are",
    "Non-overlap (sync",
    "Spec v",
    "ustom allreduce",
    "ustom all reduce",
    "AdaptiveSpeculativeParams",
    "Adaptive spec params",
    "speculative_adaptive disabled",
    "apture cuda graph failed",
    "da graph is disabled",
    "DA graph is disabled",
    "draft cuda graph end",
    "draft CUDA graph end",
    "draft extend cuda graph end",
    "draft extend CUDA graph end",
    "draft model's max_position",
    "derived context_length",
    "speculative_num_draft_tokens is adjusted",
    "Grammar backend disabled",
    "Grammar accept_token",
    "hdog timeout",
)
"""What lines are searched for: each of the words has one of these in it.

They are few, and their first four letters are rare in a server's log ("atch" is in each "batch"), which makes the search for
all words twice as fast. None may be part of another, else the search would pass over it.
"""

_LONGEST_TEXT = 300
_KEPT = 200


@dataclass(frozen=True)
class NotableLine:
    """The first line of its `code` since a server start (0: before the first), and how many such lines came."""

    code: str
    start: int
    line: int
    text: str
    count: int

    def to_json(self) -> dict[str, Any]:
        """One entry of `notable`."""
        return asdict(self)


class NotableLines:
    """Takes lines in the order of the log; kinds of line beyond the first few hundred are passed over."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, str], NotableLine] = {}

    def take(self, line: str, number: int, start: int) -> None:
        """File a line under each code that it belongs to."""
        for code, words in NOTABLE.items():
            if not any(word in line for word in words):
                continue
            known = self._found.get((start, code))
            if known is not None:
                self._found[start, code] = NotableLine(code, start, known.line, known.text, known.count + 1)
            elif len(self._found) < _KEPT:
                self._found[start, code] = NotableLine(code, start, number, line.strip()[:_LONGEST_TEXT], 1)

    def lines(self) -> tuple[NotableLine, ...]:
        """In the order in which they were first seen."""
        return tuple(self._found.values())
