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


def _environment(
    home: Path, user: str, mark: str, asked: Mapping[str, str], fixed: Mapping[str, str]
) -> dict[str, str]:
    return {
        **asked,
        "HOME": str(home),
        "USER": user,
        "LOGNAME": user,
        "SHELL": "/bin/sh",
        "PATH": f"{home}/bin:{SYSTEM_PATH}",
        "LANG": "C.UTF-8",
        "EAGLELAB_LAB": mark,
        **fixed,
    }


class _Sessions:
    """The commands that clients run. It outlives every connection, so that commands can too."""

    def __init__(self, home: Path, user: str, mark: str, fixed: Mapping[str, str]) -> None:
        self._home, self._user, self._mark, self._fixed = home, user, mark, fixed
        self._running: set[asyncio.Task[None]] = set()

    async def serve(self, channel: asyncssh.SSHServerProcess[bytes]) -> None:
        """Run what a session asks for; without a command, a shell that reads stdin."""
        argv = ["/bin/sh"] if channel.command is None else ["/bin/sh", "-c", channel.command]
        environment = _environment(self._home, self._user, self._mark, channel.env, self._fixed)
        # asyncssh drops its own tasks with the connection; this one goes on until the command has ended
        task = asyncio.create_task(_run(channel, argv, self._home, environment))
        self._running.add(task)
        task.add_done_callback(self._running.discard)


async def _run(
    channel: asyncssh.SSHServerProcess[bytes], argv: list[str], cwd: Path, environment: dict[str, str]
) -> None:
    """One command, in a session of its own, with pumps between its pipes and the channel.

    As with sshd, the session lasts until the command has ended and nobody holds its output any more. A client that
    goes away closes the pipes and leaves the command alone.
    """
    pipes = [os.pipe() for _ in range(3)]
    (stdin, feed), (out, stdout), (err, stderr) = pipes
    try:
        child = await asyncio.create_subprocess_exec(
            *argv, stdin=stdin, stdout=stdout, stderr=stderr, cwd=cwd, env=environment, start_new_session=True
        )
    except (OSError, ValueError) as error:
        for fd in (feed, out, err):
            os.close(fd)
        channel.stderr.write(f"lab: {error}\n".encode())
        channel.exit(126)
        return
    finally:
        for fd in (stdin, stdout, stderr):
            os.close(fd)
    feeding = asyncio.create_task(_feed(channel, feed, child.pid))
    try:
        await asyncio.gather(_pump(out, channel.stdout), _pump(err, channel.stderr))
        code = await child.wait()
        if code < 0:
            channel.exit_with_signal(signal.Signals(-code).name.removeprefix("SIG"))
        else:
            channel.exit(code)
    except (asyncssh.Error, OSError):
        await child.wait()
    finally:
        feeding.cancel()


async def _pump(fd: int, target: asyncssh.SSHWriter[bytes]) -> None:
    """From a pipe to the client, at the pace of the client; the pipe is closed at the end."""
    reader = asyncio.StreamReader(limit=CHUNK)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb", buffering=0)
    )
    try:
        while data := await reader.read(CHUNK):
            target.write(data)
            await target.drain()
    finally:
        transport.close()


async def _feed(channel: asyncssh.SSHServerProcess[bytes], fd: int, group: int) -> None:
    """From the client to stdin, end of file included; a signal request goes to the whole process group."""
    loop = asyncio.get_running_loop()
    protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
    transport, _ = await loop.connect_write_pipe(lambda: protocol, os.fdopen(fd, "wb", buffering=0))
    target = asyncio.StreamWriter(transport, protocol, None, loop)
    try:
        while data := await _next(channel, group):
            target.write(data)
            await target.drain()
    except (asyncssh.Error, OSError):
        pass  # the command reads no more, or the client is gone
    finally:
        target.close()


async def _next(channel: asyncssh.SSHServerProcess[bytes], group: int) -> bytes:
    """The client's next bytes; signals that come before them are passed on."""
    while True:
        try:
            return await channel.stdin.read(CHUNK)
        except asyncssh.SignalReceived as request:
            number = getattr(signal, f"SIG{request.signal}", None)
            if number is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(group, number)
        except (asyncssh.BreakReceived, asyncssh.TerminalSizeChanged):
            continue


async def _serve(options: argparse.Namespace) -> None:
    key = asyncssh.read_public_key(options.authorized)
    fixed = dict(each.split("=", 1) for each in options.set)
    sessions = _Sessions(Path(options.home), options.user, options.mark, fixed)
    server = await asyncssh.listen(
        "127.0.0.1",
        options.port,
        server_factory=lambda: _Server(options.user, key),
        server_host_keys=[options.host_key],
        process_factory=sessions.serve,
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
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="variables of every command")
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
