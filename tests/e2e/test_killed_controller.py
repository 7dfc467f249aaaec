"""A controller that is killed between two tasks leaves a host that `invoke rollback` puts back."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from scene import Scene, picture

TASKS = 13
"""Of deploy-profiling: doctor to report."""


@pytest.fixture(scope="module")
def package(scene: Scene) -> Path:
    return scene.folder / ".lab/host/home/sglang/python/sglang"


@pytest.mark.parametrize("tasks", range(1, TASKS))
def test_rollback_restores_the_host_after_sigkill(scene: Scene, package: Path, tasks: int) -> None:
    before = picture(package)
    assert scene.killed_after(tasks, "deploy-profiling", "--tokens", "64") == -signal.SIGKILL
    if tasks in (5, 9):  # patched; serving
        assert picture(package) != before
    scene.invoke("rollback")
    assert picture(package) == before
    assert scene.invoke("status", "--json").json["hosts"]["sim"]["members"] == []


def test_the_driver_kills_between_tasks_and_not_before(scene: Scene) -> None:
    assert scene.killed_after(TASKS, "deploy-profiling", "--tokens", "64") == 0
    scene.invoke("rollback")
