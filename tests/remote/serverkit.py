"""Small Python programs as servers, started by the agent's own code, and processes of strangers beside them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eaglelab.remote.agent.journal import Journal
from eaglelab.remote.agent.processes import start_ticks
from eaglelab.remote.agent.server import Server

__all__ = ["ServerHost", "alive", "free_port", "until"]

_RESERVED: deque[int] = deque()
_MOST_RESERVED = 64


def free_port() -> int:
    """A port for a server that is started later, or for nobody at all: nothing listens there.

    It stays reserved: bound and not listening, a socket keeps away whoever asks for any port, and every other
    `free_port` on this machine, but no server, as each of these binds with SO_REUSEADDR.
    """
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        port = int(reserved.getsockname()[1])
        _RESERVED.append(reserved.detach())
    if len(_RESERVED) > _MOST_RESERVED:
        os.close(_RESERVED.popleft())
    return port


def until(condition: Callable[[], Any], what: str, seconds: float = 60.0) -> Any:
    """The first true value of `condition`. Fails the test after `seconds`: far longer than what hangs need be told by."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    return start_ticks(pid) is not None


@dataclass
class ServerHost:
    """A state folder and what was started there. `close` ends all of it."""

    folder: Path
    port: int = field(default_factory=free_port)
    strangers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.server = self.fresh()

    def fresh(self) -> Server:
        """As the next agent has it."""
        return Server(Journal(str(self.folder / "state")))

    @property
    def log(self) -> Path:
        return self.folder / "logs/server.log"

    def script(self, text: str) -> list[str]:
        path = self.folder / "server.py"
        path.write_text(textwrap.dedent(text))
        return [sys.executable, "-S", str(path), str(self.folder)]

    def start(self, text: str, **changes: Any) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "run": "run-1",
            "command": self.script(text),
            "env": {},
            "log": str(self.log),
            "port": self.port,
            "cwd": str(self.folder),
            "about": {"steps": 2},
            "token": "token-1",
        }
        return self.server.start(**{**arguments, **changes})

    def stop(self, grace: float = 60.0) -> dict[str, Any]:
        return self.server.stop("run-2", grace, lambda _: None)

    def pid(self, name: str) -> int:
        """What a script wrote into a file of that name."""
        path = self.folder / name
        return int(until(lambda: path.exists() and path.read_text(), f"{name} is written"))

    def ended(self) -> dict[str, Any]:
        status: dict[str, Any] = until(
            lambda: (status := self.server.status())["alive"] is False and status, "the server has ended"
        )
        return status

    def gone(self) -> dict[str, Any]:
        """Once no process of ours is left: the server's keeper ends a moment after it has noted how the server did."""
        self.ended()
        status: dict[str, Any] = until(
            lambda: not (status := self.server.status())["there"] and status, "its keeper has ended"
        )
        return status

    def stranger(
        self, text: str, *arguments: str, env: Mapping[str, str] | None = None, before: tuple[str, ...] = ()
    ) -> subprocess.Popen[bytes]:
        """A process that is nothing to us, once it has printed a line. `before`: the program that starts it."""
        path = self.folder / "stranger.py"
        path.write_text(textwrap.dedent(text))
        process = subprocess.Popen(
            [*before, sys.executable, "-S", str(path), *arguments],
            stdout=subprocess.PIPE,
            start_new_session=True,
            env=None if env is None else {**os.environ, **env},
        )
        self.strangers.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        return process

    def close(self) -> None:
        for stranger in self.strangers:
            stranger.kill()
            stranger.communicate()
        for pid in self.server.members():
            os.kill(pid, signal.SIGKILL)
        until(lambda: not self.server.members(), "all processes of this test are gone")
