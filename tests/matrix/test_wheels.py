from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest
import wheels

FILES = {
    "sglang/version.py": "__version__ = '0.5.9'",
    "sglang/srt/speculative/eagle_worker.py": "pass",
    "sglang/srt/speculative/cpp_ngram/ngram.cpp": "int x;",
    "sglang/srt/managers/scheduler.py": "pass",
}


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """pip downloads a small wheel into its --dest."""
    seen: list[list[str]] = []

    def run(command: list[str], **_options) -> subprocess.CompletedProcess[str]:
        seen.append(command)
        dest = Path(command[command.index("--dest") + 1])
        with zipfile.ZipFile(dest / "sglang-0.5.9-py3-none-any.whl", "w") as archive:
            for name, text in FILES.items():
                archive.writestr(name, text)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(wheels.subprocess, "run", run)
    return seen


def test_only_the_worker_files_are_kept_and_only_one_download_is_made(commands, tmp_path: Path):
    folder = wheels.fetched("0.5.9", tmp_path)
    assert wheels.fetched("0.5.9", tmp_path) == folder == tmp_path / "workers-0.5.9"
    kept = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert kept == ["sglang/srt/speculative/eagle_worker.py", "sglang/version.py"]
    assert len(commands) == 1
    assert "--no-deps" in commands[0]
    assert "--only-binary=:all:" in commands[0]
    assert [path.name for path in tmp_path.iterdir()] == ["workers-0.5.9"]


def test_a_failed_download_says_what_pip_said_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    failed = subprocess.CompletedProcess([], 1, "", "warning\nERROR: No matching distribution found\n")
    monkeypatch.setattr(wheels.subprocess, "run", lambda *_args, **_options: failed)
    with pytest.raises(OSError, match=r"sglang 9\.9 could not be downloaded: ERROR: No matching"):
        wheels.fetched("9.9", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_download_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def hang(command, *, timeout, **_options):
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(wheels.subprocess, "run", hang)
    with pytest.raises(OSError, match="within 300 s"):
        wheels.fetched("0.5.9", tmp_path)
