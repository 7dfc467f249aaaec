"""What SGLang's log says a starting server is doing, and what killed it, for every release.

The wording is that of the releases 0.4.1 to 0.5.23; a line that changed over time is met by what stayed the same.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field

__all__ = ["Death", "LoadLog"]

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_SHARDS = re.compile(r"(?:shards|loader):\s*\d+%[^|]*\|(?:[^|]*\|)?\s*(\d+)/(\d+)\b")
_EXCEPTION = re.compile(r"(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Interrupt)(?::.*)?$")
"""The last line of a traceback."""

_PHASES = tuple(
    (re.compile(sign, re.I), phase)
    for sign, phase in (
        (r"Init torch distributed begin", "joining the GPUs"),
        (r"Load weight begin", "loading weights"),
        (r"Load weight end", "setting up memory"),
        (r"Capture .*draft extend.*graph begin", "capturing draft-extend graphs"),
        (r"Capture .*draft.*graph begin", "capturing draft graphs"),
        (r"Capture .*graph begin", "capturing CUDA graphs"),
        (r"Built adaptive runtime state", "building a state for each step count"),
        (r"\bmax_total_num_tokens=", "starting to serve"),
        (r"Uvicorn running on", "warming up"),
        (r"The server is fired up and ready to roll!", "ready"),
    )
)
"""The first that fits a line is its phase."""

_CAUSES = (
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
        re.compile(r"NCCL error.*invalid usage|ncclInvalidUsage"),
        "NCCL does not take what it was told",
        "correct the NCCL_ variables in `server.env` (NCCL_ALGO, NCCL_PROTO; docs/sweeps.md), or see that no two ranks share a GPU; "
        "with NCCL_DEBUG: WARN there the log says which it is",
    ),
    (
        re.compile(r"shared logits buffer holds \d+ rows but caller needs \d+"),
        "its graphs for several step counts have no room",
        "SGLang 0.5.15 to 0.5.18 must be started with the largest count of its speculative-adaptive-config: "
        "`server.speculative.num_steps` in inventory.yaml",
    ),
    (
        re.compile(r"address already in use", re.I),
        "the port is taken",
        "choose another `server.port` in inventory.yaml (`server.dist_init_port`, if it is the one where nodes meet)",
    ),
    (
        re.compile(r"launch_server(?:\.py)?: error: "),
        "SGLang does not take this command line",
        "check `server.flags` in inventory.yaml against this release",
    ),
    (
        re.compile(r"Capture .*graph failed", re.I),
        "CUDA graphs could not be captured",
        "what failed stands behind `failed:`; if it is memory, lower cuda-graph-max-bs or mem-fraction-static in `server.flags`",
    ),
)
"""What is known to end a server, wherever in the log it stands. The first in this order is the root: a capture
that failed did so of whatever stands before it here."""

_SIGNS = tuple(
    (re.compile(sign), what, traceback_follows)
    for sign, what, traceback_follows in (
        (r"(?:Scheduler|Manager|Controller|Router) hit an exception", "a process of the server failed", True),
        (r"Initialization failed\. warmup error", "the server's own warm-up failed", True),
        (r"Received sigquit from a child proces|SIGQUIT received\.", "a process of the server failed", False),
        (r"Initialization failed|scheduler is dead|scheduler died during init", "it failed while it started", False),
        (r"Subprocess .* crashed with exit code", "a process of the server crashed", False),
        # A soft watchdog only reports; the server goes on.
        (
            r"atchdog timeout(?!.*soft=True)",
            "its watchdog fired: it hung, often in wait for a rank that is lost",
            False,
        ),
    )
)
"""What SGLang prints when a part of it has died, and the rest is about to."""

_MISSING = re.compile(r"(?:ModuleNotFound|Import)Error: ")
_READ = "the whole traceback is in its log"


@dataclass(frozen=True)
class Death:
    """Why a server died: `what` in words, the log's `line`, what to try."""

    what: str
    line: str
    hint: str


@dataclass
class LoadLog:
    """Reads a server's log piece by piece while it starts.

    `phase` is the newest, `shards` (done, all) of the weights that load, `last` the last lines. `failing` is set once
    the log says that a part of the server has died: many harmless lines look like errors, that one does not.
    """

    keep: int = 30
    phase: str = "starting"
    shards: tuple[int, int] | None = None
    failing: bool = False
    last: deque[str] = field(default_factory=deque)
    _causes: dict[int, str] = field(default_factory=dict)
    _sign: tuple[str, str] | None = None
    _exception: str | None = None
    _settled: bool = False
    _rest: bytes = b""

    def feed(self, data: bytes) -> None:
        """Takes the next bytes; a line that is not complete yet waits for its rest.

        Of a line that redraws itself (a progress bar) only its last state counts.
        """
        *lines, rest = (self._rest + data).split(b"\n")
        for raw in lines:
            self._line(_text(raw.rstrip(b"\r").rpartition(b"\r")[2]))
        self._rest = rest[-65536:]
        self._progress(_text(rest))

    def close(self) -> None:
        """Takes what is left as a last line: a dying server may not end it."""
        self.feed(b"\n")

    @property
    def death(self) -> Death | None:
        """The most telling sign of death seen so far: a known cause, else the exception, else that a part died."""
        if self._causes:
            rank = min(self._causes)
            _, what, hint = _CAUSES[rank]
            return Death(what, self._causes[rank], hint)
        if self._exception is not None and (self._settled or self._exception in self.last):
            if _MISSING.match(self._exception):
                hint = "install it into the Python of `python` in inventory.yaml"
                return Death("a Python package is missing there", self._exception, hint)
            return Death(self._sign[0] if self._sign else "it failed", self._exception, _READ)
        return Death(*self._sign, _READ) if self._sign else None

    def _line(self, line: str) -> None:
        if not line:
            return
        self.last.append(line)
        if len(self.last) > self.keep:
            self.last.popleft()
        self._progress(line)
        for sign, phase in _PHASES:
            if sign.search(line):
                self.phase = phase
                self.shards = None
                break
        if not line.startswith("    "):  # else it is a line of source in a traceback, which may hold the same words
            for rank, (pattern, _, _) in enumerate(_CAUSES):
                if rank not in self._causes and pattern.search(line):
                    self._causes[rank] = line
        self._look_for_failure(line)

    def _progress(self, text: str) -> None:
        for found in _SHARDS.finditer(text):
            self.shards = int(found[1]), int(found[2])

    def _look_for_failure(self, line: str) -> None:
        """Keeps the exception that the first sign is about; those after it are other processes falling over.

        Where no traceback follows the sign, it is about the one just before it, if any.
        """
        for pattern, what, traceback_follows in _SIGNS:
            if self._sign is None and pattern.search(line):
                self._sign, self.failing = (what, line), True
                self._settled = not traceback_follows and self._exception in self.last
                if not self._settled:
                    self._exception = None
        if not self._settled and _EXCEPTION.match(line):
            self._exception, self._settled = line, self.failing


def _text(raw: bytes) -> str:
    return _ANSI.sub("", raw.decode(errors="replace")).rstrip()
