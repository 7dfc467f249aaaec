"""The list of runs: from the bundles alone, newest first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eaglelab.commands.outcome import Outcome
from eaglelab.commands.runs import list_runs, since
from eaglelab.errors import InputError
from eaglelab.runs.history import Asked
from eaglelab.runs.index import INDEX
from eaglelab.say import Say

REQUEST = {
    "command": "bench",
    "playbook": "bench",
    "files": [{"path": "playbooks/bench.yaml", "sha256": "0"}],
    "hosts": ["a"],
    "inventory": None,
    "vars": {},
    "more": {},
    "tags": [],
    "skip_tags": [],
    "takeover": False,
    "accept_drift": False,
    "resumed": 0,
}


def make(logs: Path, run: str, result: dict[str, Any] | None, **changes: Any) -> None:
    (logs / run).mkdir(parents=True)
    (logs / run / "request.json").write_text(json.dumps({**REQUEST, **changes}))
    event = {"time": 1.0, "task": "Measure", "action": "measure", "state": "started"}
    (logs / run / "events.jsonl").write_text(json.dumps(event) + "\n")
    if result is not None:
        (logs / run / "result.json").write_text(json.dumps({"ok": True, **result}))


def listed(logs: Path, host: str | None = None, most: int = 20) -> list[dict[str, Any]]:
    outcome = Outcome()
    list_runs(logs, Asked(host=host), most, outcome, Say.on(json=True))
    return list(outcome.more["runs"])


def test_runs_come_newest_first_with_what_they_found_or_how_to_go_on(tmp_path: Path) -> None:
    ranked = {"rankings": [{"batch": 1, "sentences": ["2 steps: 94.0 tok/s, 5.6 % over the baseline."]}]}
    make(tmp_path, "20261129-1-bench-aaaa", ranked)
    make(tmp_path, "20261129-2-bench-bbbb", None)
    rows = listed(tmp_path)
    assert [row["run"] for row in rows] == ["20261129-2-bench-bbbb", "20261129-1-bench-aaaa"]
    assert rows[0]["headline"] == ("stopped at 'Measure'; invoke bench --resume 20261129-2-bench-bbbb goes on with it")
    assert rows[1]["headline"] == "2 steps: 94.0 tok/s, 5.6 % over the baseline."
    assert [row["finished"] for row in rows] == [False, True]


def test_only_the_runs_of_a_host_and_only_so_many_are_listed(tmp_path: Path) -> None:
    for number in range(4):
        make(tmp_path, f"2026-{number}-bench-aaaa", {}, hosts=["a" if number % 2 else "b"])
    assert [row["run"] for row in listed(tmp_path, "b")] == ["2026-2-bench-aaaa", "2026-0-bench-aaaa"]
    assert len(listed(tmp_path, None, 3)) == 3


def test_a_folder_without_runs_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert listed(tmp_path / "logs") == []
    assert "no runs" in capsys.readouterr().err


def test_a_damaged_request_is_named_and_the_run_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(tmp_path, "20261129-1-bench-aaaa", {})
    make(tmp_path, "20261129-2-bench-bbbb", {})
    (tmp_path / "20261129-2-bench-bbbb" / "request.json").write_text("{")
    assert [row["run"] for row in listed(tmp_path)] == ["20261129-1-bench-aaaa"]
    assert "left out" in capsys.readouterr().err


def filled_logs(own: Path) -> Path:
    """Two releases on two hosts, a measurement each."""
    logs = own / "logs"
    for number, (host, sglang) in enumerate([("a", "0.5.9"), ("a", "0.5.12"), ("b", "0.5.12")]):
        rate = 100.0 - number
        summary = {
            "throughput": {"value": rate, "ci95": [rate - 1, rate + 1]},
            "accept_length": 1.7,
            "tok_s_in_all": rate,
        }
        measured = {"steps": 2, "variation": "", "batch": 1, "profiled": False, "summary": summary, "setting": None}
        make(logs, f"2026112{number}-bench-aaa{number}", {"measurements": [measured]}, hosts=[host])
        folder = logs / f"2026112{number}-bench-aaa{number}"
        (folder / "facts.json").write_text(json.dumps({"sglang_version": sglang}))
        (folder / "inventory.json").write_text(json.dumps({"server": {"model_path": f"/models/Llama-{number}"}}))
    return logs


@pytest.mark.parametrize(
    ("options", "runs"),
    [
        (["--runs"], ["aaa2", "aaa1", "aaa0"]),
        (["--model", "llama"], ["aaa2", "aaa1", "aaa0"]),
        (["--model", "llama-1"], ["aaa1"]),
        (["--runs", "--host", "a"], ["aaa1", "aaa0"]),
        (["--model", "llama", "--host", "b"], ["aaa2"]),
        (["--sglang", "0.5.12"], ["aaa2", "aaa1"]),
        (["--sglang", "0.5"], ["aaa2", "aaa1", "aaa0"]),
        (["--sglang", "0.5.1"], []),
        (["--runs", "--lines", "1"], ["aaa2"]),
        (["--since", "1d"], []),
        (["--since", "1970-01-01T00:00:00+00:00"], ["aaa2", "aaa1", "aaa0"]),
    ],
)
def test_runs_are_chosen_by_what_they_ran(invoke: Any, own: Path, options: list[str], runs: list[str]) -> None:
    filled_logs(own)
    done = invoke("logs", *options, "--json")
    assert done.code == 0, done.err
    assert [row["run"][-4:] for row in done.json["runs"]] == runs


def test_the_trend_has_a_series_for_each_setting(invoke: Any, own: Path) -> None:
    filled_logs(own)
    done = invoke("logs", "--trend", "--host", "a", "--json")
    assert done.code == 0, done.err
    assert [(each["host"], each["model"], each["tok_s"]) for each in done.json["trend"]] == [
        ("a", "/models/Llama-0", [100.0]),
        ("a", "/models/Llama-1", [99.0]),
    ]
    assert " first\n" in done.err


def test_rows_are_exported_and_another_ending_ends_with_2(invoke: Any, own: Path, tmp_path: Path) -> None:
    filled_logs(own)
    file = tmp_path / "rows.jsonl"
    assert invoke("logs", "--runs", "--export", str(file)).code == 0
    assert [json.loads(line)["tok_s"] for line in file.read_text().splitlines()] == [98.0, 99.0, 100.0]
    done = invoke("logs", "--runs", "--export", str(tmp_path / "rows.xls"))
    assert done.code == 2
    assert ".csv, .jsonl, .parquet" in done.err


def test_a_damaged_index_is_no_matter(invoke: Any, own: Path) -> None:
    logs = filled_logs(own)
    assert invoke("logs", "--runs").code == 0
    (logs / INDEX).write_bytes(b"SQLite format 3\0" + b"garbage" * 1000)
    assert len(invoke("logs", "--runs", "--json").json["runs"]) == 3


@pytest.mark.parametrize("text", ["yesterday", "7", "7x", "-7d", "", "2026-13-01", "²d"])
def test_a_time_that_is_none_is_said_with_one_that_is(text: str) -> None:
    with pytest.raises(InputError, match="is no time"):
        since(text)


@pytest.mark.parametrize(("text", "ago"), [("7d", 604800), ("12h", 43200), ("2w", 1209600)])
def test_a_time_may_be_so_long_ago(text: str, ago: float) -> None:
    assert since(text, lambda: 2e6) == 2e6 - ago
