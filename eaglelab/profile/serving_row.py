"""A row of SGLang's bench_serving: one run of it, as a line of the file that `--output-file` names.

Read in the sources of eighteen releases from 0.4.1.post4 to 0.5.23. Names have kept their meaning but for these, up to
0.4.3: `itl` is a chunk's there, not a token's, and output tokens are those that were asked for, not those that came. What
a release does not have is None here:

    0.4.2   request_throughput, input_throughput, concurrency, std and p99 of all times, tpot at all
    0.4.4   accept_length
    0.5.6   total_throughput, max_output_tokens_per_s (not in 0.5.5)
    0.5.14  p90 and p95 of all times

What a release has that is not named here is kept.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eaglelab.errors import InputError

__all__ = ["SERVING_DEFINITIONS", "SERVING_FIGURES", "ServingRow", "parse_rows"]

_TIMES = {
    "ttft": "time from sending a request to its first text",
    "tpot": "(time to the last chunk - time to the first) / (output tokens - 1)",
    "itl": "time between two chunks / new tokens in the later one, once for each of them",
    "e2e_latency": "time from sending a request to the end of its answer",
}
_STATISTICS = ("mean", "median", "std", "p90", "p95", "p99")

SERVING_DEFINITIONS: Mapping[str, str] = {
    "completed": "requests that were answered",
    "duration": "s, from the first send to the answer of the last request, and what asking for the server's state took",
    "total_input_tokens": "prompt tokens, as its tokenizer counts them (in late releases the server)",
    "total_output_tokens": "output tokens, as the server counts them",
    "request_throughput": "completed / duration",
    "input_throughput": "total_input_tokens / duration",
    "output_throughput": "total_output_tokens / duration",
    "total_throughput": "(input + output tokens) / duration",
    "concurrency": "sum of the requests' times / duration",
    "accept_length": "the server's running average since it started, tokens per verify, bonus token included",
    "max_output_tokens_per_s": "the most output tokens in any whole second",
    "max_concurrent_requests": "the most requests that were there at some time of one second: more than at a time",
    **{f"{figure}_{name}_ms": what for name, what in _TIMES.items() for figure in _STATISTICS},
}
"""By bench_serving's own name. Rates per second, times in ms; `std` is the population's standard deviation."""

SERVING_FIGURES = tuple(SERVING_DEFINITIONS)

_LEFT_OUT = "server_info"
"""Hundreds of lines of what the server says of itself, its API key among them in some releases."""


@dataclass(frozen=True)
class ServingRow:
    """`figures`: every name of `SERVING_FIGURES`, None where the release does not have it or it is no number.

    `more`: all else that the row holds, its arguments included; without the server's account of itself. An endless rate
    is the text `inf` there, which JSON has no number for.
    """

    figures: Mapping[str, float | None]
    more: Mapping[str, Any]

    @property
    def completed(self) -> int:
        return int(self.figures["completed"] or 0)

    def __getitem__(self, figure: str) -> float | None:
        return self.figures[figure]

    def to_json(self) -> dict[str, Any]:
        """As bench_serving wrote it, with null for what is not known."""
        return {**self.figures, **self.more}


def parse_rows(text: str, where: str) -> list[ServingRow]:
    """The rows of a file of bench_serving. Raises InputError where one is not what any release writes."""
    return [_row(line, f"{where}:{number}") for number, line in enumerate(text.splitlines(), 1) if line.strip()]


def _row(line: str, where: str) -> ServingRow:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise _no_row(f"it is not JSON: {error}", where) from error
    if not isinstance(found, dict):
        raise _no_row("it is not a JSON object", where)
    lacking = [name for name in ("completed", "duration", "output_throughput") if _number(found.get(name)) is None]
    if lacking:
        raise _no_row(f"it has no number for {', '.join(lacking)}", where)
    figures = {name: _number(found.get(name)) for name in SERVING_FIGURES}
    more = {name: _plain(value) for name, value in found.items() if name not in figures and name != _LEFT_OUT}
    return ServingRow(figures, more)


def _number(value: object) -> float | None:
    """None also for the NaN that numpy makes of no requests."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _no_row(why: str, where: str) -> InputError:
    return InputError(f"this is no row of bench_serving: {why}", where=where, hint="see its output beside it")
