"""A GPU host behind OpenSSH's sshd, small enough for one test: a checkout with a released worker, a Python that starts what
the test wants for a server, a state folder. Beside it a project with an inventory that leads there."""

from __future__ import annotations

import contextlib
import getpass
import io
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from scene import Done, Scene, picture, processes_of
from serverkit import free_port, until
from sshd import Sshd

from eaglelab.actions import wait
from eaglelab.commands.outcome import perform
from eaglelab.commands.play import play
from eaglelab.commands.request import Request
from eaglelab.lab.provision import cache_folder
from eaglelab.remote.client import AgentClient
from eaglelab.remote.pipe import LocalLink
from eaglelab.remote.ssh import SshLink
from eaglelab.server.readiness import Waiting

__all__ = ["WORKERS", "Machine", "released"]

WORKERS = ("eagle_worker.py", "eagle_worker_v2.py")
FAKE = Path(__file__).with_name("fake_server.py")
EDIT = """
name: edit
tasks:
  - {name: Read the host, doctor: {}}
  - {name: Plan, plan: {}}
  - {name: Back up, backup: }
  - {name: Patch, patch: }
"""
SERVE = """
name: serve
tasks:
  - {name: Read the host, doctor: {}}
  - {name: Plan, plan: {}}
  - block:
      - {name: Back up, backup: }
      - {name: Patch, patch: }
      - {name: Start, start: {steps: baseline, profile: false}}
      - {name: Wait, wait: }
      - {name: Fetch, fetch_logs: }
    rescue:
      - {name: Fetch, fetch_logs: }
      - {name: Roll back, rollback: {grace: 1}}
      - {name: Give up, fail: }
"""


def released(version: str) -> Path:
    """The workers' folder of a release in the package cache."""
    folders = [cache_folder() / f"{kind}-{version}/sglang/srt/speculative" for kind in ("workers", "sglang")]
    found = next(filter(Path.is_dir, folders), None)
    if found is None:
        missing = f"SGLang {version} is not in the package cache: make test fills it"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(missing)
    return found


