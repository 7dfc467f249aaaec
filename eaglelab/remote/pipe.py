"""Two byte streams to a command that runs on the host, whichever way it is reached."""

from __future__ import annotations

import contextlib
import getpass
import os
import select
import subprocess
import tempfile
from collections.abc import Sequence
from typing import IO, Protocol

from eaglelab.errors import HostError
from eaglelab.remote.sudo import SUDO

__all__ = ["Late", "Link", "LinkLost", "LocalLink", "Pipe", "Silent"]

_END_S = 2.0
"""How long a command may take to end once its stdin is closed."""


class LinkLost(HostError):
    """The connection broke or fell silent: what ran on the host has an unknown outcome until somebody looks."""


class Silent(LinkLost):
    """Nothing came, or nothing was taken, for too long."""


class Late(Silent):
    """No answer within the time that was given for it; the line may be alive."""


class Pipe(Protocol):
    """stdin and stdout of a remote command. All methods but `close` raise LinkLost when the link is gone or too slow."""

    def send(self, data: bytes, timeout: float) -> None:
        """Sends all of `data`. Waits at most `timeout` seconds for each piece to be taken."""

    def receive(self, timeout: float) -> bytes:
        """Some bytes; empty at the end of the stream. Waits at most `timeout` seconds."""

    def ended(self) -> tuple[int | None, str]:
        """After the end of the stream: exit status (None: unknown, or a signal) and what the command wrote to stderr."""

    def close(self) -> None:
        """Ends stdin and gives the command a moment to end by itself."""


class Link(Protocol):
    """A way to a host. `sudo_user`: who becomes root there, by sudo, for every command; None where nobody does."""

    name: str
    sudo_user: str | None

    def open(self, command: Sequence[str]) -> Pipe:
        """Starts a command. A leading `~/` of its first word is the home folder there. Raises LinkLost or HostError."""

    def close(self) -> None:
        """Lets the way go, also one that hangs; the next `open` makes a new one."""


class LocalLink:
    """This machine, without SSH (`connection: local`)."""

    sudo_user: str | None = None

    def __init__(self, name: str, *, sudo: bool = False) -> None:
        self.name = name
        self.sudo_user = getpass.getuser() if sudo else None

    def open(self, command: Sequence[str]) -> Pipe:
        program = os.path.expanduser(command[0])  # noqa: PTH111 - a bare command name is looked up on PATH
        words = [*(SUDO if self.sudo_user else ()), program, *command[1:]]
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - the pipe closes it; a file, since nobody empties it meanwhile
        try:
            process = subprocess.Popen(
                words,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,  # a Ctrl-C in the terminal is the controller's to deal with
            )
        except OSError as error:
            errors.close()
            raise HostError(
                f"cannot run {words[0]}: {error.strerror}",
                where=self.name,
                hint=f"set `{'sudo' if self.sudo_user else 'python'}` of this host in inventory.yaml",
            ) from error
        return _LocalPipe(process, errors, self.name)

    def close(self) -> None:
        pass


class _LocalPipe:
    def __init__(self, process: subprocess.Popen[bytes], errors: IO[bytes], name: str) -> None:
        assert process.stdin is not None  # noqa: S101 - opened with PIPE
        assert process.stdout is not None  # noqa: S101 - opened with PIPE
        self._process, self._errors, self._name = process, errors, name
        self._in, self._out = process.stdin, process.stdout
        os.set_blocking(self._in.fileno(), False)

    def send(self, data: bytes, timeout: float) -> None:
        rest = memoryview(data)
        while rest:
            if not select.select([], [self._in], [], timeout)[1]:
                raise Silent(f"the agent took nothing for {timeout:g} s", where=self._name)
            try:
                rest = rest[os.write(self._in.fileno(), rest) :]
            except OSError as error:
                raise LinkLost("the agent is gone", where=self._name) from error

    def receive(self, timeout: float) -> bytes:
        if not select.select([self._out], [], [], timeout)[0]:
            raise Late(f"no answer for {timeout:g} s", where=self._name)
        return os.read(self._out.fileno(), 1 << 20)

    def ended(self) -> tuple[int | None, str]:
        try:
            code = self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            return None, ""
        self._errors.seek(0)
        return (code if code >= 0 else None), self._errors.read().decode(errors="replace")

    def close(self) -> None:
        self._in.close()
        self._out.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(PermissionError):  # root's, by sudo: it ends by itself, its stdin has ended
                self._process.kill()
                self._process.wait()
        self._errors.close()
