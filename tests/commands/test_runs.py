"""The list of runs: from the bundles alone, newest first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eaglelab.commands.outcome import Outcome
from eaglelab.commands.runs import headline, list_runs
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
    list_runs(logs, host, most, outcome, Say.on(json=True))
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


def test_a_profile_has_its_speed_and_its_limit_as_headline() -> None:
    setting = {
        "steps": 2,
        "batch_size": 1,
        "tok_s": {"in_all": 94.04},
        "acceptance": {"accept_length": 1.745},
        "limit": {"phase": "verify"},
    }
    found = headline({"ok": True, "profile": {"settings": [setting]}})
    assert found == "2 steps, batch 1: 94.0 tok/s, accept length 1.75, verify limits"


def test_figures_that_cannot_be_ranked_are_listed() -> None:
    measured = {"steps": None, "batch": 4, "profiled": False, "summary": {"tok_s_in_all": 300.04}}
    found = headline({"measurements": [measured, {**measured, "profiled": True}], "rankings": []})
    assert found == "no speculation: 300.0 tok/s at concurrency 4"
