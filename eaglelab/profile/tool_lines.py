"""Accept lengths that other programs print: SGLang's request log and its clients, and vLLM.

All of them count the bonus token.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["REQUEST_WORD", "TOOL_WORDS", "ToolFigure", "ToolLines"]

_NUMBER = rb"(\d{1,9}(?:\.\d{1,9})?)"
_PRINTED = {
    "vllm": (b"SpecDecoding metrics:", re.compile(rb"Mean acceptance length: " + _NUMBER)),
    "bench_serving": (b"Accept length:", re.compile(rb"Accept length:\s+" + _NUMBER)),
    "send_one": (b"acc_length=", re.compile(rb"acc_length=" + _NUMBER)),
}
_VERIFIES = b"'spec_verify_ct': "
_TOKENS = b"'completion_tokens': "
_COUNT = re.compile(rb"\d{1,9}")
_BASIS = {
    "vllm": "mean of vLLM's 'Mean acceptance length' lines: 1 + accepted / drafts",
    "bench_serving": "mean of what bench_serving printed: the server's figure since its start",
    "send_one": "mean of what send_one printed: tokens / verifies of one request each",
    "request-log": "pooled over finished requests: (tokens - requests) / verifies; a first token is prefill's",
}

TOOL_WORDS = tuple(word.decode() for word, _ in _PRINTED.values())
"""One of them is in each line that prints an accept length."""
REQUEST_WORD = _VERIFIES.decode()
"""It is in each line of a finished request."""


@dataclass(frozen=True)
class ToolFigure:
    """An accept length (tokens per verify, bonus token included) that `source` tells in `lines` lines; `basis` says how."""

    source: str
    lines: int
    accept_length: float
    basis: str

    def to_json(self) -> dict[str, Any]:
        """One entry of `tools`."""
        return asdict(self)


class ToolLines:
    """Takes lines in the order of the log, and keeps sums only."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[int, float, float]] = {}

    def take(self, line: bytes) -> None:
        """File the accept length that a line prints."""
        for source, (word, pattern) in _PRINTED.items():
            if word in line and (printed := pattern.search(line)):
                self._add(source, float(printed[1]), 1)

    def take_request(self, line: bytes) -> None:
        """File what a line says of a finished request; one without a verify says nothing."""
        verifies, tokens = _count_after(_VERIFIES, line), _count_after(_TOKENS, line)
        if verifies and tokens > 1:
            self._add("request-log", tokens - 1, verifies)

    def figures(self) -> tuple[ToolFigure, ...]:
        """One a source, in the order in which they were first seen."""
        return tuple(
            ToolFigure(source, lines, above / below, _BASIS[source])
            for source, (lines, above, below) in self._sums.items()
        )

    def _add(self, source: str, above: float, below: float) -> None:
        lines, so_far, weight = self._sums.get(source, (0, 0.0, 0.0))
        self._sums[source] = (lines + 1, so_far + above, weight + below)


def _count_after(words: bytes, line: bytes) -> int:
    """The whole number behind the last of these words, 0 if there is none: a prompt may hold such words too, before."""
    place = line.rfind(words)
    count = _COUNT.match(line, place + len(words)) if place >= 0 else None
    return int(count[0]) if count else 0
