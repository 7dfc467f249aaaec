"""Reads whole server logs of any size: plain, gzip or zstd, one or several, a stream, whatever their bytes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from eaglelab.errors import InputError
from eaglelab.profile.log_report import LogReport
from eaglelab.profile.log_source import DamagedLogError, chunks, is_packed

if TYPE_CHECKING:
    from eaglelab.profile.log_collector import LogCollector

__all__ = ["STDIN", "read_log", "read_logs", "record_lines"]

STDIN = "-"
"""The name that stands for standard input."""

# A record of a hundred cycles has some 10 kB.
_LONGEST_RECORD = 1 << 24


def read_logs(names: Sequence[str], stdin: BinaryIO | None = None) -> LogReport:
    """Read logs as one: the parts of a rotated log, or several logs, in the order given. `-` is standard input.

    Lines are counted on from file to file (`LogReport.files`). Raises InputError, before anything is read, when no name
    is given or one is no file; a packed file that is cut short is reported on as far as it goes.
    """
    if not names:
        raise InputError("no log is named", where="--log", hint="--log FILE, or --log - for standard input")
    for name in names:
        if name != STDIN and not Path(name).exists():
            raise InputError("there is no such file", where=name, hint="--log takes server logs; gzip and zstd too")
    if list(names).count(STDIN) > 1:
        raise InputError("standard input can be read only once", where="--log", hint="give - once")
    collector = _collector()
    for name in names:
        if name == STDIN:
            _collect(collector, name, stdin or sys.stdin.buffer)
        else:
            try:
                with Path(name).open("rb", buffering=0) as file:
                    _collect_file(collector, name, file)
            except OSError as error:
                raise InputError(
                    f"the log cannot be read: {error.strerror or error}",
                    where=name,
                    hint="give the path of a server log",
                ) from error
    return collector.report()


def read_log(source: str | os.PathLike[str] | Iterable[bytes | str]) -> LogReport:
    """Read one log file by its path, or the lines of one, in one pass. Raises InputError when it cannot be read."""
    if isinstance(source, str | os.PathLike):
        return read_logs([os.fspath(source)])
    collector = _collector()
    for line in source:
        collector.feed(line)
    return collector.report()


def record_lines(paths: Iterable[Path]) -> Iterator[bytes]:
    """The lines of the probe's files, one file after the other; what is far too long for a record comes in pieces."""
    for path in paths:
        with path.open("rb") as file:
            while line := file.readline(_LONGEST_RECORD):
                yield line


def _collector() -> LogCollector:
    """Its libraries take a third of a second to load, which only those pay who read a log."""
    from eaglelab.profile.log_collector import LogCollector

    return LogCollector()


def _collect_file(collector: LogCollector, name: str, file: BinaryIO) -> None:
    from eaglelab.profile.log_workers import collect_side_by_side, workers_for

    workers = workers_for(file.fileno())
    if not workers or is_packed(os.pread(file.fileno(), 4, 0)):
        _collect(collector, name, file)
        return
    collector.begin(name)
    try:
        collect_side_by_side(collector, file.fileno(), workers)
    except DamagedLogError as error:
        collector.problem(f"{name}: {error}; what could be read is reported")


def _collect(collector: LogCollector, name: str, stream: BinaryIO) -> None:
    collector.begin(name)
    try:
        for chunk in chunks(stream):
            collector.feed_chunk(chunk)
    except DamagedLogError as error:
        collector.problem(f"{name}: {error}; what could be read is reported")
