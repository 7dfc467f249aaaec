from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from invoke import Collection, Program
from typed import Done

import tasks


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The logs/ of a project of its own."""
    monkeypatch.setattr(tasks, "PROJECT", tmp_path)
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs"


@pytest.fixture
def invoke(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """Runs a command line as the `invoke` program would, in this process."""

    def run(*argv: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["invoke", *argv])
        code = 0
        try:
            Program(namespace=Collection.from_module(tasks), binary="invoke").run(["invoke", *argv])
        except SystemExit as error:
            code = int(error.code or 0)
        return Done(code, *capsys.readouterr())

    return run
