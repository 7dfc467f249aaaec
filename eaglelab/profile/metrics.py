"""The server's `/metrics`: Prometheus' text format, the gauges and counters by name."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Metric", "parse_metrics"]

_LINE = re.compile(
    r"(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>(?:[^\"}]|\"(?:[^\"\\]|\\.)*\")*)\})?[ \t]+(?P<value>\S+)(?:[ \t]+-?\d+)?\s*"
)
_LABEL = re.compile(r"([a-zA-Z_]\w*)\s*=\s*\"((?:[^\"\\]|\\.)*)\"")
_ESCAPE = re.compile(r"\\(.)")


@dataclass(frozen=True)
class Metric:
    """One sample of a metric: its labels and its value."""

    labels: Mapping[str, str]
    value: float


def parse_metrics(text: str) -> dict[str, list[Metric]]:
    """Every sample by metric name; comments, and lines that are none, are passed over, and so is NaN (no value yet)."""
    found: dict[str, list[Metric]] = {}
    for line in text.splitlines():
        match = None if line.startswith("#") else _LINE.fullmatch(line.strip())
        value = _number(match["value"]) if match else None
        if match is None or value is None:
            continue
        labels = {name: _ESCAPE.sub(_unescape, told) for name, told in _LABEL.findall(match["labels"] or "")}
        found.setdefault(match["name"], []).append(Metric(labels, value))
    return found


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return None if math.isnan(value) else value


def _unescape(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]
