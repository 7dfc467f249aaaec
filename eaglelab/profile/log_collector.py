"""Takes a server log in chunks or line by line and gathers what it says, in memory that does not grow with the log."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain

import numpy as np

from eaglelab.profile.block_reader import BlockReader, BlockText
from eaglelab.profile.block_scan import REGULAR_LINES, read_regular
from eaglelab.profile.blocks import Block
from eaglelab.profile.chunk_lines import ChunkLines
from eaglelab.profile.chunk_scan import ChunkScan, Found
from eaglelab.profile.decode_gather import DecodeGather, Line, Raw
from eaglelab.profile.decode_lines import Canary, parse_canary, parse_decode_line, strip_ansi
from eaglelab.profile.log_report import LogFile, LogReport
from eaglelab.profile.log_source import LONGEST_LINE
from eaglelab.profile.needles import Kind, kinds_in
from eaglelab.profile.notable import NotableLines
from eaglelab.profile.records import Records
from eaglelab.profile.server_args import parse_server_args, parse_version
from eaglelab.profile.summary import summarise
from eaglelab.profile.tool_lines import ToolLines, printed_in, request_in

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


@dataclass(frozen=True)
class _Standing:
    """A usual block of which only is known where in a file it stands (bytes), and the number of its first line."""

    number: int
    place: int
    size: int


_Kept = Block | tuple[int, bytes] | _Standing
"""A block: read, or the number of its first line with its text, or where it is to be read."""


class LogCollector:
    """Takes a log in order: by `feed` one line at a time, by `feed_chunk` many, or by `take` what was found in many.

    All give the same report.
    """

    def __init__(self) -> None:
        self._lines = 0
        self._files: list[LogFile] = []
        self._simulated: str | None = None
        self._sglang: str | None = None
        self._starts: list[dict[str, str]] = []
        self._canaries: dict[Canary, None] = {}
        self._reader = BlockReader()
        self._blocks: deque[_Kept] = deque(maxlen=KEPT_BLOCKS)
        self._block_count = 0
        self._decode = DecodeGather()
        self._scan = ChunkScan()
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
            self._print(printed_in(line))
        if Kind.VERIFIES in kinds:
            self._tools.finish(*request_in(line))
        self._take(line, kinds)

    def feed_chunk(self, chunk: bytes) -> None:
        """Take whole lines."""
        self.take(self._scan.find(chunk), lambda: chunk)

    def take(self, found: Found, chunk: Callable[[], bytes], place: int | None = None) -> None:
        """Take what was found in the next chunk of the log; `chunk` gives its text where `found` has none.

        It is asked for until `rest` or the next `take` is done. With `place`, where the chunk begins in a file, its blocks
        and most of its decode lines are read from there when all is taken, by what `rest` is given: few are left then.
        """
        before, text = self._lines, cache(lambda: chunk() if found.text is None else found.text)
        lines = cache(lambda: ChunkLines(text()))
        there = place if found.text is None else None
        self._decode.expect(found.rows.wide(before + 1), _raw(found, text, before + 1, there))
        self._print(found.printed)
        self._tools.finish(*found.requests)
        if self._reader.open:
            self._read_on(lines(), before)
        for first, span, line, block in zip(found.wanted, found.spans, found.texts, found.blocks, strict=True):
            if first < self._lines - before:
                continue
            if block is not None and not self._reader.open:
                self._block_count += 1
                self._blocks.append(_kept(before + first + 1, block, text, there))
                self._lines = before + first + REGULAR_LINES
                continue
            self._lines = before + first
            self._one(text()[slice(*span)] if line is None else line)
            if self._reader.open:
                self._read_on(lines(), before)
        self._lines = before + found.lines
        self._decode.settle(self._lines + 1)

    def rest(self, line_at: Callable[[int], bytes], text_at: Callable[[int, int], bytes]) -> None:
        """The text of what was taken so far is not there any more from here on.

        `line_at` gives the line at a place in the file, `text_at` so many bytes.
        """
        self._decode.keep(line_at)
        for at, kept in enumerate(self._blocks):
            if isinstance(kept, _Standing):
                self._blocks[at] = kept.number, text_at(kept.place, kept.size)

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

    def _read_on(self, lines: ChunkLines, before: int) -> None:
        """Take every line for as long as a block is open."""
        while self._reader.open and self._lines - before < len(lines):
            self._one(lines.raw(self._lines - before))

    def _one(self, raw: bytes) -> None:
        self._lines += 1
        self._take(raw, kinds_in(raw))

    def _print(self, printed: list[tuple[str, float]]) -> None:
        for source, accept_length in printed:
            self._tools.print(source, accept_length)

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


def _kept(number: int, block: tuple[int, int], text: Callable[[], bytes], place: int | None) -> _Kept:
    """A block of a chunk; `place` is where the chunk begins in a file that can be read once more."""
    start, end = block
    return (number, text()[start:end]) if place is None else _Standing(number, place + start, end - start)


def _raw(found: Found, text: Callable[[], bytes], first: int, place: int | None) -> Raw:
    """Gives decode lines by number, where the first line of the chunk has the number `first`, or their places."""

    def get(numbers: list[int]) -> Sequence[Line]:
        rows = np.searchsorted(found.rows.line, np.array(numbers, np.int64) - first)
        starts: list[int] = found.row_starts[rows].tolist()
        if place is not None:
            return [place + start for start in starts]
        chunk = text()
        return [chunk[start : chunk.find(b"\n", start) + 1 or None] for start in starts]

    return get


def _read(kept: _Kept) -> Iterator[Block]:
    """A block that was kept as text is read only now."""
    if isinstance(kept, Block):
        yield kept
    elif not isinstance(kept, _Standing):
        number, text = kept
        yield from map(Block, read_regular(text, number))
