"""What one pass over a server log finds: our records and blocks, SGLang's decode lines, how the server was started."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from eaglelab.profile.blocks import Block
from eaglelab.profile.decode_groups import DecodeGroup
from eaglelab.profile.decode_lines import Canary
from eaglelab.profile.notable import NotableLine
from eaglelab.profile.summary import Profile
from eaglelab.profile.tool_lines import ToolFigure

__all__ = ["LogFile", "LogReport"]

_REPORT_SCHEMA = 1


@dataclass(frozen=True)
class LogFile:
    """One of the files that were read as one log: its lines are `first_line` to `first_line + lines - 1`."""

    name: str
    first_line: int
    lines: int


@dataclass(frozen=True)
class LogReport:
    """A server log, read. Lines are counted from 1, on from file to file.

    `blocks` are the newest of `block_count`. `server_starts` holds the ServerArgs of each start, in
    order. `simulated` is the label of a simulated GPU where the log names one. `decode_after_idle` of `decode_lines`
    were left out because idle time is in their throughput. `profile` is there when the log holds the probe's JSON lines.
    `notable` are lines that explain a slow server; `tools` what other programs printed of accept lengths.
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
    notable: tuple[NotableLine, ...] = ()
    tools: tuple[ToolFigure, ...] = ()
    files: tuple[LogFile, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether nothing was found that says anything about speed."""
        return not (self.blocks or self.decode_lines or self.canaries or self.profile or self.tools)

    def to_json(self) -> dict[str, Any]:
        """`report --log F --json`, schema 1: see docs/reading-a-report.md."""
        return {
            "kind": "eaglelab-log-report",
            "schema": _REPORT_SCHEMA,
            "lines": self.lines,
            "files": [asdict(file) for file in self.files],
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
            "notable": [line.to_json() for line in self.notable],
            "tools": [figure.to_json() for figure in self.tools],
            "profile": None if self.profile is None else self.profile.to_json(),
            "problems": list(self.problems),
        }
