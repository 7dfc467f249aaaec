"""Where the files of a run begin, in its first try and when it is taken up again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_host import LOG, FakeHost, make_context

from eaglelab.actions.marks import identity, mark_beginning
from eaglelab.context import Context, LogMark

FIRST = {"pid": 4711, "pid_start": 1, "boot": "b"}
PROBE = "/runs/probe"


@pytest.fixture
def fake() -> FakeHost:
    made = FakeHost()
    made.files = {LOG: b"x" * 50, f"{PROBE}/rank0.1.jsonl": b"x" * 10}
    return made


def attempt(fake: FakeHost, folder: Path, record: Any, *, resumed: int, log: int) -> Context:
    context = make_context(fake, folder)
    context.resumed = resumed
    found = context.found
    found.record, found.probe_folder, found.log = record, PROBE, LogMark(LOG, log)
    mark_beginning(context)
    return context


def offsets(context: Context) -> dict[str, int]:
    return {mark.path.rpartition("/")[2]: mark.offset for mark in context.found.probe}


def test_a_first_try_marks_the_present_ends(fake: FakeHost, tmp_path: Path) -> None:
    assert offsets(attempt(fake, tmp_path, FIRST, resumed=0, log=7)) == {"rank0.1.jsonl": 10}


def test_the_same_server_keeps_the_marks_of_the_first_try(fake: FakeHost, tmp_path: Path) -> None:
    attempt(fake, tmp_path, FIRST, resumed=0, log=7)
    fake.files[f"{PROBE}/rank0.1.jsonl"] += b"evidence"
    fake.files[f"{PROBE}/rank1.1.jsonl"] = b"evidence"
    again = attempt(fake, tmp_path, {**FIRST, "run": "r"}, resumed=1, log=50)
    assert again.log.offset == 7
    assert offsets(again) == {"rank0.1.jsonl": 10}  # of rank1's file all belongs to this run


def test_another_server_has_a_log_of_its_own_and_the_records_of_both_count(fake: FakeHost, tmp_path: Path) -> None:
    attempt(fake, tmp_path, FIRST, resumed=0, log=7)
    fake.files[f"{PROBE}/rank0.1.jsonl"] += b"evidence"
    fake.files[f"{PROBE}/rank0.2.jsonl"] = b"its warm-up"
    again = attempt(fake, tmp_path, {**FIRST, "pid_start": 2}, resumed=1, log=50)
    assert again.log.offset == 50
    assert offsets(again) == {"rank0.1.jsonl": 10, "rank0.2.jsonl": 11}


def test_a_new_run_does_not_look_at_old_marks(fake: FakeHost, tmp_path: Path) -> None:
    attempt(fake, tmp_path, FIRST, resumed=0, log=7)
    fake.files[f"{PROBE}/rank0.1.jsonl"] += b"evidence"
    assert offsets(attempt(fake, tmp_path, FIRST, resumed=0, log=50)) == {"rank0.1.jsonl": 18}


def test_a_process_is_named_by_more_than_its_pid() -> None:
    assert identity(None) is None
    assert identity({**FIRST, "run": "r"}) == FIRST
    assert identity({**FIRST, "boot": "c"}) != identity(FIRST)
