"""SGLang's own `Decode batch` lines, of any release, and the probe's canary line.

The fields differ between releases and set-ups, so a line is found by its anchor and then read as `key: value` pairs:
unknown keys are passed over, missing ones stay None.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

__all__ = [
    "NO_GRAPH",
    "Canary",
    "DecodeLine",
    "anchor_of",
    "clock",
    "decode_figures",
    "is_decode_line",
    "parse_canary",
    "parse_decode_line",
    "strip_ansi",
    "time_spans",
]

NO_GRAPH = b"graph: False"
"""What a line has that says that its cycles ran without a graph."""

_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_ANCHOR = re.compile(r"Decode batch(?: \[(?P<iteration>\d{1,15})\])?[.,]")
_THROUGHPUT = "gen throughput (token/s)"
_PAIR = re.compile(r"(?P<key>[^\s:,…][^:,…]{0,60}):\s*(?P<value>[^\s,…\"'}]+)")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?")
_RAW_THROUGHPUT = _THROUGHPUT.encode()
_USUAL = re.compile(
    rb", accept len: (?P<accepted>\d{1,15}\.\d{1,15}), [ -~]*, gen throughput \(token/s\): (?P<throughput>\d{1,15}\.\d{1,15}),"
)
_RAW_ANCHOR = re.compile(_ANCHOR.pattern.encode())
_RAW_TIME = re.compile(_TIME.pattern.encode())
_RANK = re.compile(r"(?:^|[\s\[])(?P<kind>DP|TP)(?P<rank>\d{1,9})(?=[\s\]])")
_CANARY = re.compile(
    r"EAGLE3_PROF probe (?P<probe>\S+) active: class=(?P<worker>\S+) rank=(?P<rank>\d{1,9})/(?P<world>\d{1,9}) "
    r"sglang=(?P<sglang>\S+) clock=(?P<clock>\S+)"
)


@dataclass(frozen=True)
class DecodeLine:
    """What one `Decode batch` line says; None for what it does not say.

    `throughput` is output tokens per second of all running requests together, by wall clock since the line before it:
    prefill and idle time are inside. `accept_length` counts the bonus token in every release; None means that
    speculation is not active. `accept_rate` is kept as printed and is not comparable between releases or step counts.
    """

    time: str | None
    dp_rank: int | None
    tp_rank: int | None
    iteration: int | None
    running_requests: int | None
    queued_requests: int | None
    tokens: int | None
    token_usage: float | None
    accept_length: float | None
    accept_rate: float | None
    graph: bool | None
    graph_backend: str | None
    throughput: float | None

    @property
    def speculative(self) -> bool:
        """Whether speculation was active."""
        return self.accept_length is not None


@dataclass(frozen=True)
class Canary:
    """The probe's first line: it runs, in this class, on this rank."""

    probe: str
    worker: str
    rank: int
    world: int
    sglang: str
    clock: str


def parse_decode_line(line: str) -> DecodeLine | None:
    """Read one log line; None if it is no decode line. A fragment without its start is read by its throughput."""
    line = strip_ansi(line)
    if not is_decode_line(line):
        return None
    anchor = _ANCHOR.search(line)
    prefix, body = (line[: anchor.start()], line[anchor.end() :]) if anchor else ("", line)
    fields: dict[str, str] = {}
    for match in _PAIR.finditer(body):
        fields.setdefault(match["key"].strip(), match["value"])
    time = _last(_TIME.findall(prefix))
    ranks = {match["kind"]: int(match["rank"]) for match in _RANK.finditer(prefix)}
    backend = next((name for name in ("cuda", "npu", "cpu") if f"{name} graph" in fields), None)
    return DecodeLine(
        time=time,
        dp_rank=ranks.get("DP"),
        tp_rank=ranks.get("TP"),
        iteration=int(anchor["iteration"]) if anchor and anchor["iteration"] else None,
        running_requests=_int(fields.get("#running-req")),
        queued_requests=_int(fields.get("#queue-req")),
        tokens=_int(fields.get("#token", fields.get("#full token"))),
        token_usage=_float(fields.get("token usage", fields.get("full token usage"))),
        accept_length=_float(fields.get("accept len")),
        accept_rate=_float(fields.get("accept rate")),
        graph=None if backend is None else {"True": True, "False": False}.get(fields[f"{backend} graph"]),
        graph_backend=backend,
        throughput=_float(fields.get(_THROUGHPUT)),
    )


def decode_figures(raw: bytes) -> tuple[float | None, float | None]:
    """Throughput and accept length of a decode line, as `parse_decode_line` reads them; quick for lines of the usual shape."""
    usual = _USUAL.search(raw)
    if usual is not None and raw.count(b"accept len") == raw.count(_RAW_THROUGHPUT) == 1 and b"\x1b" not in raw:
        return float(usual["throughput"]), float(usual["accepted"])
    line = parse_decode_line(raw.decode("utf-8", errors="replace"))
    return (None, None) if line is None else (line.throughput, line.accept_length)


def is_decode_line(line: str) -> bool:
    """Whether `parse_decode_line` would read this line."""
    return _THROUGHPUT in line or _ANCHOR.search(line) is not None


def anchor_of(raw: bytes) -> re.Match[bytes] | None:
    """The words that make a decode line, with the group `iteration`, in a line's bytes."""
    return _RAW_ANCHOR.search(raw)


def time_spans(raw: bytes) -> list[tuple[int, int]]:
    """Where times stand in the bytes before the anchor; the last one is the line's."""
    return [match.span() for match in _RAW_TIME.finditer(raw)]


def clock(time: str | None) -> int | None:
    """Seconds since 1970 of a printed time, whose zone is unknown and taken for UTC; None if it is no time since then."""
    try:
        seconds = -1 if time is None else datetime.fromisoformat(f"{time[:19]}+00:00").timestamp()
    except ValueError:
        return None
    return int(seconds) if seconds >= 0 else None


def parse_canary(line: str) -> Canary | None:
    """Read the probe's canary line, whatever stands before it; None for any other line."""
    match = _CANARY.search(strip_ansi(line))
    if match is None:
        return None
    return Canary(
        probe=match["probe"],
        worker=match["worker"],
        rank=int(match["rank"]),
        world=int(match["world"]),
        sglang=match["sglang"],
        clock=match["clock"],
    )


def strip_ansi(line: str) -> str:
    """Without colour and cursor sequences."""
    return _ANSI.sub("", line) if "\x1b" in line else line


def _last(found: list[str]) -> str | None:
    return found[-1] if found else None


def _int(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"\d{1,15}", text) else None


def _float(text: str | None) -> float | None:
    """Digits only: `nan`, `inf` and cut-off values are not figures."""
    return float(text) if text is not None and re.fullmatch(r"\d{1,15}(\.\d+)?", text) else None
