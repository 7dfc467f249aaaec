"""Reads a whole server log, of any size: plain or gzip, whatever its bytes."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from eaglelab.errors import InputError
from eaglelab.profile.log_report import LogCollector, LogReport

__all__ = ["read_log", "record_lines"]

_GZIP_MAGIC = b"\x1f\x8b"
# A longer line is read in pieces: no log can fill the memory with one line.
_LONGEST_LINE = 1 << 16
# A record of a hundred cycles has some 10 kB.
_LONGEST_RECORD = 1 << 24


def read_log(source: str | os.PathLike[str] | Iterable[bytes | str]) -> LogReport:
    """Read a log file by its path, or the lines of one, in one pass.

    Raises InputError when the file cannot be read. A gzip file that is cut short is reported on as far as it goes.
    """
    collector = LogCollector()
    if not isinstance(source, str | os.PathLike):
        for line in source:
            collector.feed(line)
        return collector.report()
    path = Path(source)
    try:
        for line in _file_lines(path):
            collector.feed(line)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        collector.problem(f"the gzip file is damaged or cut short ({error}); what could be read is reported")
    except OSError as error:
        raise InputError(
            f"the log cannot be read: {error.strerror or error}", where=str(path), hint="give the path of a server log"
        ) from error
    return collector.report()


def record_lines(paths: Iterable[Path]) -> Iterator[bytes]:
    """The lines of the probe's files, one file after the other; what is far too long for a record comes in pieces."""
    for path in paths:
        with path.open("rb") as file:
            while line := file.readline(_LONGEST_RECORD):
                yield line


def _file_lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as raw:
        packed = raw.peek(len(_GZIP_MAGIC)).startswith(_GZIP_MAGIC)
        stream = gzip.GzipFile(fileobj=raw) if packed else raw
        while line := stream.readline(_LONGEST_LINE):
            yield line