@dataclass
class Machine:
    """`behaviour` is what fake_server.py does when the host's server is started."""

    folder: Path
    sshd: Sshd
    port: int = field(default_factory=free_port)
    running: list[subprocess.Popen[str]] = field(default_factory=list)
    clients: list[AgentClient] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.package.joinpath("srt/speculative").mkdir(parents=True)
        (self.package / "__init__.py").write_text("")
        (self.package / "version.py").write_text('__version__ = "0.5.9"\n')
        for name in ("target", "draft"):
            (self.folder / "models" / name).mkdir(parents=True)
        self.behave()
        self.python.write_text(
            "#!/bin/sh\n"
            f"export XDG_STATE_HOME={shlex.quote(str(self.folder / 'state'))} PATH={shlex.quote(str(self.bin))}:$PATH\n"
            f"export PYTHONPATH={shlex.quote(str(self.package.parent))} PYTHONDONTWRITEBYTECODE=1\n"
            f'case "$*" in "-m sglang.launch_server"*) set -- -S {shlex.quote(str(FAKE))} {shlex.quote(str(self.folder))} "$@";; esac\n'
            f'exec {shlex.quote(sys.executable)} "$@"\n'
        )
        self.python.chmod(0o755)
        self.bin.mkdir()
        project = self.folder / "project"
        project.mkdir()
        self.scene = Scene.make(project)
        (project / "edit.yaml").write_text(EDIT)
        (project / "serve.yaml").write_text(SERVE)
        self.inventory()
        self.install(WORKERS[0])

    def install(self, worker: str) -> None:
        """A worker of the installed release. There is one at first: planning each takes its time."""
        shutil.copyfile(released("0.5.9") / worker, self.worker(worker))
        self.before = picture(self.package)

    @property
    def package(self) -> Path:
        return self.folder / "checkout/python/sglang"

    @property
    def python(self) -> Path:
        return self.folder / "python"

    @property
    def bin(self) -> Path:
        """First on the PATH of everything that runs there."""
        return self.folder / "bin"

    @property
    def state(self) -> Path:
        return self.folder / "state/eaglelab"

    @property
    def log(self) -> Path:
        return self.folder / "logs/server.log"

    def worker(self, name: str = WORKERS[0]) -> Path:
        return self.package / "srt/speculative" / name

    def behave(self, **behaviour: Any) -> None:
        (self.folder / "behaviour.json").write_text(json.dumps(behaviour))

    def inventory(self, **changes: Any) -> None:
        """Writes the project's inventory; `server` in `changes` is merged, None drops a key."""
        server = {
            "port": self.port,
            "model_path": str(self.folder / "models/target"),
            "speculative": {"draft_model_path": str(self.folder / "models/draft")},
            **changes.pop("server", {}),
        }
        entry = {
            "address": "127.0.0.1",
            "port": self.sshd.port,
            "user": getpass.getuser(),
            "key": str(self.sshd.key),
            "known_hosts": str(self.sshd.known_hosts),
            "ssh_config": False,
            "connect_timeout": 30,
            "python": str(self.python),
            "sglang": str(self.package.parent.parent),
            "log": str(self.log),
            "expected_load": 1,
            "server": server,
            **changes,
        }
        hosts = {"gpu": {key: value for key, value in entry.items() if value is not None}}
        (self.scene.folder / "inventory.yaml").write_text(yaml.safe_dump({"default_host": "gpu", "hosts": hosts}))

    def command(self, name: str, playbook: str | None = None, *, code: int = 0, **more: Any) -> Done:
        """A command that runs a playbook, in this process; fails the test if it does not end with `code`."""
        request = Request(name, self.scene.folder, host="gpu", **more)
        book = str(self.scene.folder / f"{playbook}.yaml") if playbook else name
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            work = partial(_play, request, book)
            found = perform(work, as_json=True, debug=False)
        assert found == code, f"{name} ended with {found}, not {code}:\n{err.getvalue()}"
        return Done(found, out.getvalue(), err.getvalue())

    def edit(self, **more: Any) -> Done:
        """Patches the workers and starts nothing."""
        return self.command("play", "edit", **more)

    def serve(self, **more: Any) -> Done:
        """Patches, starts `behaviour` as a server, and waits for it."""
        return self.command("play", "serve", **more)

    def rollback(self, **more: Any) -> Done:
        return self.command("rollback", **more)

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """A command in a process of its own, which gets the signals of the test."""
        process = subprocess.Popen(
            self.scene.command(*words, "--host", "gpu"),
            cwd=self.scene.folder,
            env=self.scene.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.running.append(process)
        return process

    def agent(self, link: SshLink | None = None, **more: Any) -> AgentClient:
        """A client of its own, which holds no lock yet."""
        link = link or SshLink("gpu", self.sshd.endpoint())
        client = AgentClient(link, str(self.python), sleep=lambda _: None, **more)
        self.clients.append(client)
        return client

    def events(self, action: str) -> list[str]:
        """The states of an action in all runs so far, in order."""
        files = sorted(self.scene.folder.glob("logs/*/events.jsonl"))
        events = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        return [event["state"] for event in events if event["action"] == action]

    def journal(self, op: str) -> list[dict[str, Any]]:
        """What the host itself wrote down of one operation."""
        lines = (self.state / "journal.jsonl").read_text().splitlines()
        return [line for line in map(json.loads, lines) if line["op"] == op]

    @contextmanager
    def waiting_from(self, happened: Callable[[], Any]) -> Iterator[None]:
        """The waits for a server count their seconds from there on, however long this machine takes until then."""
        began: list[float] = []

        def clock() -> float:
            if not began and happened():
                began.append(time.monotonic())
            return time.monotonic() - began[0] if began else 0.0

        def waiting(*args: Any, **more: Any) -> Waiting:
            return Waiting(*args, **{**more, "clock": clock})

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(wait, "Waiting", waiting)
            yield

    def looks(self) -> int:
        """How often all servers together were asked for their health."""
        path = self.folder / "looks"
        return len(path.read_text()) if path.exists() else 0

    def starts(self) -> list[int]:
        """The pids of all servers that were started here."""
        path = self.folder / "starts"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def processes(self) -> list[str]:
        """Living processes of our server."""
        return processes_of(f"EAGLELAB_SERVER={self.state}#")

    def assert_original(self) -> None:
        assert picture(self.package) == self.before
        assert self.processes() == []

    def close(self) -> None:
        """Ends what is left of a test that failed."""
        (self.folder / "let-go").touch()
        for process in self.running:
            if process.poll() is None:
                process.kill()
            process.communicate()
        for client in self.clients:
            client.close()
        if self.state.exists() and (self.processes() or (self.state / "server.json").exists()):
            agent = AgentClient(LocalLink("gpu"), str(self.python))
            agent.lock({"by": "test", "run": "end", "command": "end", "since": ""})
            agent.call("stop", run="end", grace=0.0)
            agent.close()
        for pid in self.starts():
            with contextlib.suppress(OSError):
                if str(self.folder).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
        until(lambda: self.processes() == [], "no process of this test is left")


def _play(request: Request, book: str, outcome: Any, say: Any) -> None:
    play(request, book, outcome, say)
