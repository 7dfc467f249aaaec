"""When a log is searched by several processes, and what is said when one of them or the file goes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from eaglelab.profile.log_ranges import lines_from, text_at
from eaglelab.profile.log_workers import WORTHWHILE, workers_for


@pytest.fixture
def large(tmp_path):
    path = tmp_path / "large.log"
    path.touch()
    os.truncate(path, WORTHWHILE)
    return path


@pytest.fixture
def cores(monkeypatch):
    """As many cores as a test says, and no thread but its own."""
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    return lambda number: monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(number), raising=False)


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")
@pytest.mark.parametrize(("number", "workers"), [(1, 0), (2, 2), (4, 4), (64, 4)])
def test_a_large_file_is_searched_by_a_process_a_core(large, cores, number, workers):
    cores(number)
    with large.open("rb") as file:
        assert workers_for(file.fileno()) == workers


def test_a_smaller_file_is_not(large, cores):
    cores(8)
    os.truncate(large, WORTHWHILE - 1)
    with large.open("rb") as file:
        assert workers_for(file.fileno()) == 0


def test_nothing_is_forked_beside_another_thread(large, cores, monkeypatch):
    cores(8)
    monkeypatch.setattr(threading, "active_count", lambda: 2)
    with large.open("rb") as file:
        assert workers_for(file.fileno()) == 0


def test_a_pipe_is_read_by_one():
    ours, theirs = os.pipe()
    try:
        assert workers_for(ours) == 0
    finally:
        os.close(ours)
        os.close(theirs)


def test_text_that_was_cut_off_the_file_reads_as_zeros(tmp_path):
    path = tmp_path / "cut.log"
    path.write_bytes(b"one\ntwo\n")
    with path.open("rb") as file:
        assert text_at(file.fileno(), 4, 8) == b"two\n\0\0\0\0"
        assert list(lines_from(file.fileno(), 4, 100)) == [(4, b"two\n")]
        assert list(lines_from(file.fileno(), 50, 100)) == []


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")
@pytest.mark.parametrize(
    ("before", "said"),
    [
        (
            "log_workers._search = lambda *given: os._exit(9)",
            "the log cannot be read: a process that read it was ended",
        ),
        (
            "text_at = log_workers.text_at; log_workers.text_at = lambda *given: os.truncate(sys.argv[1], 5) or text_at(*given)",
            "the file was cut while it was read; what could be read is reported",
        ),
    ],
)
def test_what_goes_wrong_while_it_is_read_is_said(tmp_path, before, said):
    path = tmp_path / "server.log"
    path.write_bytes(b"EAGLE3_PROF (4 cycles)\nline\n" * 400_000)
    done = subprocess.run(
        [sys.executable, "-c", READ.format(before), str(path)], capture_output=True, text=True, timeout=120
    )
    assert said in done.stdout, done.stderr


READ = """
import os, sys
from eaglelab.errors import InputError
from eaglelab.profile import log_workers
from eaglelab.profile.logfile import read_logs
log_workers.WORTHWHILE = 1 << 20
os.sched_getaffinity = lambda _: range(3)
{}
try:
    print(*read_logs(sys.argv[1:]).problems)
except InputError as error:
    print("InputError", error)
"""
