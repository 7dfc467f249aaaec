"""Agents on this machine, reached over links that break where a test wants them to."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eaglelab.remote.client import AgentClient
from eaglelab.remote.pipe import LinkLost, LocalLink, Pipe

__all__ = ["BreakingLink", "client", "interpreters", "wrapper"]


def client(link: LocalLink | None = None, python: str = sys.executable, **more: Any) -> AgentClient:
    """Retries without waiting, and soon gives up what starts no agent."""
    more.setdefault("start_silence", 5.0)
    return AgentClient(link or BreakingLink(), python, sleep=lambda _: None, **more)


@dataclass
class BreakingLink(LocalLink):
    """Links to this machine. `faults` are used up, one a connection: each is given the pipe of a new agent."""

    name: str = "here"
    faults: list[Callable[[BreakingPipe], None]] = field(default_factory=list)
    pipes: list[BreakingPipe] = field(default_factory=list)

    def open(self, command: Sequence[str]) -> Pipe:
        pipe = BreakingPipe(super().open(command))
        self.pipes.append(pipe)
        if self.faults:
            self.faults.pop(0)(pipe)
        return pipe

    @property
    def pid(self) -> int:
        return self.pipes[-1].pid


class BreakingPipe:
    """A pipe that is cut after so many bytes, once its agent runs. A cut kills nobody: the agent sees its stdin end."""

    def __init__(self, pipe: Any) -> None:
        self._pipe = pipe
        self.pid: int = pipe._process.pid
        self.sent_left: int | None = None
        self.received_left: int | None = None
        self.greeted = False

    def send(self, data: bytes, timeout: float) -> None:
        if self.greeted and self.sent_left is not None:
            part, self.sent_left = data[: self.sent_left], self.sent_left - len(data)
            self._pipe.send(part, timeout)
            if self.sent_left < 0:
                raise LinkLost("the connection broke", where="here")
            return
        self._pipe.send(data, timeout)

    def receive(self, timeout: float) -> bytes:
        if self.greeted and self.received_left is not None and self.received_left <= 0:
            raise LinkLost("the connection broke", where="here")
        data: bytes = self._pipe.receive(timeout)
        if not self.greeted:
            self.greeted = b"EAGLELAB-AGENT-READY" in data
            return data
        if self.received_left is not None:
            data = data[: self.received_left]
            self.received_left -= len(data)
        return data

    def ended(self) -> tuple[int | None, str]:
        found: tuple[int | None, str] = self._pipe.ended()
        return found

    def close(self) -> None:
        self._pipe.close()


def wrapper(folder: Path, name: str, text: str) -> str:
    """A shell script that may pass for a host's Python."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def interpreters() -> dict[str, str]:
    """Pythons of this machine by version, 3.8 and later."""
    named = [shutil.which(f"python3.{minor}") for minor in range(8, 16)]
    built = sorted(Path("~/.pyenv/versions").expanduser().glob("3.*/bin/python"))
    found: dict[str, str] = {}
    for path in [*named, *map(str, built)]:
        if path is None:
            continue
        # pyenv's own python3.8 may be there and refuse to run.
        script = "import sys; print('%d.%d' % sys.version_info[:2])"
        done = subprocess.run([path, "-S", "-c", script], capture_output=True, text=True, check=False)
        if done.returncode == 0 and int(done.stdout.split(".")[1]) >= 8:
            found.setdefault(done.stdout.strip(), path)
    return found
