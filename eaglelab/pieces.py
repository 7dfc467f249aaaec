"""A stream of bytes in pieces that can be masked, or read as lines, one by one: no line of any length fills the memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from eaglelab.masking import MASK, Masker

__all__ = ["LONGEST_LINE", "lines_of", "maskable"]

LONGEST_LINE = 1 << 16
_PIECE = 1 << 18
_AHEAD = 1 << 16
"""So far (bytes) is looked past a cut for the end of what began before it. Known secrets may be longer: `Masker.longest`."""


def maskable(blocks: Iterable[bytes], masker: Masker) -> Iterator[bytes]:
    """The same bytes, in pieces that give the same masked one by one as all at once. A piece is whole lines where it can be.

    A line that is too long for that is cut between its secrets. Where one is so long that no such place is found, that
    line is left out from there on or shortly before, and the mask stands for it.
    """
    rest, hidden = b"", False
    ahead = max(_AHEAD, masker.longest)
    most = max(_PIECE, 2 * ahead) + ahead
    for block in _slices(blocks, _PIECE):
        if hidden:
            _, newline, tail = block.partition(b"\n")
            rest, hidden = newline + tail, not newline
        else:
            rest += block
        whole, newline, rest = rest.rpartition(b"\n")
        if newline:
            yield whole + newline
        while len(rest) >= most:
            cut = _cut(rest, len(rest) - ahead, masker)
            if not cut:
                yield MASK.encode()
                rest, hidden = b"", True
                break
            yield rest[:cut]
            rest = rest[cut:]
    if rest:
        yield rest


def _cut(line: bytes, latest: int, masker: Masker) -> int:
    """Where `line` may be cut, at `latest` or before it: masking either side alone changes nothing. 0: nowhere."""
    masked = _masked(line, masker)
    if masked == line:
        return latest
    # Places ever farther apart: most secrets are short, and in what repeats itself no two places are alike.
    cut, step = latest, 0
    while cut > 0:
        left = _masked(line[:cut], masker)
        if masked.startswith(left) and masked == left + _masked(line[cut:], masker):
            return cut
        step += 61
        cut -= step
    return 0


def _masked(data: bytes, masker: Masker) -> bytes:
    return masker.text(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def lines_of(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of a stream with their newlines; the last may lack it. One of `LONGEST_LINE` and more comes in parts.

    It is cut where other text begins, after what a progress bar or a hole of NULs leaves, if there is such a place.
    """
    rest = b""
    for block in _slices(blocks, LONGEST_LINE):
        *whole, rest = (rest + block).split(b"\n")
        for line in whole:
            yield line + b"\n"
        while len(rest) >= LONGEST_LINE:
            cut = max(rest.rfind(b"\0"), rest.rfind(b"\r")) + 1 or LONGEST_LINE
            yield rest[:cut]
            rest = rest[cut:]
    if rest:
        yield rest


def _slices(blocks: Iterable[bytes], size: int) -> Iterator[bytes]:
    return (block[at : at + size] for block in blocks for at in range(0, len(block), size))
