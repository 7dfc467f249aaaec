"""The lab's SSH server: real commands and real files of this machine, for one key, on loopback only.

Run detached by `lab-up`. Streams are pumped by hand as bytes: a slow reader on one side stops the other, and nothing
is decoded on the way.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import asyncssh

__all__ = ["main"]

CHUNK = 1 << 18
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class _Server(asyncssh.SSHServer):
    """Lets in one user with one key, forwards nothing."""

    def __init__(self, user: str, key: asyncssh.SSHKey) -> None:
        self._user, self._key = user, key

    def begin_auth(self, username: str) -> bool:  # noqa: ARG002 - the name is asyncssh's
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return username == self._user and key == self._key


def _environment(home: Path, user: str, mark: str, asked: Mapping[str, str]) -> dict[str, str]:
    return {
        **asked,
        "HOME": str(home),
        "USER": user,
        "LOGNAME": user,
        "SHELL": "/bin/sh",
        "PATH": f"{home}/bin:{SYSTEM_PATH}",
        "LANG": "C.UTF-8",
        "EAGLELAB_LAB": mark,
    }


class _Session:
    """One command: its process in a session of its own, and the three pumps."""

    def __init__(self, channel: asyncssh.SSHServerProcess[bytes], child: asyncio.subprocess.Process) -> None:
        self._channel, self._child = channel, child

    async def run(self) -> None:
        """Until the command has ended and its output is through (as sshd: a child that keeps a pipe open counts)."""
        child = self._child
        if child.stdin is None or child.stdout is None or child.stderr is None:
            raise RuntimeError("the command was started without pipes")
        feeding = asyncio.create_task(self._feed(child.stdin))
        out = self._pump(child.stdout, self._channel.stdout)
        err = self._pump(child.stderr, self._channel.stderr)
        await asyncio.gather(out, err)
        code = await child.wait()
        feeding.cancel()
        if code < 0:
            self._channel.exit_with_signal(signal.Signals(-code).name.removeprefix("SIG"))
        else:
            self._channel.exit(code)

    async def _pump(self, source: asyncio.StreamReader, target: asyncssh.SSHWriter[bytes]) -> None:
        while data := await source.read(CHUNK):
            target.write(data)
            await target.drain()

    async def _feed(self, target: asyncio.StreamWriter) -> None:
        """Client to stdin; a signal request goes to the whole process group."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while True:
                try:
                    data = await self._channel.stdin.read(CHUNK)
                except asyncssh.SignalReceived as request:
                    self._signal(request.signal)
                    continue
                except (asyncssh.BreakReceived, asyncssh.TerminalSizeChanged):
                    continue
                if not data:
                    break
                target.write(data)
                await target.drain()
        target.close()

    def _signal(self, name: str) -> None:
        number = getattr(signal, f"SIG{name}", None)
        if number is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, number)


async def _serve_process(channel: asyncssh.SSHServerProcess[bytes], home: Path, user: str, mark: str) -> None:
    """Run what a session asks for; without a command, a shell that reads stdin."""
    argv = ["/bin/sh"] if channel.command is None else ["/bin/sh", "-c", channel.command]
    try:
        child = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=home,
            env=_environment(home, user, mark, channel.env),
            start_new_session=True,
            limit=CHUNK,
        )
    except (OSError, ValueError) as error:
        channel.stderr.write(f"lab: {error}\n".encode())
        channel.exit(126)
        return
    # A client that goes away ends the pumps and closes the pipes; the command lives on, as under sshd.
    with contextlib.suppress(asyncssh.Error, ConnectionError):
        await _Session(channel, child).run()


async def _serve(options: argparse.Namespace) -> None:
    home, key = Path(options.home), asyncssh.read_public_key(options.authorized)

    async def process(channel: asyncssh.SSHServerProcess[bytes]) -> None:
        await _serve_process(channel, home, options.user, options.mark)

    server = await asyncssh.listen(
        "127.0.0.1",
        options.port,
        server_factory=lambda: _Server(options.user, key),
        server_host_keys=[options.host_key],
        process_factory=process,
        sftp_factory=True,
        encoding=None,
        line_editor=False,
        agent_forwarding=False,
        x11_forwarding=False,
    )
    with os.fdopen(options.ready_fd, "w") as ready:
        ready.write(f"{server.get_port()}\n")
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="eaglelab.lab.sshd", description=__doc__)
    parser.add_argument("--home", required=True)
    parser.add_argument("--host-key", required=True)
    parser.add_argument("--authorized", required=True)
    parser.add_argument("--user", required=True)
    parser.add_argument("--mark", required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ready-fd", type=int, required=True)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> Any:
    """Serve until SIGTERM; the port goes to `--ready-fd` once the server listens."""
    options = _options(argv)
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        # what started us may ignore them, and every command would inherit that
        signal.signal(number, signal.SIG_DFL)
    os.chdir(options.home)
    asyncio.run(_serve(options))


if __name__ == "__main__":
    main()
