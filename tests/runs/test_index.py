"""The index is a cache: whatever happens to it, a listing says what the bundles say."""

from __future__ import annotations

import random
import shutil
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from bundle_kit import make, measured, probed, touch

from eaglelab.runs import index as module
from eaglelab.runs.digest import digest
from eaglelab.runs.index import INDEX, list_rows
from eaglelab.runs.rows import RunRow

RUNS = [f"2026112{number}-000000-bench-{number:04x}" for number in range(6)]


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    for number, run in enumerate(RUNS):
        make(folder, run, measured(None, 80.0), measured(2, 100.0 + number), probed(2), began=float(number))
    return folder


def truth(logs: Path) -> list[RunRow]:
    folders = sorted((path.parent for path in logs.glob("*/request.json")), reverse=True)
    return [row for folder in folders for row in digest(folder) or ()]


def test_the_first_listing_reads_every_bundle_and_the_next_none(logs: Path) -> None:
    first = list_rows(logs)
    assert first.read == 6
    assert [row.run for row in first.rows] == RUNS[::-1]
    second = list_rows(logs)
    assert second.read == 0
    assert list(second.rows) == list(first.rows) == truth(logs)


def test_only_new_and_changed_folders_are_read_and_deleted_ones_go(logs: Path) -> None:
    list_rows(logs)
    make(logs, "20261201-000000-bench-ffff", measured(2, 50.0))
    touch(logs / RUNS[0] / "result.json", 5)
    shutil.rmtree(logs / RUNS[1])
    found = list_rows(logs)
    assert found.read == 2
    assert list(found.rows) == truth(logs)
    with sqlite3.connect(logs / INDEX) as connection:
        for table in ("bundles", "runs", "settings"):
            assert connection.execute(f"SELECT count(*) FROM {table} WHERE folder = ?", (RUNS[1],)).fetchone() == (0,)
    connection.close()


def test_it_is_the_same_after_the_folder_was_moved(logs: Path) -> None:
    list_rows(logs)
    moved = logs.rename(logs.parent / "elsewhere")
    found = list_rows(moved)
    assert found.read == 0
    assert found.rows[0].bundle == str(moved / RUNS[-1])


def rebuilt(logs: Path) -> None:
    """A listing is right, and the one after it reads nothing."""
    assert list(list_rows(logs).rows) == truth(logs)
    assert list_rows(logs).read == 0


def test_a_missing_index_is_made_again(logs: Path) -> None:
    list_rows(logs)
    (logs / INDEX).unlink()
    rebuilt(logs)


@pytest.mark.parametrize("kept", [0, 1, 99, 100, 4096, 5000])
def test_a_truncated_index_is_made_again(logs: Path, kept: int) -> None:
    list_rows(logs)
    (logs / INDEX).write_bytes((logs / INDEX).read_bytes()[:kept])
    rebuilt(logs)


def test_garbage_is_made_an_index_again(logs: Path) -> None:
    (logs / INDEX).write_bytes(b"no database " * 500)
    rebuilt(logs)


@pytest.mark.parametrize(
    "change",
    [
        "PRAGMA user_version = 99",
        "DROP TABLE runs",
        "DROP TABLE settings",
        "ALTER TABLE runs RENAME COLUMN model TO other",
        "UPDATE settings SET tok_s = 'fast'",
        "UPDATE runs SET headline = NULL",
        "UPDATE runs SET host = 'b'",
        "DELETE FROM settings",
        "DELETE FROM bundles",
        "UPDATE bundles SET stamp = ''",
    ],
)
def test_an_index_of_another_version_or_that_was_written_into_is_made_again(logs: Path, change: str) -> None:
    list_rows(logs)
    connection = sqlite3.connect(logs / INDEX)
    connection.execute(change)
    connection.commit()
    connection.close()
    rebuilt(logs)


def test_flipped_bits_never_change_a_listing(logs: Path) -> None:
    list_rows(logs)
    whole, chance = (logs / INDEX).read_bytes(), random.Random(1)
    for _ in range(150):
        damaged = bytearray(whole)
        for _ in range(chance.randrange(1, 20)):
            damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        (logs / INDEX).write_bytes(damaged)
        assert list(list_rows(logs).rows) == truth(logs)


