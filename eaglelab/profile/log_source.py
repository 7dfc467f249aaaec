"""The bytes of a server log as chunks of whole lines, whatever it is packed in: plain, gzip or zstd, a file or a stream."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import BinaryIO

from eaglelab.errors import InputError

__all__ = ["LONGEST_LINE", "DamagedLogError", "chunks", "is_packed", "whole_lines"]

LONGEST_LINE = 1 << 20
"""Of a longer line only this many bytes are read: no log can fill the memory with one line."""

_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_CHUNK = 1 << 21
# Zstandard gives all that a piece unpacks to at once: small pieces bound it.
_PACKED = 1 << 14
_GZIP_WINDOW = 31


class DamagedLogError(ValueError):
    """The packed log ends too early or is corrupt; what came before was given."""


def chunks(stream: BinaryIO) -> Iterator[bytes]:
    """The unpacked content in chunks of some MiB that end with a line.

    How it is packed is known by its first bytes. Raises DamagedLogError after the last good chunk.
    """
    pieces = _pieces(stream)
    first = next(pieces, b"")
    if first.startswith(_GZIP_MAGIC):
        unpacked = _gunzip(_small(first, pieces))
    elif first.startswith(_ZSTD_MAGIC):
        unpacked = _unzstd(_small(first, pieces))
    else:
        unpacked = _then(first, pieces)
    return whole_lines(unpacked)


def is_packed(first: bytes) -> bool:
    """Whether content that begins with these four bytes or more is packed."""
    return first.startswith((_GZIP_MAGIC, _ZSTD_MAGIC))


def whole_lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Cut pieces of a text at their last newline. An error of `pieces` is raised once what came before has been given."""
    rest = b""
    try:
        for piece in pieces:
            cut = piece.rfind(b"\n") + 1
            if cut:
                yield rest + piece[:cut]
                rest = piece[cut:][:LONGEST_LINE]
            else:
                rest = (rest + piece)[:LONGEST_LINE]
    except DamagedLogError:
        if rest:
            yield rest
        raise
    if rest:
        yield rest


def _pieces(stream: BinaryIO) -> Iterator[bytes]:
    """A pipe gives what it has; fewer bytes than a magic number are waited for."""
    while piece := stream.read(_CHUNK):
        yield piece


def _then(first: bytes, pieces: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from pieces


def _small(first: bytes, pieces: Iterator[bytes]) -> Iterator[bytes]:
    for piece in _then(first, pieces):
        for start in range(0, len(piece), _PACKED):
            yield piece[start : start + _PACKED]


def _gunzip(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """All members, one after the other; zeros after the last one are padding."""
    inflate = zlib.decompressobj(_GZIP_WINDOW)
    try:
        for piece in pieces:
            packed = piece
            while packed:
                yield inflate.decompress(packed, _CHUNK)
                if inflate.eof:
                    packed = inflate.unused_data.lstrip(b"\0")
                    inflate = zlib.decompressobj(_GZIP_WINDOW) if packed else inflate
                else:
                    packed = inflate.unconsumed_tail
        yield inflate.flush()
    except zlib.error as error:
        raise DamagedLogError(f"the gzip file is damaged or cut short ({error})") from error
    if not inflate.eof:
        raise DamagedLogError("the gzip file is damaged or cut short (it ends too early)")


def _unzstd(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """All frames, one after the other."""
    try:
        import zstandard
    except ImportError as error:
        raise InputError(
            "the log is packed with zstd, and the library for it is missing", hint="pip install zstandard, or unzstd it"
        ) from error
    unpack = zstandard.ZstdDecompressor().decompressobj()
    try:
        for piece in pieces:
            packed = piece
            while packed:
                if unpack.eof:
                    unpack = zstandard.ZstdDecompressor().decompressobj()
                yield unpack.decompress(packed)
                packed = unpack.unused_data if unpack.eof else b""
    except zstandard.ZstdError as error:
        raise DamagedLogError(f"the zstd file is damaged or cut short ({error})") from error
    if not unpack.eof:
        raise DamagedLogError("the zstd file is damaged or cut short (it ends too early)")
