"""Accept lengths that other programs print: SGLang's request log and its clients, and vLLM.

All of them count the bonus token.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

__all__ = [
    "MOST_DIGITS",
    "TOKENS_WORD",
    "TOOL_WORDS",
    "VERIFIES_WORD",
    "ToolFigure",
    "ToolLines",
    "printed_in",
    "request_in",
]

_NUMBER = rb"(\d{1,9}(?:\.\d{1,9})?)"
_PRINTED = {
    "vllm": (b"SpecDecoding metrics:", re.compile(rb"Mean acceptance length: " + _NUMBER)),
    "bench_serving": (b"Accept length:", re.compile(rb"Accept length:\s+" + _NUMBER)),
    "send_one": (b"acc_length=", re.compile(rb"acc_length=" + _NUMBER)),
}
_VERIFIES = b"'spec_verify_ct': "
_TOKENS = b"'completion_tokens': "
MOST_DIGITS = 9
_COUNT = re.compile(rb"\d{1,%d}" % MOST_DIGITS)
_BASIS = {
    "vllm": "mean of vLLM's 'Mean acceptance length' lines: 1 + accepted / drafts",
    "bench_serving": "mean of what bench_serving printed: the server's figure since its start",
    "send_one": "mean of what send_one printed: tokens / verifies of one request each",
    "request-log": "pooled over finished requests: (tokens - requests) / verifies; a first token is prefill's",
}

TOOL_WORDS = tuple(word.decode() for word, _ in _PRINTED.values())
"""One of them is in each line that prints an accept length."""
VERIFIES_WORD, TOKENS_WORD = _VERIFIES.decode(), _TOKENS.decode()
"""Both are in each line of a finished request, and behind the last of each its number of up to MOST_DIGITS digits."""


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
    """Takes figures in the order of the log, and keeps sums only."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[int, float, float]] = {}

    def print(self, source: str, accept_length: float) -> None:
        """File an accept length that was printed."""
        self._add(source, 1, accept_length, 1)

    def finish(self, requests: int, tokens: int, verifies: int) -> None:
        """File finished requests: their tokens without the first of each, and their verifies."""
        if requests:
            self._add("request-log", requests, tokens, verifies)

    def figures(self) -> tuple[ToolFigure, ...]:
        """One a source."""
        found = ((source, *self._sums[source]) for source in _BASIS if source in self._sums)
        return tuple(ToolFigure(source, lines, above / below, _BASIS[source]) for source, lines, above, below in found)

    def _add(self, source: str, lines: int, above: float, below: float) -> None:
        before = self._sums.get(source, (0, 0.0, 0.0))
        self._sums[source] = (before[0] + lines, before[1] + above, before[2] + below)


def printed_in(line: bytes) -> list[tuple[str, float]]:
    """The accept lengths that a line prints, each with its source."""
    found = ((source, pattern.search(line)) for source, (word, pattern) in _PRINTED.items() if word in line)
    return [(source, float(match[1])) for source, match in found if match]


def request_in(line: bytes) -> tuple[int, int, int]:
    """What a line says of a finished request (1, tokens but the first, verifies); zeros where it has no verify."""
    verifies, tokens = _count_after(_VERIFIES, line), _count_after(_TOKENS, line)
    return (1, tokens - 1, verifies) if verifies and tokens > 1 else (0, 0, 0)


def _count_after(words: bytes, line: bytes) -> int:
    """The whole number behind the last of these words, 0 if there is none: a prompt may hold such words too, before."""
    place = line.rfind(words)
    count = _COUNT.match(line, place + len(words)) if place >= 0 else None
    return int(count[0]) if count else 0
