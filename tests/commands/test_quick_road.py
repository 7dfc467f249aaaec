"""A patch and its rollback wait for no library that they have no use for: most of what such a command takes is its start."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CASE = ROOT / "tests/cases/patching/l-0.5.9-three-contexts-in-one-with/before.py"
HEAVY = {
    "numpy",
    "matplotlib",
    "rich",
    "ahocorasick_rs",
    "zstandard",
    "asyncssh",
    "eaglelab.report",
    "eaglelab.model",
    "eaglelab.diagnosis.of_run",
    "eaglelab.diagnosis.of_log",
    "eaglelab.lab",
    "eaglelab.sweep.plan",
}
BEFORE_CONTACT = {"jinja2", "eaglelab.diagnosis.engine"}
"""What the work needs, and what is loaded while the host is being reached."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose one host is this machine, with a playbook that patches and rolls back."""
    package = tmp_path / "host/python/sglang"
    worker = package / "srt/speculative/eagle_worker.py"
    worker.parent.mkdir(parents=True)
    shutil.copy(CASE, worker)
    for folder in (package, package / "srt", worker.parent):
        (folder / "__init__.py").touch()
    (package / "version.py").write_text('__version__ = "0.5.9.dev1"\n')
    python = tmp_path / "host/python3"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={package.parent} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (tmp_path / "inventory.yaml").write_text(
        f"hosts:\n  here: {{connection: local, python: {python}, sglang: {package}, log: {tmp_path}/log}}\n"
    )
    tasks = "".join(f"  - {name}:\n" for name in ("doctor", "plan", "backup", "patch", "rollback"))
    (tmp_path / "playbooks").mkdir()
    (tmp_path / "playbooks/job.yaml").write_text(f"name: job\ntasks:\n{tasks}")
    (tmp_path / "patches").symlink_to(ROOT / "patches")
    shutil.copy(ROOT / "tasks.py", tmp_path / "tasks.py")
    return tmp_path


INVOKE = """
import atexit, sys
atexit.register(lambda: print("LOADED " + " ".join(sorted(sys.modules)), file=sys.stderr))
from invoke.main import program
program.run()
"""


def loaded(project: Path, *words: str, code: int) -> set[str]:
    """The modules that one command has loaded when it ends."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(project / "state"), "EAGLELAB_HOST": "here"}
    done = subprocess.run(
        [sys.executable, "-c", INVOKE, *words],
        cwd=project,
        env={name: value for name, value in env.items() if name not in ("FORCE_COLOR", "TTY_COMPATIBLE")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr[-3000:]
    return set(done.stderr.rpartition("LOADED ")[2].split())


def test_a_patch_and_its_rollback_load_nothing_that_they_do_not_need(project: Path) -> None:
    names = loaded(project, "play", "job", code=0)
    assert {"pydantic", "eaglelab.actions.undo", "eaglelab.diagnosis.engine"} <= names  # it was seen at work
    assert names & HEAVY == set()
    worker = project / "host/python/sglang/srt/speculative/eagle_worker.py"
    assert worker.read_bytes() == CASE.read_bytes()


def test_what_is_refused_is_refused_before_the_work_is_loaded(project: Path) -> None:
    names = loaded(project, "play", "job", "--host", "nobody", code=2)
    assert "pydantic" in names
    assert names & (HEAVY | BEFORE_CONTACT | {"paramiko", "fabric"}) == set()