def test_a_folder_in_its_place_is_left_alone(logs: Path) -> None:
    (logs / INDEX / "kept").mkdir(parents=True)
    assert list(list_rows(logs).rows) == truth(logs)
    assert (logs / INDEX / "kept").is_dir()


def test_a_locked_index_is_passed_by(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    list_rows(logs)
    make(logs, "20261201-000000-bench-ffff", measured(2, 50.0))
    monkeypatch.setattr(module, "_PATIENCE_S", 0.01)
    holder = sqlite3.connect(logs / INDEX, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    try:
        assert list(list_rows(logs).rows) == truth(logs)
    finally:
        holder.execute("ROLLBACK")
        holder.close()
    rebuilt(logs)


def test_an_index_that_cannot_be_written_is_passed_by(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path) -> sqlite3.Connection:
        return sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)

    monkeypatch.setattr(module, "_connect", refused)
    assert list(list_rows(logs).rows) == truth(logs)
    monkeypatch.undo()
    list_rows(logs)
    make(logs, "20261201-000000-bench-ffff", measured(2, 50.0))
    monkeypatch.setattr(module, "_connect", refused)
    found = list_rows(logs)
    assert (found.read, list(found.rows)) == (1, truth(logs))


def test_it_is_as_private_as_the_bundles(logs: Path) -> None:
    list_rows(logs)
    assert (logs / INDEX).stat().st_mode & 0o777 == 0o600


def test_a_journal_of_an_index_that_is_gone_is_not_played_into_the_next(logs: Path) -> None:
    list_rows(logs)
    (logs / INDEX).write_bytes(b"garbage" * 1000)
    (logs / f"{INDEX}-journal").write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + bytes(2000))
    rebuilt(logs)


def test_folders_without_a_run_and_damaged_ones_are_passed_by(logs: Path) -> None:
    (logs / "notes").mkdir()
    (logs / "notes.txt").write_text("x")
    make(logs, "20261201-000000-bench-ffff")
    (logs / "20261201-000000-bench-ffff" / "request.json").write_text("{")
    found = list_rows(logs)
    assert found.damaged == ("20261201-000000-bench-ffff",)
    assert len(found.rows) == 6


def test_logs_that_are_not_there_hold_no_runs(tmp_path: Path) -> None:
    assert list_rows(tmp_path / "none").rows == ()
    assert not (tmp_path / "none").exists()


def test_names_and_figures_that_sqlite_cannot_hold_are_listed_and_spoil_nothing(logs: Path) -> None:
    make(logs, "a'b; DROP TABLE runs; --\n\x1b", measured(2, 50.0))
    make(logs, "half \udcff a name", measured(2, 50.0))
    make(logs, "huge", measured(2, 50.0))
    (logs / "huge" / "inventory.json").write_text('{"server": {"tp_size": 1' + "0" * 400 + "}}")
    (logs / "huge" / "facts.json").write_text('{"sglang_version": "\\ud800"}')
    assert list(list_rows(logs).rows) == truth(logs)
    again = list_rows(logs)
    assert list(again.rows) == truth(logs)
    assert again.read == 2


def test_threads_may_list_at_once(logs: Path) -> None:
    wanted = truth(logs)
    with ThreadPoolExecutor(8) as pool:
        found = [list(each.rows) for each in pool.map(list_rows, [logs] * 16)]
    assert found == [wanted] * 16
    rebuilt(logs)


LIST = """
import sys
from pathlib import Path
from eaglelab.runs.index import INDEX, list_rows
logs = Path(sys.argv[1])
for turn in range(20):
    print(len(list_rows(logs).rows))
    if turn % 5 == int(sys.argv[2]):
        (logs / INDEX).write_bytes(b"garbage" * 100)
"""


def test_processes_may_list_and_damage_it_at_once(logs: Path, project: Path) -> None:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", LIST, str(logs), str(turn)], stdout=subprocess.PIPE, text=True, cwd=project
        )
        for turn in range(3)
    ]
    for process in started:
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        assert out.split() == ["6"] * 20
    assert list(list_rows(logs).rows) == truth(logs)
