"""Searches a large plain file with as many processes as there are cores: they search, this one puts together in order."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import signal
import stat
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from eaglelab.profile.chunk_scan import ChunkScan
from eaglelab.profile.log_collector import LogCollector
from eaglelab.profile.log_ranges import line_at, lines_from, text_at
from eaglelab.profile.log_source import DamagedLogError

__all__ = ["WORTHWHILE", "collect_side_by_side", "workers_for"]

WORTHWHILE = 1 << 26
"""A smaller file (bytes) is read before the processes have begun."""
# Each holds some 37 MB; with more of them this process could not follow.
_MOST_WORKERS = 4
_RANGE = 1 << 21
# Twice as much as the largest piece of memory that was given back, glibc keeps: else each chunk is new pages from the kernel.
_KEPT_FREE = 1 << 24
# So much may a worker be ahead.
_PIPE = 1 << 20


def workers_for(file: int) -> int:
    """How many processes are to search an open file; 0 if this one is to read it.

    Processes are forked, which is safe only where no other thread runs.
    """
    about = os.fstat(file)
    if not stat.S_ISREG(about.st_mode) or about.st_size < WORTHWHILE:
        return 0
    if not sys.platform.startswith("linux") or threading.active_count() > 1:
        return 0
    cores = min(len(os.sched_getaffinity(0)), _MOST_WORKERS)
    return cores if cores > 1 else 0


def collect_side_by_side(collector: LogCollector, file: int, workers: int) -> None:
    """Take the file as it is now. Raises DamagedLogError when it was cut meanwhile, OSError when a worker was killed."""
    size = os.fstat(file).st_size
    with _at_work(file, size, workers) as results:
        for place in _ranges(size):
            result = results[place // _RANGE % workers]
            for where, length, found in iter(partial(_received, result), None):
                collector.take(found, partial(text_at, file, where, length), where)
    collector.rest(partial(line_at, file), partial(text_at, file))
    if os.fstat(file).st_size < size:
        raise DamagedLogError("the file was cut while it was read")


def _received(result: Connection) -> Any:
    try:
        return result.recv()
    except EOFError as error:
        raise OSError("a process that read it was ended") from error


def _ranges(size: int) -> range:
    return range(0, size, _RANGE)


@contextmanager
def _at_work(file: int, size: int, workers: int) -> Iterator[list[Connection]]:
    """The workers' results; every one has each `workers`-th range, so that all come in order."""
    fork = multiprocessing.get_context("fork")
    results: list[Connection] = []
    processes = []
    try:
        for number in range(workers):
            ours, theirs = fork.Pipe(duplex=False)
            results.append(ours)
            with suppress(OSError):  # a user's pipes may have a limit; this one works small too
                fcntl.fcntl(theirs.fileno(), fcntl.F_SETPIPE_SZ, _PIPE)
            process = fork.Process(target=_search, args=(file, size, number, workers, theirs, results), daemon=True)
            with warnings.catch_warnings():
                # NumPy may have threads of its own, which a worker never uses.
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
            theirs.close()
            processes.append(process)
        yield results
    finally:
        for result in results:
            result.close()
        for process in processes:
            process.terminate()
            process.join()


def _search(file: int, size: int, number: int, workers: int, results: Connection, others: list[Connection]) -> None:
    """What a worker does: it ends with its ranges, or when the parent ends it or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in others:
        other.close()
    scan = ChunkScan()
    bytes(_KEPT_FREE)
    with suppress(BrokenPipeError):
        for place in _ranges(size)[number::workers]:
            for where, chunk in lines_from(file, place, min(place + _RANGE, size)):
                results.send((where, len(chunk), scan.find(chunk, again=True)))
            results.send(None)
