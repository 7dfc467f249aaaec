"""One host to break, with everything around it: OpenSSH's sshd, a way that can be cut, two controllers, bystanders."""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from nursery import Done, Nursery
from scene import Scene, picture
from serverkit import free_port, until
from slowlink import SlowLink
from sshd import Sshd

from eaglelab.lab.provision import cache_folder, package_of

__all__ = ["HOST", "PROBE", "Stage"]

HERE = Path(__file__).parent
HOST = "gpu-box"
"""The host's name in the inventory: every message must say it."""

RELEASE = "0.5.9"
READY_S = 6.0
PROBE = "srt/speculative/eaglelab_probe.py"


@dataclass
class Stage:
    """`home` is the host's. Points are played on it one after another; each is to leave it as it was."""

    folder: Path
    _bystanders: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _open: bool = True

    def __post_init__(self) -> None:
        (self.folder / "sshd").mkdir(parents=True)
        self.sshd = Sshd(self.folder / "sshd")
        self.way = SlowLink(self.sshd.port)
        self.port = free_port()
        self._build_package()
        self.here = self._project("here")
        self.elsewhere = self._project("elsewhere")
        (self.elsewhere / "some/where").mkdir(parents=True)
        self.original = picture(self.package)
        self._bytes = {path: path.read_bytes() for path in self.package.rglob("*.py")}
        self._stop = threading.Event()
        self.control.mkdir()
        self._thread = threading.Thread(target=self._obey, daemon=True)
        self._thread.start()
        self._nursery = Nursery(self.folder, self.environment())
        self.stand_by()

    @property
    def home(self) -> Path:
        return self.sshd.home

    @property
    def package(self) -> Path:
        return self.home / "sglang/python/sglang"

    @property
    def workers(self) -> list[Path]:
        return sorted(self.package.glob("srt/speculative/*worker*.py"))

    @property
    def state(self) -> Path:
        return self.home / "state/eaglelab"

    @property
    def log(self) -> Path:
        return self.home / "logs/server.log"

    @property
    def mark(self) -> str:
        """In the environment of every process that a session of this host, or a server in it, has started."""
        return f"XDG_STATE_HOME={self.home}/state"

    @property
    def control(self) -> Path:
        """A driver writes `VERB.do` there, and finds `VERB.done` once it is done (see `_obey`)."""
        return self.folder / "control"

    def bytes_of(self, file: str) -> bytes:
        """The original of a file of the package; nothing for one that a patch brings along."""
        return self._bytes.get(self.package / file, b"")

    @staticmethod
    def sha256(data: bytes) -> str:
        return hashlib.sha256(data).hexdigest()

    def digest(self, file: Path) -> str | None:
        return self.sha256(file.read_bytes()) if file.exists() else None

    def ends_with(self, file: str, text: bytes) -> bool:
        path = self.package / file
        return path.exists() and path.read_bytes().endswith(text)

    def facts(self) -> dict[str, Any]:
        """What a driver needs to know of this stage."""
        names = ("home", "package", "state", "log")
        more = {"sshd_pid_file": str(self.folder / "sshd/pid"), "control_folder": str(self.control), "ready_s": READY_S}
        return {**{name: str(getattr(self, name)) for name in names}, **more}

    def _build_package(self) -> None:
        released = package_of(RELEASE, cache_folder(), print) / "sglang"
        there = self.package / "srt/speculative"
        there.mkdir(parents=True)
        for worker in released.glob("srt/speculative/*eagle_worker*.py"):
            shutil.copy(worker, there / worker.name)
        for folder in (self.package, self.package / "srt", there):
            (folder / "__init__.py").touch()
        (self.package / "version.py").write_text(f'__version__ = "{RELEASE}"\n')
        shutil.copy(HERE / "fakes/launch_server.py", self.package / "launch_server.py")
        for worker in self.workers:
            worker.chmod(0o640)  # so that a mode that was not kept is seen
        python = self.home / "ml-env/bin/python3"
        python.parent.mkdir(parents=True)
        path = self.home / "sglang/python"
        python.write_text(f'#!/bin/sh\nexport PYTHONPATH={path}\nexec {sys.executable} -S "$@"\n')
        python.chmod(0o755)
        for name in ("models/target", "models/draft", "logs"):
            (self.home / name).mkdir(parents=True)

    def _project(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir()
        Scene.make(folder)
        entry = {
            "address": "127.0.0.1",
            "port": self.way.port,
            "user": getpass.getuser(),
            "key": str(self.sshd.key),
            "known_hosts": str(self.folder / "known_hosts"),
            "ssh_config": False,
            "connect_timeout": 2,
            "python": str(self.home / "ml-env/bin/python3"),
            "sglang": str(self.home / "sglang"),
            "log": str(self.log),
            "ready_timeout": READY_S,
            "expected_load": 1,
            "server": {
                "port": self.port,
                "model_path": str(self.home / "models/target"),
                "speculative": {"draft_model_path": str(self.home / "models/draft")},
            },
        }
        key = self.sshd.known_line("ed25519").split(" ", 1)[1]
        (self.folder / "known_hosts").write_text(f"[127.0.0.1]:{self.way.port} {key}")
        (folder / "inventory.yaml").write_text(yaml.safe_dump({"default_host": HOST, "hosts": {HOST: entry}}))
        for book in (folder / "playbooks").glob("*.yaml"):
            # A server that ignores TERM is to cost this run a second, not half a minute.
            text = (
                book.read_text()
                .replace("rollback:\n", "rollback: {grace: 1}\n")
                .replace("stop:\n", "stop: {grace: 1}\n")
            )
            book.write_text(text)
        return folder

    def environment(self) -> dict[str, str]:
        return {**Scene(self.here).environment(), "EAGLELAB_HOST": HOST}

    def drive(self, point: dict[str, Any], words: Sequence[str], seconds: float) -> Done:
        """Runs a command with the faults of `point` built in (driver.py)."""
        file = self.folder / "point.json"
        file.write_text(json.dumps({**point, "stage": self.facts()}))
        return self._nursery.run(words, self.here, seconds, file)

    def rollback(self, *more: str, seconds: float = 40.0) -> Done:
        """As somebody else would do it: a fresh controller, another project folder, another place."""
        return self._nursery.run(["rollback", "--json", *more], self.elsewhere / "some/where", seconds)

    def invoke(self, *words: str, seconds: float = 40.0) -> Done:
        return self._nursery.run(words, self.here, seconds)

    def _obey(self) -> None:
        """Does to the way what a driver asks for, at once."""
        verbs = {"cut": self.way.cut, "freeze": self.way.freeze, "refuse": self.refuse, "accept": self.accept}
        while not self._stop.wait(0.01):
            for file in self.control.glob("*.do"):
                verbs[file.stem]()
                file.rename(file.with_suffix(".done"))

    def refuse(self) -> None:
        self._open = False
        self.way.refuse()
        self.way.cut()

    def accept(self) -> None:
        if not self._open:
            self.way.accept()
            self._open = True

    def stand_by(self) -> None:
        """A stranger's server with a command line like ours: it must outlive everything that happens here."""
        if self._bystanders and self._bystanders[0].poll() is None:
            return
        package = self.folder / "stranger/sglang"
        package.mkdir(parents=True, exist_ok=True)
        (package / "launch_server.py").write_text(
            "import time\nprint('up', flush=True)\nwhile True: time.sleep(3600)\n"
        )
        process = subprocess.Popen(
            [sys.executable, "-S", "-m", "sglang.launch_server", "--model-path", "theirs", "--port", str(free_port())],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(package.parent)},
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdout is not None
        process.stdout.readline()
        self._bystanders[:] = [process]

    @property
    def bystander(self) -> int:
        return self._bystanders[0].pid

    def bystander_lives(self) -> bool:
        return self._bystanders[0].poll() is None

    def ours(self) -> dict[int, str]:
        """Living processes on the host that a session or a server has left: pid -> command line. sshd's own aside."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                lines = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                if lines and self.mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found[int(folder.name)] = lines
            except OSError:
                continue
        return found

    def agents(self) -> dict[int, str]:
        return {pid: line for pid, line in self.ours().items() if "EAGLELAB-PYTHON-TOO-OLD" in line}

    def wake(self) -> None:
        """A fault may have stopped an agent for good; let go, it is to end by itself."""
        for pid in self.agents():
            os.kill(pid, signal.SIGCONT)

    def settle(self) -> None:
        """Ends sessions that a fault left frozen, and opens the way again."""
        for pid in self.sshd.sessions():
            os.kill(pid, signal.SIGKILL)
        self.way.cut()
        self.way.connections.clear()
        self.accept()

    def reset(self) -> None:
        """By force, after a point that was lost."""
        self.settle()
        for pid in self.ours():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        until(lambda: not self.ours(), "the host is empty")
        for path in self.package.rglob("*"):
            if path.is_file() and path not in self._bytes:
                path.unlink()
        for path, data in self._bytes.items():
            if not path.exists() or path.read_bytes() != data:
                path.write_bytes(data)
            path.chmod(self.original[str(path.relative_to(self.package))][1] & 0o7777)
        self.clean()

    def clean(self) -> None:
        """What a point may leave in any case: history, logs, bundles."""
        shutil.rmtree(self.state, ignore_errors=True)
        for path in (self.home / "sick.json", *self.log.parent.glob("*"), *self.control.glob("*")):
            path.unlink(missing_ok=True)
        for project in (self.here, self.elsewhere):
            shutil.rmtree(project / "logs", ignore_errors=True)
        self.stand_by()

    def close(self) -> None:
        self.reset()
        self._stop.set()
        self._thread.join()
        self._nursery.close()
        self.way.close()
        self.sshd.close()
        for process in self._bystanders:
            process.kill()
            process.communicate()
