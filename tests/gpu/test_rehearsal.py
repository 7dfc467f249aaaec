"""The way from a command line to a table, on the embedded lab: what is run on a real GPU is run here first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpu.validate import loopback_ssh
from gpu.validate.__main__ import main

pytestmark = pytest.mark.lab


def test_the_labs_counts_are_the_computed_ones_and_the_lab_is_gone_afterwards(tmp_path: Path) -> None:
    assert main(["--lab", "--out", str(tmp_path), "--only", "truth-v2-p0.6-b8", "--tokens", "2000"]) == 0
    checks = json.loads((tmp_path / "checks.json").read_text())["truth"]
    assert [check["met"] for check in checks] == [True] * 5
    assert checks[0]["measured"].startswith("24 of 24 (")
    assert not (tmp_path / "work/.lab").exists()
    assert "| yes |" in (tmp_path / "summary.md").read_text()


def test_the_products_own_bench_goes_through_the_labs_ssh_server_where_there_is_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loopback_ssh, "_openssh", lambda: None)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert main(["--lab", "--out", str(tmp_path), "--only", "product-ssh"]) == 0
    (check,) = json.loads((tmp_path / "checks.json").read_text())["product"]
    assert (check["met"], check["figure"]) == (True, "invoke bench --steps 3 --no-baseline, ssh")
    assert "; the lab's SSH server, asyncssh " in check["measured"]
    assert not (tmp_path / "work/.lab").exists()


def test_listing_starts_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--lab", "--list", "--out", str(tmp_path), "--only", "faults"]) == 0
    assert capsys.readouterr().out.split()[0] == "faults-rollback"
    assert list(tmp_path.iterdir()) == []
