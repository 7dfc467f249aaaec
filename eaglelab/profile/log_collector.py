"""Takes a server log in chunks or line by line and gathers what it says, in memory that does not grow with the log."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

import numpy as np

from eaglelab.profile.block_reader import BlockReader, BlockText
from eaglelab.profile.block_scan import REGULAR_LINES, read_regular, regular_end
from eaglelab.profile.blocks import Block
from eaglelab.profile.chunk_lines import ChunkLines
from eaglelab.profile.decode_groups import DecodeGroups
from eaglelab.profile.decode_lines import Canary, parse_canary, parse_decode_line, strip_ansi
from eaglelab.profile.decode_scan import DecodeScan
from eaglelab.profile.log_report import LogFile, LogReport
from eaglelab.profile.log_source import LONGEST_LINE
from eaglelab.profile.needles import Kind, kinds_in, words_in
from eaglelab.profile.notable import NotableLines
from eaglelab.profile.records import Records
from eaglelab.profile.server_args import parse_server_args, parse_version
from eaglelab.profile.summary import summarise
from eaglelab.profile.tool_lines import ToolLines

__all__ = ["KEPT_BLOCKS", "KEPT_RECORDS", "KEPT_STARTS", "LogCollector"]

KEPT_BLOCKS = 1_000
KEPT_RECORDS = 1_000
KEPT_STARTS = 100
_KEPT_PROBLEMS = 100
_KEPT_CANARIES = 1_000
_LONGEST_TEXT = 300
# What the lab's stand-in writes into its log, so that its figures are never taken for those of hardware.
_SIMULATED = "simulated GPU"
_PROBE = "EAGLE3_PROF probe"
# In a chunk these are looked up for all lines at once, and make no line be taken by itself.
_ASIDE = (Kind.TOOL, Kind.REQUEST, Kind.NO_GRAPH)


class LogCollector:
    """Takes the lines of a log in order, by `feed` one at a time or by `feed_chunk` many; both give the same report."""

    def __init__(self) -> None:
        self._lines = 0
        self._files: list[LogFile] = []
        self._simulated: str | None = None
        self._sglang: str | None = None
        self._starts: list[dict[str, str]] = []
        self._canaries: dict[Canary, None] = {}
        self._reader = BlockReader()
        self._blocks: deque[Block | tuple[int, bytes]] = deque(maxlen=KEPT_BLOCKS)
        self._block_count = 0
        self._decode = DecodeGroups()
        self._scan = DecodeScan()
        self._records = Records(limit=KEPT_RECORDS)
        self._notable = NotableLines()
        self._tools = ToolLines()
        self._problems: list[str] = []

    def begin(self, name: str) -> None:
        """The lines from here on are those of the file `name`."""
        self._end_file()
        self._files.append(LogFile(name, self._lines + 1, 0))

    def feed(self, raw: bytes | str) -> None:
        """Take one line; bytes that are not UTF-8 are replaced."""
        self._lines += 1
        line = (raw.encode("utf-8", errors="replace") if isinstance(raw, str) else raw)[:LONGEST_LINE]
        kinds = kinds_in(line)
        if Kind.TOOL in kinds:
            self._tools.take(line)
        if Kind.REQUEST in kinds:
            self._tools.take_request(line)
        self._take(line, kinds)

    def feed_chunk(self, chunk: bytes) -> None:
        """Take whole lines. Only those with a word of interest are looked at; decode lines are taken many at a time."""
        before, lines = self._lines, ChunkLines(chunk)
        rows, irregular = self._scan.find(lines)
        words = words_in(chunk)
        eager = lines.of([start for start, kind in words if kind is Kind.NO_GRAPH])
        rows = replace(rows, line=rows.line + before + 1, eager=np.isin(rows.line, eager).astype(np.int64))
        self._decode.expect(rows, lambda numbers: lines.many(numbers, before + 1))
        for number in lines.of([start for start, kind in words if kind is Kind.TOOL]).tolist():
            self._tools.take(lines.raw(number)[:LONGEST_LINE])
        for number in lines.of([start for start, kind in words if kind is Kind.REQUEST]).tolist():
            self._tools.take_request(lines.raw(number)[:LONGEST_LINE])
        others = lines.of([start for start, kind in words if kind not in _ASIDE])
        wanted = np.union1d(others, irregular).tolist()
        wanted = [0, *wanted] if self._reader.open else wanted
        line = 0  # so many are behind us
        for found, following in zip(wanted, [*wanted, len(lines)][1:], strict=True):
            if found < line:
                continue
            line = found
            if following >= line + REGULAR_LINES and self._take_regular(lines, line, before + line + 1):
                line += REGULAR_LINES
                continue
            while line == found or (line < len(lines) and self._reader.open):
                raw = lines.raw(line)[:LONGEST_LINE]
                line += 1
                self._lines = before + line
                self._take(raw, kinds_in(raw))
        self._lines = before + len(lines)
        self._decode.settle(self._lines + 1)

    def problem(self, what: str) -> None:
        """Note something that kept the log from being read whole."""
        if len(self._problems) < _KEPT_PROBLEMS:
            self._problems.append(what)

    def report(self) -> LogReport:
        """Close the open blocks and sum up."""
        self._keep(self._reader.finish())
        self._decode.settle(self._lines + 1)
        self._end_file()
        records = self._records
        profile = summarise(records, simulated=self._simulated) if records.blocks or records.starts else None
        told = [] if profile is not None else records.told()
        if self._decode.passed_over:
            told.append(f"{self._decode.passed_over} decode lines of too many different numbers of running requests")
        return LogReport(
            lines=self._lines,
            simulated=self._simulated,
            sglang=self._sglang,
            server_starts=tuple(self._starts),
            canaries=tuple(self._canaries),
            blocks=tuple(sorted(chain.from_iterable(map(_read, self._blocks)), key=lambda block: block.text.line)),
            block_count=self._block_count,
            decode=self._decode.groups(),
            decode_lines=self._decode.lines,
            decode_after_idle=self._decode.after_idle,
            profile=profile,
            problems=(*self._problems, *told),
            notable=self._notable.lines(),
            tools=self._tools.figures(),
            files=tuple(self._files),
        )

    def _take_regular(self, lines: ChunkLines, line: int, number: int) -> bool:
        """Pass over a block of the probe's in one step, if there is one and nothing else in it."""
        start = int(lines.bounds[line])
        end = -1 if self._reader.open else regular_end(lines.chunk, start, int(lines.bounds[line + 1]))
        if end < 0:
            return False
        self._block_count += 1
        self._blocks.append((number, lines.chunk[start:end]))
        return True

    def _take(self, raw: bytes, kinds: list[Kind]) -> None:
        if not kinds and not self._reader.open:
            return
        if Kind.RECORD in kinds and raw.startswith(b"{"):
            self._records.add(raw.decode("utf-8", errors="replace"), self._lines)
            return
        line = strip_ansi(raw.decode("utf-8", errors="replace"))
        if Kind.NOTABLE in kinds:
            self._notable.take(line, self._lines, self._decode.start)
        if Kind.SIMULATED in kinds:
            self._simulated = _SIMULATED
        if Kind.BLOCK in kinds or self._reader.open:
            self._keep(self._reader.feed(line, self._lines))
        decoded = parse_decode_line(line) if Kind.DECODE in kinds else None
        if decoded is not None:
            self._decode.add(decoded, raw, self._lines)
        elif Kind.IDLE_PREFILL in kinds:
            self._decode.prefill(line, self._lines)
        elif Kind.BLOCK in kinds:
            self._probe(line)
        elif Kind.SERVER in kinds:
            self._server(line)

    def _end_file(self) -> None:
        if self._files:
            last = self._files[-1]
            self._files[-1] = replace(last, lines=self._lines - last.first_line + 1)

    def _keep(self, found: list[BlockText]) -> None:
        self._block_count += len(found)
        self._blocks.extend(Block(text) for text in found)

    def _probe(self, line: str) -> None:
        canary = parse_canary(line)
        if canary is not None:
            if len(self._canaries) < _KEPT_CANARIES:
                self._canaries[canary] = None
            self._sglang = canary.sglang
        elif f"{_PROBE} off" in line:
            self.problem(f"line {self._lines}: {line[line.index(_PROBE) :].strip()[:_LONGEST_TEXT]}")

    def _server(self, line: str) -> None:
        args = parse_server_args(line)
        if args is not None:
            if len(self._starts) < KEPT_STARTS:
                self._starts.append(args)
            self._decode.server_started(self._lines)
        self._sglang = parse_version(line) or self._sglang


def _read(kept: Block | tuple[int, bytes]) -> Iterator[Block]:
    """A block that was kept as text is read only now."""
    if isinstance(kept, Block):
        yield kept
    else:
        number, text = kept
        yield from map(Block, read_regular(text, number))
