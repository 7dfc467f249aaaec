from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from eaglelab.lab.standin.nvidia_smi import answer

FORMAT = "--format=csv,noheader,nounits"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One scheduler that lives on GPU 1, and the file of one that has died."""
    monkeypatch.setenv("EAGLELAB_LAB", "mark")
    environ = {**os.environ, "EAGLELAB_LAB": "mark"}
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=environ) as alive:
        (tmp_path / f"gpu-{alive.pid}").write_text("1 96000\n", encoding="utf-8")
        (tmp_path / "gpu-999999999").write_text("0 96000\n", encoding="utf-8")
        yield tmp_path
        alive.kill()


def test_only_living_schedulers_hold_memory(model: dict[str, Any], folder: Path) -> None:
    rows = answer(["--query-gpu=index,name,memory.total,memory.used", FORMAT], model, folder).splitlines()
    assert rows[:2] == ["0, simulated GPU, 143771, 4", "1, simulated GPU, 143771, 96004"]
    assert len(rows) == 8


def test_compute_apps_are_the_schedulers(model: dict[str, Any], folder: Path) -> None:
    (row,) = answer(["--query-compute-apps=pid,used_memory", FORMAT], model, folder).splitlines()
    pid, used = row.split(", ")
    assert used == "96000"
    assert (folder / f"gpu-{pid}").exists()


def test_units_and_header_are_there_unless_declined(model: dict[str, Any], folder: Path) -> None:
    header, first, *_ = answer(["--query-gpu=index,memory.total,nonsense", "--format=csv"], model, folder).splitlines()
    assert header == "index, memory.total, nonsense"
    assert first == "0, 143771 MiB, [N/A]"
