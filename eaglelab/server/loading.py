"""What SGLang's log says a starting server is doing, and what killed it, for every release.

The lines are those that all releases from 0.4.1 on print (a few only from some release on).
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field

__all__ = ["Death", "LoadLog"]

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_SHARDS = re.compile(r"(?:safetensors|checkpoint)[^|]*shards:\s*(\d+)%[^|]*\|[^|]*\|\s*(\d+)/(\d+)", re.I)

_PHASES = (
    ("Load weight begin", "loading weights"),
    ("Load weight end", "setting up memory"),
    ("max_total_num_tokens=", "KV cache is ready"),
    ("Capture cuda graph begin", "capturing CUDA graphs"),
    ("Capture target verify", "capturing CUDA graphs"),
    ("Capture draft extend cuda graph begin", "capturing draft-extend graphs"),
    ("Capture draft cuda graph begin", "capturing draft graphs"),
    ("Capture draft decode CUDA graph begin", "capturing draft graphs"),
    ("Built adaptive runtime state", "building a state for each step count"),
    ("Uvicorn running on", "warming up"),
    ("The server is fired up and ready to roll!", "ready"),
)

_DEATHS = (
    (
        re.compile(r"CUDA out of memory|OutOfMemoryError"),
        "the GPU ran out of memory",
        "lower mem-fraction-static or cuda-graph-max-bs in `server.flags`; see who else uses the GPU",
    ),
    (
        re.compile(r"Not enough memory\. Please try to increase --mem-fraction-static"),
        "not enough GPU memory for the KV cache",
        "raise mem-fraction-static in `server.flags`; see who else uses the GPU",
    ),
    (
        re.compile(r"Capture cuda graph failed"),
        "CUDA graphs could not be captured",
        "lower cuda-graph-max-bs or mem-fraction-static in `server.flags`",
    ),
    (
        re.compile(r"address already in use", re.I),
        "the port is taken",
        "choose another `server.port` in inventory.yaml",
    ),
    (
        re.compile(r"launch_server(?:\.py)?: error: (.*)"),
        "SGLang does not take this command line",
        "check `server.flags` in inventory.yaml against this release",
    ),
    (
        re.compile(r"ModuleNotFoundError: (.*)|ImportError: (.*)"),
        "a Python package is missing there",
        "install it into the Python of `python` in inventory.yaml",
    ),
    (
        re.compile(r"(?:Scheduler|DetokenizerManager) hit an exception"),
        "a process of the server failed",
        "read the traceback in the log",
    ),
    (
        re.compile(r"Received sigquit from a child proces|SIGQUIT received\."),
        "a process of the server failed",
        "read the traceback in the log",
    ),
    (
        re.compile(r"Initialization failed|scheduler is dead|scheduler died during initialization"),
        "the scheduler failed while it started",
        "read the traceback in the log",
    ),
    (re.compile(r"Subprocess .* crashed with exit code"), "a process of the server crashed", "read the log"),
    (
        re.compile(r"atchdog timeout"),
        "the scheduler's watchdog fired: it hung",
        "read the log; a collective that waits for a lost rank is the usual reason",
    ),
)
"""First match in this order is named: what went wrong before what followed from it."""


@dataclass(frozen=True)
class Death:
    """Why a server died: `what` in words, the log's `line`, what to try."""

    what: str
    line: str
    hint: str


@dataclass
class LoadLog:
    """Reads a server's log piece by piece while it starts. `phase` is the newest, `last` the last lines."""

    keep: int = 30
    phase: str = "starting"
    shards: tuple[int, int] | None = None
    ready_line: bool = False
    last: deque[str] = field(default_factory=deque)
    _deaths: dict[int, Death] = field(default_factory=dict)
    _rest: bytes = b""

    def feed(self, data: bytes) -> None:
        """Takes the next bytes; a line that is not complete yet waits for its rest."""
        lines = (self._rest + data).replace(b"\r", b"\n").split(b"\n")
        self._rest = lines.pop()[-65536:]
        for raw in lines:
            self._line(_ANSI.sub("", raw.decode(errors="replace")).rstrip())

    def close(self) -> None:
        """Takes what is left as a last line: a dying server may not end it."""
        self.feed(b"\n")

    @property
    def death(self) -> Death | None:
        """The most telling sign of death seen so far."""
        return self._deaths[min(self._deaths)] if self._deaths else None

    def _line(self, line: str) -> None:
        if not line.strip():
            return
        self.last.append(line)
        if len(self.last) > self.keep:
            self.last.popleft()
        if found := _SHARDS.search(line):
            self.shards = int(found.group(2)), int(found.group(3))
        for sign, phase in _PHASES:
            if sign.lower() in line.lower():
                self.phase = phase
                self.ready_line = self.ready_line or phase == "ready"
        for rank, (pattern, what, hint) in enumerate(_DEATHS):
            if rank not in self._deaths and pattern.search(line):
                self._deaths[rank] = Death(what, line, hint)
