"""A project folder of its own, so that a test's lab and bundles are never the user's."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> dict[str, Any]:
        """The last line of stdout."""
        return dict(json.loads(self.stdout.splitlines()[-1]))


@dataclass
class Scene:
    """A copy of what a clone holds besides the package, and the commands run in it."""

    folder: Path
    env: dict[str, str] = field(default_factory=dict)

    @classmethod
    def make(cls, folder: Path) -> Scene:
        for name in ("tasks.py", "inventory.yaml"):
            shutil.copy(ROOT / name, folder / name)
        for name in ("playbooks", "patches"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        return cls(folder)

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "invoke", *words]

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        path = os.pathsep.join([str(ROOT), os.environ["PYTHONPATH"]])
        return {
            **os.environ,
            "COLUMNS": "100",
            "PYTHONPATH": path,
            "EAGLELAB_HOST": "sim",
            "EAGLELAB_LOOPBACK_ONLY": "1",
            **self.env,
            **(more or {}),
        }

    def invoke(self, *words: str, code: int | None = 0, timeout: float = 600) -> Done:
        """Runs a command to its end; fails the test if it does not end with `code` (None: any) within `timeout` seconds."""
        done = subprocess.run(
            self.command(*words),
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if code is not None and done.returncode != code:
            raise AssertionError(
                f"invoke {' '.join(words)} ended with {done.returncode}, not {code}:\n{done.stdout}\n{done.stderr}"
            )
        return Done(done.returncode, done.stdout, done.stderr)

    def killed_after(self, tasks: int, *words: str) -> int:
        """Runs a command whose controller gets SIGKILL once `tasks` tasks of its playbook are done. Returns its code."""
        driver = Path(__file__).with_name("kill_after.py")
        command = [sys.executable, str(driver), str(tasks), *words]
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment(), capture_output=True, text=True, timeout=600, check=False
        )
        if done.returncode not in (0, -signal.SIGKILL):
            raise AssertionError(f"{words} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
        return done.returncode


def picture(folder: Path) -> dict[str, tuple[str, int, int, int]]:
    """Every file below `folder` (bytecode aside): sha256, mode, uid, gid."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            info = path.stat()
            found[str(path.relative_to(folder))] = (
                hashlib.sha256(path.read_bytes()).hexdigest(),
                info.st_mode,
                info.st_uid,
                info.st_gid,
            )
    return found


def processes_of(mark: str) -> list[str]:
    """Command lines of the living processes that carry `mark` in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found
