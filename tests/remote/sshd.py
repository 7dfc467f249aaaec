"""OpenSSH's own server on loopback, with keys, port and home folder of its own, run as the user who tests."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from serverkit import free_port, until

from eaglelab.remote.endpoint import Endpoint

__all__ = ["Sshd", "make_key"]


def make_key(path: Path, kind: str = "ed25519", passphrase: str = "") -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", "test", "-f", path], check=True)
    return path


def _program() -> str:
    found = shutil.which("sshd") or "/usr/sbin/sshd"
    if not Path(found).exists():
        pytest.skip("OpenSSH's sshd is not installed (apt-get install openssh-server)")
    return found


def _read(path: Path) -> str:
    """A file of /proc; empty once its process is gone."""
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _state(pid: int) -> str:
    """One letter, as ps shows it; empty once the process is gone."""
    return _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].strip()[:1]


@dataclass
class Sshd:
    """`home` is HOME of every session, `state` its state folder. `options` are further lines of sshd_config.

    `shell`: what the login shell is, instead of the user's own, and its options; `environment`: more variables.
    """

    folder: Path
    options: tuple[str, ...] = ()
    host_keys: tuple[str, ...] = ("ed25519", "rsa")
    address: str = "127.0.0.1"
    shell: str | None = None
    environment: str = ""
    port: int = field(default_factory=free_port)

    def __post_init__(self) -> None:
        program = _program()
        self.home.mkdir(parents=True)
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        self.key = make_key(self.folder / "client")
        (self.folder / "authorized").write_text(self.key.with_suffix(".pub").read_text())
        keys = [make_key(self.folder / f"host_{kind}", kind) for kind in self.host_keys]
        lines = [
            f"ListenAddress {self.place}",
            *(f"HostKey {key}" for key in keys),
            f"AuthorizedKeysFile {self.folder}/authorized",
            f"PidFile {self.folder}/pid",
            f"SetEnv HOME={self.home} XDG_STATE_HOME={self.home}/state {self.environment}",
            "PermitRootLogin yes",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "StrictModes no",
            "UsePAM no",
            "MaxStartups 200:30:400",
            "LogLevel ERROR",
            # As sshd itself starts a login shell, whose path it would take from the user's entry.
            *([f'ForceCommand exec {self.shell} -c "$SSH_ORIGINAL_COMMAND"'] if self.shell else []),
            *self.options,
        ]
        (self.folder / "sshd_config").write_text("\n".join(lines) + "\n")
        self._log = (self.folder / "sshd.log").open("wb")
        command = [program, "-D", "-e", "-f", str(self.folder / "sshd_config")]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=self._log)
        until(self._listens, f"sshd listens: {(self.folder / 'sshd.log').read_text()}")
        self.known_hosts.write_text("".join(self.known_line(kind) for kind in self.host_keys))

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def place(self) -> str:
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    def known_line(self, kind: str, key: Path | None = None) -> str:
        public = (key or self.folder / f"host_{kind}").with_suffix(".pub").read_text()
        return f"[{self.address}]:{self.port} {' '.join(public.split()[:2])}\n"

    def endpoint(self, **changes: object) -> Endpoint:
        known: dict[str, object] = {
            "address": self.address,
            "port": self.port,
            "user": getpass.getuser(),
            "keys": (str(self.key),),
            "known_hosts": (str(self.known_hosts),),
            "identities_only": True,
            "connect_timeout": 30.0,
        }
        return Endpoint(**{**known, **changes})  # type: ignore[arg-type]

    def sessions(self) -> list[int]:
        """Pids of the sshd processes that serve connections, children before parents."""
        found, todo = [], [self._process.pid]
        while todo:
            pid = todo.pop()
            for child in _read(Path(f"/proc/{pid}/task/{pid}/children")).split():
                if _read(Path(f"/proc/{child}/comm")).startswith("sshd"):
                    todo.append(int(child))
                    found.append(int(child))
        return found[::-1]

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stops the connections that there are: no byte and no end comes from them any more. Afterwards they are ended."""
        stopped = []
        for pid in self.sessions():
            with contextlib.suppress(ProcessLookupError):  # it ended by itself meanwhile
                os.kill(pid, signal.SIGSTOP)
                stopped.append(pid)
        try:
            until(lambda: all(_state(pid) in ("T", "Z", "") for pid in stopped), "the connections stand still")
            yield
        finally:
            for pid in stopped:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def signal_sessions(self, number: int) -> None:
        for pid in self.sessions():
            with contextlib.suppress(ProcessLookupError):  # it ended by itself meanwhile
                os.kill(pid, number)

    def close(self) -> None:
        self.signal_sessions(signal.SIGKILL)
        self._process.terminate()
        self._process.wait()
        self._log.close()

    def _listens(self) -> bool:
        assert self._process.poll() is None, (self.folder / "sshd.log").read_text()
        time.sleep(0.01)
        return (self.folder / "pid").exists()
