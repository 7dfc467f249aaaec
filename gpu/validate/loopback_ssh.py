"""An SSH server on loopback, for one key: OpenSSH's own where this machine has it, else that of the embedded lab.

Commands that come in through it get what they would get through `connection: local` of this process's environment, as far as
a server needs it: where programs and the GPU's libraries are, and the folder of state.
"""

from __future__ import annotations

import getpass
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from gpu.validate.workspace import ROOT, CommandError

__all__ = ["LabServer", "LoopbackServer", "OpenSshServer", "loopback_server"]

_ADDRESS = "127.0.0.1"
_PASSED_ON = ("PATH", "XDG_STATE_HOME", "XDG_CACHE_HOME", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH")
_END_S = 20.0
_LISTEN_TRIES, _LISTEN_PAUSE_S = 50, 0.1


def loopback_server(folder: Path) -> LoopbackServer:
    """Starts one with new keys in `folder`. Raises CommandError where neither can be had, or it does not listen."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, mode=0o700)
    programs = _openssh()
    if programs is not None:
        return OpenSshServer(folder, *programs)
    if importlib.util.find_spec("asyncssh") is None:
        raise CommandError(
            "this machine has no OpenSSH server (sshd and ssh-keygen), and Python no asyncssh for the lab's"
        )
    return LabServer(folder)


def _openssh() -> tuple[str, str] | None:
    """sshd, often beside the PATH of a user, and ssh-keygen; None unless both are there."""
    sshd = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin")
    keygen = shutil.which("ssh-keygen")
    return None if sshd is None or keygen is None else (sshd, keygen)


def _passed_on() -> dict[str, str]:
    found = {name: os.environ[name] for name in _PASSED_ON if os.environ.get(name)}
    return {"XDG_STATE_HOME": str(Path.home() / ".local/state"), **found}


class LoopbackServer(ABC):
    """One that listens. `version`: which server it is, in words; `port`: where."""

    version: str
    port: int
    _user: str
    _process: subprocess.Popen[bytes]

    @property
    @abstractmethod
    def _client_key(self) -> Path: ...

    @property
    @abstractmethod
    def _known_hosts(self) -> Path: ...

    def entry(self) -> dict[str, Any]:
        """What the inventory's entry of a host says of the way to it."""
        return {
            "connection": "ssh",
            "address": _ADDRESS,
            "port": self.port,
            "user": self._user,
            "key": str(self._client_key),
            "known_hosts": str(self._known_hosts),
            "ssh_config": False,
        }

    def end(self) -> None:
        """Stops it; commands that were left running go on."""
        self._process.terminate()
        try:
            self._process.wait(timeout=_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class OpenSshServer(LoopbackServer):
    """`program` is sshd, `keygen` makes its keys."""

    def __init__(self, folder: Path, program: str, keygen: str) -> None:
        self._folder, self._user = folder, getpass.getuser()
        for name in ("host", "user"):
            words = [keygen, "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            subprocess.run(words, check=True, timeout=20)
        shutil.copy(folder / "user.pub", folder / "authorized")
        with socket.socket() as free:
            free.bind((_ADDRESS, 0))
            self.port = int(free.getsockname()[1])
        host_key = (folder / "host.pub").read_text().split()
        (folder / "known").write_text(f"[{_ADDRESS}]:{self.port} {host_key[0]} {host_key[1]}\n")
        settings = [
            f"Port {self.port}",
            f"ListenAddress {_ADDRESS}",
            f"HostKey {folder}/host",
            f"AuthorizedKeysFile {folder}/authorized",
            f"PidFile {folder}/pid",
            "PermitRootLogin yes",
            "StrictModes no",
            "UsePAM no",
            "PasswordAuthentication no",
            "SetEnv " + " ".join(f"{name}={value}" for name, value in _passed_on().items()),
        ]
        (folder / "config").write_text("\n".join(settings) + "\n")
        if os.getuid() == 0:  # sshd wants it of root alone, and nobody else could make it
            Path("/run/sshd").mkdir(exist_ok=True)
        said = subprocess.run([program, "-V"], capture_output=True, text=True, check=False).stderr
        self.version = next((line for line in said.splitlines() if line.startswith("OpenSSH")), "OpenSSH")
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen([program, "-D", "-e", "-f", str(folder / "config")], stderr=log)
        self._listens()

    def _listens(self) -> None:
        for _ in range(_LISTEN_TRIES):
            with socket.socket() as way:
                if way.connect_ex((_ADDRESS, self.port)) == 0:
                    return
            time.sleep(_LISTEN_PAUSE_S)
        self.end()
        raise CommandError(f"sshd does not listen: {(self._folder / 'log').read_text()[-300:]}")

    @property
    def _client_key(self) -> Path:
        return self._folder / "user"

    @property
    def _known_hosts(self) -> Path:
        return self._folder / "known"


class LabServer(LoopbackServer):
    """The embedded lab's (`eaglelab/lab/sshd.py`), with this user's home and environment in place of a lab's."""

    def __init__(self, folder: Path) -> None:
        import asyncssh  # only where OpenSSH's is not there

        from eaglelab.lab.keys import make_keys, write_known_hosts

        self._keys, self._known, self._user = make_keys(folder), folder / "known", getpass.getuser()
        self.version = f"the lab's SSH server, asyncssh {asyncssh.__version__}"
        reader, writer = os.pipe()
        options = {
            "--home": Path.home(),
            "--host-key": self._keys.host,
            "--authorized": self._keys.authorized,
            "--user": self._user,
            "--mark": "validation",
            "--ready-fd": writer,
        }
        words = [str(word) for option in options.items() for word in option]
        words += [word for name, value in _passed_on().items() for word in ("--set", f"{name}={value}")]
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        with (folder / "log").open("wb") as log, os.fdopen(reader) as ready:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "eaglelab.lab.sshd", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": path},
                pass_fds=(writer,),
                start_new_session=True,
            )
            os.close(writer)
            line = ready.readline()
        if not line:
            self._process.wait()
            raise CommandError(f"the lab's SSH server did not start: {(folder / 'log').read_text()[-300:]}")
        self.port = int(line)
        write_known_hosts(self._known, _ADDRESS, self.port, self._keys.host)

    @property
    def _client_key(self) -> Path:
        return self._keys.client

    @property
    def _known_hosts(self) -> Path:
        return self._known
