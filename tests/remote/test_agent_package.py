"""What a host's Python is asked of its SGLang."""

from __future__ import annotations

import contextlib
import io
import marshal
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from eaglelab.remote.agent.package import _SCRIPT


def test_a_folder_that_cannot_be_read_hides_no_installation_in_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed, site = tmp_path / "closed", tmp_path / "site"
    closed.mkdir()
    (site / "sglang").mkdir(parents=True)
    (site / "sglang/__init__.py").touch()
    (site / "sglang-0.5.dist-info").mkdir()
    (site / "sglang-0.5.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 0.5\n")
    real = os.listdir

    def listdir(path: Any = ".") -> list[str]:
        if str(path) == str(closed):
            raise PermissionError(path)
        return real(path)

    monkeypatch.setattr(os, "listdir", listdir)
    monkeypatch.setattr(sys, "path", [str(closed), str(site)])
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(_SCRIPT, {})
    said = marshal.loads(bytes.fromhex(out.getvalue().strip().partition("=")[2]))
    assert [version for version, *_ in said["installed"]] == ["0.5"]
