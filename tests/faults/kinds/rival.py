"""A second controller that starts while the first is at work, or sleeps."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from kinds.moment import Scene

__all__ = ["FIRE"]

ASLEEP_S = 5
"""Longer than the driver lets an agent be patient."""

WORDS = {"rollback": ["rollback"], "deploy": ["deploy-profiling", "--tokens", "32"]}


def _command(scene: Scene, words: list[str]) -> list[str]:
    """A controller without a fault, in the other project folder."""
    folder = scene.control.parent
    point = json.loads((folder / "point.json").read_text())
    (folder / "rival.json").write_text(json.dumps({**point, "steps": []}))
    return [sys.executable, str(Path(__file__).parents[1] / "driver.py"), str(folder / "rival.json"), *words]


def _elsewhere(scene: Scene) -> Path:
    return scene.control.parent / "elsewhere"


def second(scene: Scene, step: dict[str, Any]) -> None:
    """It must end with 1 and say who is at work; anything else is left as a complaint for the harness."""
    command = _command(scene, WORDS[step["other"]])
    done = subprocess.run(
        command,
        cwd=_elsewhere(scene),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode != 1 or "another run is at work" not in done.stderr:
        said = f"the second controller ended with {done.returncode}: {done.stderr[-600:]}"
        (scene.control / "complaint").write_text(said)


def asleep(scene: Scene, step: dict[str, Any]) -> None:
    """A laptop that is shut: this process stops until its agent has given it up. `other` is what somebody does then."""
    then = shlex.join(_command(scene, WORDS[step["other"]])) if "other" in step else "true"
    script = f"sleep {ASLEEP_S}; {then}; kill -CONT {os.getpid()}"
    subprocess.Popen(
        ["sh", "-c", script],
        cwd=_elsewhere(scene),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.kill(os.getpid(), signal.SIGSTOP)


FIRE = {"lock.second-controller": second, "controller.asleep": asleep}
