"""Finds in a chunk what a collector wants of it, without knowing what came before: so chunks can be searched side by side."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from eaglelab.profile.block_scan import REGULAR_LINES, regular_span
from eaglelab.profile.chunk_lines import ChunkLines, Ints, numbers_at
from eaglelab.profile.decode_rows import Rows, narrow
from eaglelab.profile.decode_scan import DecodeScan, word_offsets
from eaglelab.profile.needles import Kind, Places, places_in
from eaglelab.profile.tool_lines import MOST_DIGITS, TOKENS_WORD, VERIFIES_WORD, printed_in

__all__ = ["ChunkScan", "Found"]

# Looked up for all lines at once; they make no line be looked at by itself.
_ASIDE = (Kind.TOOL, Kind.VERIFIES, Kind.TOKENS, Kind.NO_GRAPH)


@dataclass(frozen=True)
class Found:
    """What is in a chunk of `lines` lines, which are numbered from 0; text is told by its first byte and the one behind.

    `rows` are its decode lines, narrow, and `row_starts` where they begin. `wanted` are the lines to be looked at,
    in order, with `spans` and `texts`; a line whose `block` is not None begins a block of the usual shape with nothing else
    in it, which stands there and has `REGULAR_LINES` lines, and has no text. `printed` and `requests` are for `ToolLines`.
    `text` holds the chunk, or None where it can be read again, which is seldom needed.
    """

    lines: int
    rows: Rows
    row_starts: Ints
    wanted: list[int]
    spans: list[tuple[int, int]]
    texts: list[bytes | None]
    blocks: list[tuple[int, int] | None]
    printed: list[tuple[str, float]]
    requests: tuple[int, int, int]
    text: bytes | None


class ChunkScan:
    """Searches one chunk after the other; what it remembers makes it faster and changes nothing."""

    def __init__(self) -> None:
        self._decode = DecodeScan()

    def find(self, chunk: bytes, *, again: bool = False) -> Found:
        """Search whole lines. `again` says that the chunk can be read once more, so it need not be kept."""
        lines = ChunkLines(chunk)
        free = self._decode.known(lines)
        # Two searches cost less than one that stops in every line.
        few = 2 * len(free) < len(lines)
        places = places_in(lines.chunk, decode=not few)
        offsets = np.array(word_offsets(lines, free), np.int64) if few else places.of(Kind.DECODE)
        rest = free[lines.with_any(offsets)[free]]
        rows, irregular = self._decode.find(lines, rest)
        eager = lines.with_any(places.of(Kind.NO_GRAPH))[rows.line].astype(np.int64)
        others = lines.with_any(places.but(*_ASIDE, Kind.DECODE))
        wanted = np.flatnonzero(others | lines.marked(irregular))
        blocks = _blocks(lines, places, wanted)
        spans = list(zip(lines.bounds[wanted].tolist(), lines.bounds[wanted + 1].tolist(), strict=True))
        return Found(
            lines=len(lines),
            rows=replace(rows, eager=eager).narrow(),
            row_starts=narrow(lines.bounds[rows.line]),
            wanted=wanted.tolist(),
            spans=spans,
            texts=[
                lines.chunk[slice(*span)] if block is None else None for span, block in zip(spans, blocks, strict=True)
            ],
            blocks=blocks,
            printed=_printed(lines, places),
            requests=_requests(lines, places),
            text=None if again and not lines.cut else lines.chunk,
        )


def _blocks(lines: ChunkLines, places: Places, wanted: Ints) -> list[tuple[int, int] | None]:
    """Where the usual blocks stand, for each of the wanted lines."""
    alone = lines.with_any(places.of(Kind.BLOCK)) & ~lines.with_any(places.but(*_ASIDE, Kind.DECODE, Kind.BLOCK))
    good = alone[wanted] & (np.diff(wanted, append=len(lines)) >= REGULAR_LINES)
    starts = lines.bounds[wanted].tolist()
    ends = lines.bounds[np.minimum(wanted + REGULAR_LINES, len(lines))].tolist()
    each = zip(good.tolist(), starts, ends, strict=True)
    return [regular_span(lines.chunk, start, end) if may else None for may, start, end in each]


def _printed(lines: ChunkLines, places: Places) -> list[tuple[str, float]]:
    """The accept lengths of other programs."""
    told = np.unique(lines.of(places.of(Kind.TOOL))).tolist()
    return [figure for line in told for figure in printed_in(lines.raw(line))]


def _requests(lines: ChunkLines, places: Places) -> tuple[int, int, int]:
    """The sums of what `request_in` gives of each line."""
    verifies, tokens = (_last(lines, places, kind) for kind in (Kind.VERIFIES, Kind.TOKENS))
    _, ours, theirs = np.intersect1d(lines.of(verifies), lines.of(tokens), assume_unique=True, return_indices=True)
    verified, _ = numbers_at(lines.text, verifies[ours] + len(VERIFIES_WORD), MOST_DIGITS)
    counted, _ = numbers_at(lines.text, tokens[theirs] + len(TOKENS_WORD), MOST_DIGITS)
    good = (verified > 0) & (counted > 1)
    return int(good.sum()), int((counted[good] - 1).sum()), int(verified[good].sum())


def _last(lines: ChunkLines, places: Places, kind: Kind) -> Ints:
    """The last place of a word in each of the lines that have it."""
    offsets = places.of(kind)
    last: Ints = offsets[np.diff(lines.of(offsets), append=-1) != 0]
    return last
