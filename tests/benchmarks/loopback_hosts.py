"""Many hosts on this machine: OpenSSH servers with a port, a home and an SGLang package with one worker for each host."""

from __future__ import annotations

import getpass
import hashlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CASE = ROOT / "tests/cases/patching/l-0.5.9-three-contexts-in-one-with/before.py"
LINES = 1000
MOST = 16
"""One sshd takes no more sockets to listen on."""


def worker() -> bytes:
    """A worker's shape in a file of 1000 lines."""
    filler = [f"def helper_{number}(value):\n    return value + {number}\n\n\n" for number in range(LINES)]
    text = CASE.read_text()
    while text.count("\n") < LINES:
        text += filler.pop(0)
    return "".join(text.splitlines(keepends=True)[:LINES]).encode()


@dataclass(frozen=True)
class LoopbackHost:
    """One port of the server, and the home that a session there has."""

    name: str
    port: int
    home: Path

    @property
    def package(self) -> Path:
        return self.home / "sglang/python/sglang"

    @property
    def worker(self) -> Path:
        return self.package / "srt/speculative/eagle_worker.py"

    @property
    def python(self) -> Path:
        return self.home / "env/bin/python3"

    def lay_out(self) -> None:
        self.worker.parent.mkdir(parents=True)
        self.worker.write_bytes(worker())
        for folder in (self.package, self.package / "srt", self.worker.parent):
            (folder / "__init__.py").touch()
        (self.package / "version.py").write_text('__version__ = "0.5.9.dev1"\n')
        self.python.parent.mkdir(parents=True)
        package_path = self.package.parent
        self.python.write_text(f'#!/bin/sh\nPYTHONPATH={package_path} exec {sys.executable} "$@"\n')
        self.python.chmod(0o755)


@dataclass(frozen=True)
class Farm:
    """The hosts, the key that their servers let in, and the known_hosts file with a line for each."""

    folder: Path
    hosts: tuple[LoopbackHost, ...]
    key: Path
    known_hosts: Path
    user: str

    def untouched(self) -> bool:
        """Whether every worker is what it was."""
        want = hashlib.sha256(worker()).hexdigest()
        return all(hashlib.sha256(host.worker.read_bytes()).hexdigest() == want for host in self.hosts)


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [found.getsockname()[1] for found in sockets]
    for found in sockets:
        found.close()
    return ports


@contextmanager
def farm(folder: Path, count: int) -> Iterator[Farm]:
    """`count` hosts while it is entered. Ends with SystemExit where there is no sshd."""
    program = shutil.which("sshd") or "/usr/sbin/sshd"
    if not Path(program).exists():
        raise SystemExit("OpenSSH's sshd is not installed: apt-get install openssh-server")
    folder.mkdir()
    key, host_key = (_make_key(folder / name) for name in ("client", "host"))
    (folder / "authorized").write_text(key.with_suffix(".pub").read_text())
    hosts = tuple(LoopbackHost(f"h{port}", port, folder / f"home-{port}") for port in free_ports(count))
    for host in hosts:
        host.lay_out()
    public = " ".join(host_key.with_suffix(".pub").read_text().split()[:2])
    known = folder / "known_hosts"
    known.write_text("".join(f"[127.0.0.1]:{host.port} {public}\n" for host in hosts))
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    with ExitStack() as servers:
        for number in range(0, count, MOST):
            servers.enter_context(_server(program, folder, host_key, hosts[number : number + MOST]))
        yield Farm(folder, hosts, key, known, getpass.getuser())


@contextmanager
def _server(program: str, folder: Path, host_key: Path, hosts: tuple[LoopbackHost, ...]) -> Iterator[None]:
    name = f"sshd-{hosts[0].port}"
    config, errors = folder / f"{name}.conf", folder / f"{name}.log"
    config.write_text("\n".join(_config(folder, host_key, hosts)) + "\n")
    with errors.open("wb") as log:
        process = subprocess.Popen([program, "-D", "-e", "-f", str(config)], stdin=subprocess.DEVNULL, stderr=log)
    try:
        _wait_for(hosts, process, errors)
        yield
    finally:
        process.terminate()
        process.wait()


def _make_key(path: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "bench", "-f", str(path)], check=True)
    return path


def _config(folder: Path, host_key: Path, hosts: tuple[LoopbackHost, ...]) -> Iterator[str]:
    for host in hosts:
        yield f"ListenAddress 127.0.0.1:{host.port}"
    yield f"HostKey {host_key}"
    yield f"AuthorizedKeysFile {folder}/authorized"
    yield "PidFile none"
    yield from ("PermitRootLogin yes", "PasswordAuthentication no", "KbdInteractiveAuthentication no")
    yield from ("StrictModes no", "UsePAM no", "MaxStartups 200:30:400", "LogLevel ERROR")
    yield "Subsystem sftp internal-sftp"
    for host in hosts:
        yield f"Match LocalPort {host.port}"
        yield f"  SetEnv HOME={host.home} XDG_STATE_HOME={host.home}/state"


def _wait_for(hosts: tuple[LoopbackHost, ...], process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + 10
    for host in hosts:
        while True:
            try:
                socket.create_connection(("127.0.0.1", host.port), 1).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"sshd does not listen: {log.read_text()}") from None
                time.sleep(0.02)
