"""systemd as process 1 of a container that has a root of its own: no unit of this machine, none of its files."""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from podmankit import Podman, binary_into

from eaglelab.remote.client import AgentClient
from eaglelab.remote.pipe import LocalLink, Pipe

__all__ = ["MISSING", "SERVICE", "Machine"]

_SYSTEMD = ("/lib/systemd/systemd", "/usr/bin/systemctl", "/usr/bin/systemd-run")
MISSING = [path for path in _SYSTEMD if not Path(path).exists()]
SERVICE = "sglang.service"
_IMAGE = "localhost/eaglelab-systemd:1"
_UNIT = """[Unit]
Description=a colleague's server
[Service]
Environment=SHARED=of-the-unit
ExecStart=/usr/bin/python3 -S /srv/serve.py 0 theirs
Restart=always
"""
_SERVER = """
import os, pathlib, signal, socket, subprocess, sys, time
port, *words = sys.argv[1:]
listening = socket.create_server(("127.0.0.1", int(port))) if port != "0" else None
if "deaf" in words:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "child" in words:
    subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"], start_new_session=True)
print("serving", os.environ.get("SECRET_TOKEN"), os.environ.get("SHARED"), flush=True)
if "fail" in words:
    raise SystemExit(7)
time.sleep(60)
"""


class _Exec(LocalLink):
    """A way to the container, as SSH is one to a host."""

    def __init__(self, podman: Podman, container: str) -> None:
        super().__init__(container)
        self._podman, self._container = podman, container

    def open(self, command: Sequence[str]) -> Pipe:
        with mock.patch.dict(os.environ, self._podman.env):
            return super().open([str(self._podman.bin / "podman"), "exec", "-i", self._container, *command])


@dataclass
class Machine:
    podman: Podman
    name: str = "machine"

    def up(self) -> str | None:
        """Boots it. Returns why that cannot be done here."""
        self.podman.build(_IMAGE, _fill)
        refusal = self.podman.refusal(_IMAGE)
        if refusal is not None:
            return refusal
        words = ["run", "--detach", f"--name={self.name}", "--network=none", "--cgroupns=host", "--systemd=always"]
        self.podman.ask(*words, _IMAGE, "/lib/systemd/systemd", "--system", "--unit=multi-user.target")
        deadline = time.monotonic() + 20
        while self.run("systemctl is-system-running") != "running":
            if time.monotonic() > deadline:
                return f"systemd did not come up: {self.run('systemctl --failed')}"
            time.sleep(0.2)
        return None

    def agent(self) -> AgentClient:
        return AgentClient(_Exec(self.podman, self.name), "/usr/bin/python3")

    def run(self, command: str) -> str:
        """What a shell in it prints, without the last line's end."""
        return self.podman.ask("exec", self.name, "/bin/sh", "-c", command, check=False).rstrip("\n")

    def show(self, unit: str, what: str) -> str:
        return self.run(f"systemctl show --property={what} --value {shlex.quote(unit)}")


def _fill(root: Path) -> None:
    binary_into(root, *_SYSTEMD, *(str(shutil.which(name)) for name in ("cat", "ls", "grep")))
    for name in ("basic", "sysinit", "multi-user", "shutdown", "rescue", "emergency"):
        _write(root / f"lib/systemd/system/{name}.target", f"[Unit]\nDescription={name}\nDefaultDependencies=no\n")
    _write(root / "etc/systemd/system" / SERVICE, _UNIT)
    _write(root / "srv/serve.py", _SERVER)
    _write(root / "etc/os-release", "ID=test\n")
    _write(root / "etc/machine-id", "")
    _write(root / "etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")
    _write(root / "etc/group", "root:x:0:\n")
    for name in ("root", "run", "var/log", "proc", "sys", "dev"):
        (root / name).mkdir(parents=True, exist_ok=True)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
