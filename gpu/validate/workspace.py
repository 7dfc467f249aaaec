"""A project folder of its own for the experiments, and the project's commands run in it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

__all__ = ["HOST", "ROOT", "CommandError", "Done", "NoServerError", "Workspace"]

ROOT = Path(__file__).resolve().parents[2]
HOST = "here"
"""Name of the one host in the workspace's inventory."""


class CommandError(Exception):
    """A command of the project did not end as it should."""


class NoServerError(CommandError):
    """The server of a setting did not come up, or not as it should: unpatched, or without the probe."""


@dataclass(frozen=True)
class Done:
    """A command that has ended: its exit code, its JSON object (empty if it printed none), and what it said."""

    code: int
    outcome: Mapping[str, Any]
    said: str

    @property
    def host(self) -> dict[str, Any]:
        """What the outcome says of the host."""
        return dict(self.outcome.get("hosts", {}).get(HOST, {}))


class Workspace:
    """`folder` gets copies of what a clone holds besides the package; bundles and the lab then stay in there."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self.folder = folder
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        self._env = {**os.environ, **env, "PYTHONPATH": path, "EAGLELAB_HOST": HOST}
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "tasks.py", folder)
        for name in ("playbooks", "patches"):
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, folder / name, dirs_exist_ok=True, ignore=ignore)

    def inventory(self, entry: Mapping[str, Any]) -> None:
        """Makes `entry` the only host."""
        text = yaml.safe_dump({"default_host": HOST, "hosts": {HOST: dict(entry)}})
        (self.folder / "inventory.yaml").write_text(text, encoding="utf-8")

    def start(self, *words: str) -> subprocess.Popen[str]:
        """`invoke WORDS`, on its way."""
        return subprocess.Popen(
            [sys.executable, "-m", "invoke", *words],
            cwd=self.folder,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self, command: subprocess.Popen[str], timeout: float) -> Done:
        """Waits for a command that was started. Raises CommandError after `timeout` seconds, and ends it."""
        shown = shlex.join(str(word) for word in command.args) if isinstance(command.args, list) else str(command.args)
        try:
            out, err = command.communicate(timeout=timeout)
        except subprocess.TimeoutExpired as error:
            command.terminate()  # it puts the host back
            try:
                command.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                command.kill()
                command.communicate()
            raise CommandError(f"{shown} took longer than {timeout:.0f} s") from error
        lines = out.splitlines()
        try:
            outcome = json.loads(lines[-1]) if lines else {}
        except ValueError:
            outcome = {}
        return Done(command.returncode, outcome if isinstance(outcome, dict) else {}, err)

    def invoke(self, *words: str, timeout: float, code: int | None = 0) -> Done:
        """Runs `invoke WORDS --json`. Raises CommandError unless it ends with `code` (None: any)."""
        done = self.end(self.start(*words, "--json"), timeout)
        if code is not None and done.code != code:
            raise CommandError(f"invoke {' '.join(words)} ended with {done.code}, not {code}: {_why(done)}")
        return done


def _why(done: Done) -> str:
    """The command's own words for what went wrong, less the log's lines after the first; else the end of what it said."""
    error = done.outcome.get("error")
    if isinstance(error, Mapping) and error.get("what"):
        first = str(error["what"]).strip().splitlines()[0]
        return f"{first} (hint: {error['hint']})" if error.get("hint") else first
    return " / ".join(done.said.strip().splitlines()[-6:])
