"""Two byte streams to a command that runs on the host, whichever way it is reached."""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Sequence
from typing import Protocol

from eaglelab.errors import HostError

__all__ = ["Link", "LinkLost", "LocalLink", "Pipe"]


class LinkLost(HostError):
    """The connection broke or fell silent: what ran on the host has an unknown outcome until somebody looks."""


class Pipe(Protocol):
    """stdin and stdout of a remote command. All methods raise LinkLost when the link is gone or too slow."""

    def send(self, data: bytes, timeout: float) -> None: ...

    def receive(self, timeout: float) -> bytes:
        """Some bytes; empty at the end of the stream. Waits at most `timeout` seconds."""

    def ended(self) -> tuple[int | None, str]:
        """After the end of the stream: exit status (None: unknown) and what the command wrote to stderr."""

    def close(self) -> None: ...


class Link(Protocol):
    """A way to a host."""

    name: str

    def open(self, command: Sequence[str]) -> Pipe:
        """Starts a command. A leading `~/` of its first word is the home folder there."""

    def close(self) -> None: ...


class LocalLink:
    """This machine, without SSH (`connection: local`)."""

    def __init__(self, name: str) -> None:
        self.name = name

    def open(self, command: Sequence[str]) -> Pipe:
        program = os.path.expanduser(command[0])  # noqa: PTH111 - a bare command name is looked up on PATH
        try:
            process = subprocess.Popen(
                [program, *command[1:]],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise HostError(
                f"cannot run {command[0]}: {error.strerror}",
                where=self.name,
                hint="set `python` of this host in inventory.yaml",
            ) from error
        return _LocalPipe(process, self.name)

    def close(self) -> None:
        pass


class _LocalPipe:
    def __init__(self, process: subprocess.Popen[bytes], name: str) -> None:
        self._process = process
        self._name = name

    def send(self, data: bytes, timeout: float) -> None:  # noqa: ARG002 - a local pipe takes what the agent reads
        assert self._process.stdin is not None  # noqa: S101 - opened with PIPE
        try:
            self._process.stdin.write(data)
            self._process.stdin.flush()
        except OSError as error:
            raise LinkLost("the agent is gone", where=self._name) from error

    def receive(self, timeout: float) -> bytes:
        assert self._process.stdout is not None  # noqa: S101 - opened with PIPE
        descriptor = self._process.stdout.fileno()
        if not select.select([descriptor], [], [], timeout)[0]:
            raise LinkLost(f"no answer for {timeout:.0f} s", where=self._name)
        return os.read(descriptor, 1 << 20)

    def ended(self) -> tuple[int | None, str]:
        assert self._process.stderr is not None  # noqa: S101 - opened with PIPE
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return None, ""
        return code, self._process.stderr.read().decode(errors="replace")

    def close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    continue  # unsent bytes for an agent that has ended
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
