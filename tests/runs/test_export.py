"""Rows as files."""

from __future__ import annotations

import csv
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from eaglelab.errors import InputError
from eaglelab.runs.export import export
from eaglelab.runs.rows import EXPORTED, RunRow, SettingRow

RUN = RunRow(
    "r1", "a", "bench", 1.5, True, "/m", None, "0.5.9", "H200", "550", 8, "", None, 'said "so", twice\n=1', "/logs/r1"
)
ROWS = [
    replace(RUN, settings=(SettingRow("requests", None, "", 1, 80.0), SettingRow("requests", 2, "A=1", 1, 100.0))),
    replace(RUN, run="r2", finished=False, tp=None),
]


def test_csv_has_a_row_for_each_setting_and_one_for_a_run_without(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    assert export(ROWS, str(file)) == 3
    with file.open(newline="") as lines:
        found = list(csv.DictReader(lines))
    assert tuple(found[0]) == tuple(EXPORTED)
    assert [(each["run"], each["steps"], each["variation"], each["tok_s"]) for each in found] == [
        ("r1", "", "", "80.0"),
        ("r1", "2", "A=1", "100.0"),
        ("r2", "", "", ""),
    ]
    assert found[0]["headline"] == RUN.headline


def test_json_lines_keep_the_kinds_of_values(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    export(ROWS, str(file))
    found = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(each["finished"], each["tp"], each["steps"]) for each in found] == [
        (True, 8, None),
        (True, 8, 2),
        (False, None, None),
    ]


def test_parquet_keeps_them_too(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "rows.PARQUET"
    assert export(ROWS, str(file)) == 3
    found = parquet.read_table(file).to_pylist()
    assert [(each["run"], each["tp"], each["steps"], each["tok_s"]) for each in found] == [
        ("r1", 8, None, 80.0),
        ("r1", 8, 2, 100.0),
        ("r2", None, None, None),
    ]
    assert tuple(found[0]) == tuple(EXPORTED)


def test_parquet_without_pyarrow_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match="pyarrow") as caught:
        export(ROWS, str(tmp_path / "rows.parquet"))
    assert "eaglelab[export]" in caught.value.hint


@pytest.mark.parametrize("file", ["rows", "rows.xlsx", "no/such/folder/rows.csv"])
def test_what_cannot_be_written_is_bad_input(tmp_path: Path, file: str) -> None:
    with pytest.raises(InputError):
        export(ROWS, str(tmp_path / file))


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_text_that_is_no_text_does_not_stop_an_export(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"rows.{ending}"
    export([replace(RUN, headline="half \ud800")], str(file))
    assert "\\ud800" in file.read_text()


def test_the_page_names_every_column() -> None:
    page = (Path(__file__).parents[2] / "docs" / "history.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith(("| run |", "| setting |"))]
    named = [re.findall(r"`([^`]+)`", row)[0].split() for row in rows]
    assert [*named[0], *named[1]] == list(EXPORTED)
