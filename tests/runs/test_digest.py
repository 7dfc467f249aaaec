"""The rows of a bundle, from its small files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bundle_kit import make, measured, probed

from eaglelab.runs.digest import digest, stamp
from eaglelab.runs.rows import RunRow, SettingRow


def only(folder: Path) -> RunRow:
    rows = digest(folder)
    assert rows is not None
    (row,) = rows
    return row


def test_a_measured_run_has_a_row_for_each_setting(tmp_path: Path) -> None:
    vars_ = {"output_len": 200, "num_prompts": 8}
    row = only(make(tmp_path, "r", measured(None, 80.0), measured(2, 100.0), probed(2), vars=vars_))
    assert (row.run, row.host, row.command, row.began, row.finished) == ("r", "a", "bench", 1000.0, True)
    assert (row.model, row.draft, row.sglang, row.tp) == ("/models/target", "/models/draft", "0.5.9", 2)
    assert (row.gpu, row.driver, row.workload, row.simulated) == ("2 x H200", "550", "output_len=200", None)
    assert row.headline == "no speculation: 80.0 tok/s at concurrency 1; 2 steps: 100.0 tok/s at concurrency 1"
    assert row.settings == (
        SettingRow("requests", None, "", 1, 80.0, 79.0, 81.0),
        SettingRow("requests", 2, "", 1, 100.0, 99.0, 101.0, 1.7, 0.5, 15.8, 1.3, 0.1, 17.7, baseline_ratio=1.25),
    )


def test_a_profile_has_a_row_for_each_of_its_settings_which_is_no_throughput(tmp_path: Path) -> None:
    setting = {
        **probed(2)["setting"],
        "steps": 2,
        "batch_size": 4,
        "tok_s": {"in_all": 300.0, "in_all_ci95": [290.0, 310.0]},
        "acceptance": {"accept_length": 1.8},
    }
    (row,) = only(make(tmp_path, "r", result={"profile": {"settings": [setting]}})).settings
    assert (row.source, row.steps, row.batch, row.tok_s, row.tok_s_low) == ("profile", 2, 4, 300.0, 290.0)
    assert (row.accept_length, row.verify_ms) == (1.8, 15.8)


def test_rows_of_sglangs_client_are_read(tmp_path: Path) -> None:
    def served(steps: int | None, rate: float) -> dict[str, Any]:
        figures = {"output_throughput": {"mean": rate, "ci95": None}, "accept_length": {"mean": 1.0}}
        return {"steps": steps, "variation": "", "concurrency": 4, "figures": figures}

    rows = only(make(tmp_path, "r", result={"settings": [served(None, 80.0), served(3, 120.0)]})).settings
    assert [(row.source, row.steps, row.batch, row.tok_s) for row in rows] == [
        ("bench_serving", None, 4, 80.0),
        ("bench_serving", 3, 4, 120.0),
    ]
    assert [row.accept_length for row in rows] == [None, 1.0]
    assert rows[1].baseline_ratio == 1.5


def test_the_simulated_gpu_stands_at_the_run_and_at_its_settings(tmp_path: Path) -> None:
    folder = make(tmp_path, "r", measured(2, 100.0))
    (folder / "server_info.json").write_text(json.dumps({"simulated": {"label": "simulated GPU"}}))
    row = only(folder)
    assert (row.simulated, row.settings[0].simulated) == ("simulated GPU", "simulated GPU")


def test_an_unfinished_run_says_how_to_go_on(tmp_path: Path) -> None:
    row = only(make(tmp_path, "r1", finished=False))
    assert (row.finished, row.settings) == (False, ())
    assert row.headline == "stopped at 'Measure'; invoke bench --resume r1 goes on with it"
    played = only(make(tmp_path, "r2", finished=False, command="play"))
    assert "invoke play bench --resume r2" in played.headline
    folder = make(tmp_path, "r3", finished=False)
    (folder / "events.jsonl").unlink()
    assert only(folder).headline == "nothing was begun"


def test_a_run_of_several_hosts_has_a_row_each(tmp_path: Path) -> None:
    folder = make(tmp_path, "r", hosts=["a", "b"], finished=False)
    make(folder, "a", measured(2, 100.0))
    rows = digest(folder)
    assert rows is not None
    assert [(row.host, row.finished, row.bundle) for row in rows] == [
        ("a", True, str(folder / "a")),
        ("b", False, str(folder / "b")),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"command": "bench"}',
        '{"command": "bench", "hosts": []}',
        '{"command": 1, "hosts": ["a"]}',
        '{"command": "bench", "hosts": ["../a", "b"]}',
        '{"command": "bench", "hosts": ["/etc", "b"]}',
        '{"command": "bench", "hosts": [1]}',
        "[" * 100_000,
    ],
)
def test_a_damaged_request_is_no_run(tmp_path: Path, text: str) -> None:
    folder = make(tmp_path, "r")
    (folder / "request.json").write_text(text)
    assert digest(folder) is None


@pytest.mark.parametrize("name", ["result.json", "facts.json", "inventory.json", "events.jsonl", "server_info.json"])
@pytest.mark.parametrize(
    "text", ["", "{", "[1]", '{"ok": true, "measurements": [1], "server": 3, "gpus": 7, "time": "x"}']
)
def test_other_damaged_files_cost_what_is_in_them_and_nothing_else(tmp_path: Path, name: str, text: str) -> None:
    folder = make(tmp_path, "r", measured(2, 100.0))
    (folder / name).write_text(text)
    assert only(folder).run == "r"


def test_a_stamp_changes_with_what_is_read_and_only_with_that(tmp_path: Path) -> None:
    folder = make(tmp_path, "r", finished=False)
    first = stamp(folder)
    (folder / "server.log").write_text("more")
    assert stamp(folder) == first
    (folder / "result.json").write_text('{"ok": true}')
    assert stamp(folder) not in (None, first)
    (tmp_path / "other").mkdir()
    assert stamp(tmp_path / "other") is None
