"""A controller that is killed between two tasks, and `--resume`: one load in all, the figures, an exact rollback."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from scene import Scene, picture

TASKS = 13
"""Of deploy-profiling: doctor to report."""

WAITED = 9
"""Tasks after which the server has given a token."""


@pytest.fixture(scope="module")
def package(scene: Scene) -> Path:
    return scene.folder / ".lab/host/home/sglang/python/sglang"


def loads(scene: Scene) -> int:
    """How many servers the host has ever been asked to start."""
    journal = scene.folder / ".lab/host/home/.local/state/eaglelab/journal.jsonl"
    lines = journal.read_text().splitlines() if journal.exists() else []
    return [json.loads(line)["op"] for line in lines].count("start")


def last_run(scene: Scene, command: str) -> Path:
    return sorted(path for path in (scene.folder / "logs").iterdir() if command in path.name)[-1]


def states(run: Path) -> list[tuple[str, str]]:
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    return [(event["action"], event["state"]) for event in events]


def whole(run: Path) -> list[dict[str, Any]]:
    """Every JSON file of a bundle, each of which must be one."""
    return [json.loads(path.read_text()) for path in run.rglob("*.json")]


@pytest.mark.parametrize("tasks", range(1, TASKS))
def test_a_killed_deploy_goes_on_with_one_load_in_all(scene: Scene, package: Path, tasks: int) -> None:
    before, started = picture(package), loads(scene)
    assert scene.killed_after(tasks, "deploy-profiling", "--tokens", "64") == -signal.SIGKILL
    run = last_run(scene, "deploy-profiling")
    assert whole(run)
    assert run.stat().st_mode & 0o777 == 0o700
    done = scene.invoke("deploy-profiling", "--resume", run.name, "--json")
    assert done.json["run"] == run.name
    assert loads(scene) - started == 1
    (setting,) = done.json["hosts"]["sim"]["profile"]["settings"]
    assert 63 <= setting["tokens"] <= 63 + 2  # of one request, and of nothing before or after it
    assert done.json["hosts"]["sim"]["generated"]["tokens"] == 64
    assert (("generate", "held") in states(run)) is (tasks > WAITED)
    assert "The server is fired up and ready to roll!" in (run / "server.log").read_text()
    scene.invoke("rollback")
    assert picture(package) == before


def test_a_bench_that_is_killed_in_its_second_setting_measures_the_first_only_once(scene: Scene, package: Path) -> None:
    before, started = picture(package), loads(scene)
    small = ("--num-prompts", "2", "--repeats", "2", "--output-len", "64", "--no-baseline")
    assert scene.killed_after(13 + 10, "bench", "--steps", "2,3", *small) == -signal.SIGKILL  # 3 steps: measured
    run = last_run(scene, "bench")
    written = {path: path.stat().st_mtime_ns for path in run.glob("*/requests-c1.jsonl")}
    assert {path.parent.name for path in written} == {"k2", "k3"}
    done = scene.invoke("bench", "--resume", "last", "--json")
    assert loads(scene) - started == 2
    assert {path: path.stat().st_mtime_ns for path in run.glob("*/requests-c1.jsonl")} == written
    measured = done.json["hosts"]["sim"]["measurements"]
    assert [(each["steps"], each["profiled"]) for each in measured] == [(2, False), (2, True), (3, False), (3, True)]
    assert [each["setting"]["steps"] for each in measured if each["profiled"]] == [2, 3]
    assert "holds since" in done.stderr
    assert picture(package) == before
    assert "nothing is left to do" in scene.invoke("bench", "--resume", run.name).stdout


def test_a_run_that_was_interrupted_and_rolled_back_spends_a_load_again(scene: Scene, package: Path) -> None:
    before, started = picture(package), loads(scene)
    (scene.folder / "playbooks/failing.yaml").write_text(
        (scene.folder / "playbooks/deploy-profiling.yaml")
        .read_text()
        .replace(
            "      - name: Report\n",
            "      - fail: {message: not this time}\n        when: not_now\n      - name: Report\n",
        )
        .replace("vars:\n", "vars:\n  not_now: true\n")
    )
    done = scene.invoke("play", "failing", "--var", "tokens=64", "--json", code=1)
    assert f"invoke play failing --resume {done.json['run']}" in done.json["error"]["hint"]
    assert picture(package) == before
    again = scene.invoke("play", "failing", "--resume", done.json["run"], "--json", code=1)
    assert "not this time" in again.json["error"]["what"]
    assert loads(scene) - started == 2
    assert picture(package) == before
