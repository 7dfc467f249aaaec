"""A proxy command as the socket of a connection."""

from __future__ import annotations

import socket
import subprocess
import tempfile

__all__ = ["Proxy"]

_END_S = 2.0


class Proxy:
    """A running `ProxyCommand`; `socket` is its two streams.

    It is run by a shell, as ssh does it. In a session of its own: a Ctrl-C in the terminal must not cut the way to a
    host that is about to be put back.
    """

    def __init__(self, command: str) -> None:
        self.socket, theirs = socket.socketpair()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the proxy
        with theirs:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {command}"],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=self._errors,
                start_new_session=True,
            )

    def errors(self) -> str:
        """What it has written to stderr."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace").strip()[-500:]

    def close(self) -> None:
        """Closes the streams, which ends a well-behaved proxy; others are ended."""
        self.socket.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()
