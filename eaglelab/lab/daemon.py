"""Starting the lab's SSH server in the background, and the first login that proves it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from eaglelab.errors import HostError
from eaglelab.lab.keys import Keys, make_keys, write_known_hosts

__all__ = ["ADDRESS", "USER", "Server", "log_in", "start"]

ADDRESS = "127.0.0.1"
USER = "lab"


@dataclass(frozen=True)
class Server:
    """An SSH server that listens."""

    pid: int
    port: int
    keys: Keys
    known_hosts: Path


def start(root: Path, home: Path, mark: str, port: int) -> Server:
    """Make keys and start the server detached, its output in `sshd.log`; `port` 0 takes a free one.

    Raises:
        HostError: it ended before it listened (its last line; most often the port is taken).
    """
    keys = make_keys(root)
    reader, writer = os.pipe()
    log = root / "sshd.log"
    options = {
        "--home": home,
        "--host-key": keys.host,
        "--authorized": keys.authorized,
        "--user": USER,
        "--mark": mark,
        "--port": port,
        "--ready-fd": writer,
    }
    command = [sys.executable, "-m", "eaglelab.lab.sshd", *(str(word) for pair in options.items() for word in pair)]
    source = Path(__file__).resolve().parents[2]
    path = os.pathsep.join(filter(None, (str(source), os.environ.get("PYTHONPATH"))))
    with log.open("wb") as output, os.fdopen(reader) as ready:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, "EAGLELAB_LAB": mark, "PYTHONPATH": path},
            pass_fds=(writer,),
            start_new_session=True,
        )
        os.close(writer)
        line = ready.readline()
    if not line:
        process.wait()
        last = (log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or ["no output"])[-1]
        raise HostError(f"the lab's SSH server did not start: {last}", hint="choose another --port")
    process.returncode = 0  # it is meant to outlive this process, which must not complain of that
    known_hosts = root / "known_hosts"
    write_known_hosts(known_hosts, ADDRESS, int(line), keys.host)
    return Server(process.pid, int(line), keys, known_hosts)


def log_in(server: Server, mark: str) -> None:
    """Run one command over SSH with the lab's key, the host key checked.

    Raises:
        HostError: it did not work, or another server answered.
    """
    where = f"{ADDRESS}:{server.port}"

    async def mark_of_session() -> str:
        async with asyncssh.connect(
            ADDRESS,
            server.port,
            username=USER,
            client_keys=[str(server.keys.client)],
            known_hosts=str(server.known_hosts),
            config=None,
            connect_timeout=10,
        ) as connection:
            return str((await connection.run('echo "$EAGLELAB_LAB"', check=True)).stdout).strip()

    try:
        answer = asyncio.run(mark_of_session())
    except (OSError, asyncssh.Error) as error:
        raise HostError(f"the lab's SSH server does not let us in: {error}", where=where) from error
    if answer != mark:
        raise HostError("another SSH server answers in place of the lab's", where=where)
