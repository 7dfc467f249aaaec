"""What one pass over a server log finds: our records and blocks, SGLang's decode lines, how the server was started."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

from eaglelab.profile.block_reader import BlockReader, BlockText
from eaglelab.profile.blocks import Block
from eaglelab.profile.decode_groups import DecodeGroup, DecodeGroups
from eaglelab.profile.decode_lines import Canary, parse_canary, parse_decode_line, strip_ansi
from eaglelab.profile.records import Records
from eaglelab.profile.server_args import parse_server_args, parse_version
from eaglelab.profile.summary import Profile, summarise

__all__ = ["KEPT_BLOCKS", "LogCollector", "LogReport"]

KEPT_BLOCKS = 1_000
_REPORT_SCHEMA = 1
# What the lab's stand-in writes into its log, so that its figures are never taken for those of hardware.
_SIMULATED = "simulated GPU"
_PROBE = "EAGLE3_PROF probe"


@dataclass(frozen=True)
class LogReport:
    """A server log, read.

    `blocks` are the newest `KEPT_BLOCKS` of `block_count`. `server_starts` holds the ServerArgs of each start, in
    order. `simulated` is the label of a simulated GPU where the log names one. `decode_after_idle` of `decode_lines`
    were left out because idle time is in their throughput. `profile` is there when the log holds the probe's JSON lines.
    """

    lines: int
    simulated: str | None
    sglang: str | None
    server_starts: tuple[dict[str, str], ...]
    canaries: tuple[Canary, ...]
    blocks: tuple[Block, ...]
    block_count: int
    decode: tuple[DecodeGroup, ...]
    decode_lines: int
    decode_after_idle: int
    profile: Profile | None
    problems: tuple[str, ...]

    @property
    def empty(self) -> bool:
        """Whether nothing was found that says anything about speed."""
        return not (self.blocks or self.decode_lines or self.canaries or self.profile)

    def to_json(self) -> dict[str, Any]:
        """`report --log F --json`, schema 1: see docs/reading-a-report.md."""
        return {
            "kind": "eaglelab-log-report",
            "schema": _REPORT_SCHEMA,
            "lines": self.lines,
            "simulated": self.simulated,
            "sglang": self.sglang,
            "server_starts": [dict(args) for args in self.server_starts],
            "probe": [asdict(canary) for canary in self.canaries],
            "block_count": self.block_count,
            "blocks": [block.to_json() for block in self.blocks],
            "decode": {
                "lines": self.decode_lines,
                "left_out_after_idle": self.decode_after_idle,
                "groups": [group.to_json() for group in self.decode],
            },
            "profile": None if self.profile is None else self.profile.to_json(),
            "problems": list(self.problems),
        }


class LogCollector:
    """Takes the lines of a log one at a time. Memory does not grow with the log, but for the probe's JSON lines."""

    def __init__(self) -> None:
        self._lines = 0
        self._simulated: str | None = None
        self._sglang: str | None = None
        self._starts: list[dict[str, str]] = []
        self._canaries: dict[Canary, None] = {}
        self._reader = BlockReader()
        self._blocks: deque[Block] = deque(maxlen=KEPT_BLOCKS)
        self._block_count = 0
        self._decode = DecodeGroups()
        self._records = Records()
        self._problems: list[str] = []

    def feed(self, raw: bytes | str) -> None:
        """Take one line; bytes that are not UTF-8 are replaced."""
        line = raw.decode("utf-8", errors="replace") if isinstance(raw, bytes) else raw
        self._lines += 1
        if line.startswith("{") and '"schema"' in line:
            self._records.add(line, self._lines)
            return
        line = strip_ansi(line)
        if _SIMULATED in line:
            self._simulated = _SIMULATED
        self._keep(self._reader.feed(line, self._lines))
        decoded = parse_decode_line(line)
        if decoded is not None:
            self._decode.add(decoded)
        elif "Prefill batch" in line:
            self._decode.prefill(line)
        elif _PROBE in line:
            self._probe(line)
        elif "sglang" in line or "server_args=" in line:
            self._server(line)

    def problem(self, what: str) -> None:
        """Note something that kept the log from being read whole."""
        self._problems.append(what)

    def report(self) -> LogReport:
        """Close the open blocks and sum up."""
        self._keep(self._reader.finish())
        profile = (
            summarise(self._records, simulated=self._simulated)
            if self._records.blocks or self._records.starts
            else None
        )
        problems = [str(problem) for problem in self._records.problems] if profile is None else []
        return LogReport(
            lines=self._lines,
            simulated=self._simulated,
            sglang=self._sglang,
            server_starts=tuple(self._starts),
            canaries=tuple(self._canaries),
            blocks=tuple(sorted(self._blocks, key=lambda block: block.text.line)),
            block_count=self._block_count,
            decode=self._decode.groups(),
            decode_lines=self._decode.lines,
            decode_after_idle=self._decode.after_idle,
            profile=profile,
            problems=(*self._problems, *problems),
        )

    def _keep(self, found: list[BlockText]) -> None:
        self._block_count += len(found)
        self._blocks.extend(Block(text) for text in found)

    def _probe(self, line: str) -> None:
        canary = parse_canary(line)
        if canary is not None:
            self._canaries[canary] = None
            self._sglang = canary.sglang
        elif f"{_PROBE} off" in line:
            self.problem(f"line {self._lines}: {line[line.index(_PROBE) :].strip()}")

    def _server(self, line: str) -> None:
        args = parse_server_args(line)
        if args is not None:
            self._starts.append(args)
            self._decode.server_started()
        self._sglang = parse_version(line) or self._sglang
