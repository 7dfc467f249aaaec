"""A command of a scene at work, to be interrupted."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from scene import Done, Scene

__all__ = ["Controller"]


class Controller:
    """Signals go to the process that was started here, and to no other."""

    def __init__(self, scene: Scene, name: str, *words: str) -> None:
        self.scene = scene
        self._command = words[0]
        self._earlier = set((scene.folder / "logs").glob("*"))
        self._out, self._err = (scene.folder / f"{name}.{kind}" for kind in ("out", "err"))
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                scene.command(*words),
                cwd=scene.folder,
                env=scene.environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    @property
    def err(self) -> str:
        return self._err.read_text()

    def until(self, holds: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + 120
        while not holds():
            assert self.process.poll() is None, f"it ended before {what}:\n{self.err}"
            assert time.monotonic() < end, f"never {what}:\n{self.err}"
            time.sleep(0.005)

    def until_said(self, text: str) -> None:
        self.until(lambda: text in self.err, f"it said {text!r}")

    def until_begun(self, task: str) -> None:
        self.until(lambda: (task, "started") in self.events(), f"the task {task!r} began")

    def events(self) -> list[tuple[str, str]]:
        """Tasks and states of the run, once it has said anything."""
        folders = set((self.scene.folder / "logs").glob(f"*-{self._command}-*")) - self._earlier
        lines = [line for folder in folders for line in _lines(folder / "events.jsonl")]
        return [(event["task"], event["state"]) for event in map(json.loads, lines)]

    def interrupt(self, number: int = signal.SIGINT) -> None:
        self.process.send_signal(number)

    def end(self, timeout: float = 120) -> Done:
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        return Done(code, self._out.read_text(), self.err)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def _lines(path: Path) -> list[str]:
    """The whole lines: the last one may be on its way."""
    return [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")] if path.exists() else []
