"""Complaints 6 to 10, 14, 16 to 19 and 33: the way to a host, and what happens when it breaks."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hostkit import Installation, digest
from machine import Machine
from patience import CALM, lose_patience
from serverkit import until
from sshd import Sshd, make_key
from test_agent_http import web

from eaglelab.commands import hosts
from eaglelab.remote import ssh
from eaglelab.remote.client import AgentClient
from eaglelab.remote.pipe import LinkLost, Pipe
from eaglelab.remote.ssh import SshLink
from eaglelab.remote.watched import Patience, WatchedSocket

pytestmark = pytest.mark.sshd


def when(condition: Any, action: Any) -> threading.Thread:
    """Does `action` in a thread as soon as `condition` holds."""

    def wait() -> None:
        until(condition, "the moment to break the link")
        action()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_06_a_dead_link_is_given_up_in_seconds_and_host_and_seconds_are_named(machine: Machine) -> None:
    """It hangs for up to an hour on a dead link."""
    link = SshLink("gpu", machine.sshd.endpoint(), patience=CALM)
    agent = machine.agent(link, attempts=1)
    agent.call("status")
    with machine.sshd.frozen():
        lose_patience(link, 1.0)
        with pytest.raises(LinkLost, match="no sign of life for 1 s") as lost:
            agent.call("status", silence=3600)
    assert str(lost.value).startswith("gpu: ")
    assert " s" in lost.value.what
    assert Patience().probe + Patience().dead <= 30  # what a user gets who sets nothing


def test_07_a_link_that_dies_in_a_quiet_wait_is_noticed_and_the_run_goes_on(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no keepalive."""
    made: list[WatchedSocket] = []

    def watched(*args: Any) -> WatchedSocket:
        made.append(WatchedSocket(*args))
        return made[-1]

    monkeypatch.setattr(ssh, "Patience", lambda: CALM)
    monkeypatch.setattr(ssh, "WatchedSocket", watched)
    machine.behave(load=2)
    with contextlib.ExitStack() as ice:

        def freeze() -> None:
            ice.enter_context(machine.sshd.frozen())
            made[-1]._dead = 1.0

        thread = when(machine.starts, freeze)
        machine.serve()
        thread.join()
    assert len(made) == 2
    assert len(machine.starts()) == 1
    machine.rollback()
    machine.assert_original()


@dataclass
class Torn:
    """A pipe whose sshd session is killed around a request: its first half is `sent`, or its answer is made and lost."""

    inner: Pipe
    sshd: Sshd
    link: TornLink

    def send(self, data: bytes, timeout: float) -> None:
        if self.link.in_upload and len(data) > 1 << 20:
            self.link.in_upload = False
            self.inner.send(data[: len(data) // 2], timeout)
            self.sshd.signal_sessions(signal.SIGKILL)
            self.link.seen.append(self.link.look())
            data = data[len(data) // 2 :]
        self.inner.send(data, timeout)

    def receive(self, timeout: float) -> bytes:
        if self.link.done is not None:
            until(self.link.done, "the host has done what it was asked for")
            self.link.done = None
            self.sshd.signal_sessions(signal.SIGKILL)
            while self.inner.receive(timeout):
                pass  # the answer is lost
        return self.inner.receive(timeout)

    def ended(self) -> tuple[int | None, str]:
        return self.inner.ended()

    def close(self) -> None:
        self.inner.close()


class TornLink(SshLink):
    """`done`: once it holds, the next answer is lost. `in_upload`: the next megabyte breaks off; `look` fills `seen` then."""

    def __init__(self, sshd: Sshd) -> None:
        super().__init__("gpu", sshd.endpoint())
        self.sshd = sshd
        self.done: Any = None
        self.in_upload = False
        self.look: Any = None
        self.seen: list[Any] = []

    def open(self, command: Sequence[str]) -> Pipe:
        return Torn(super().open(command), self.sshd, self)


def lock(agent: AgentClient) -> None:
    agent.lock({"by": "me", "run": "run-1", "command": "test", "since": "now"})


def test_08_what_was_done_is_known_though_its_answer_was_lost(machine: Machine, tmp_path: Path) -> None:
    """The task has finished, and the play ends UNREACHABLE: shared connection closed."""
    link, there = TornLink(machine.sshd), Installation(tmp_path / "there")
    agent = machine.agent(link)
    lock(agent)
    agent.call("backup", run="run-1", patch="t", by="me", files=there.files(), originals=[])
    sized = [{"path": path, "size": len(data), "sha256": digest(data)} for path, data in there.contents.items()]
    last = list(there.contents)[-1]
    link.done = lambda: Path(last).read_bytes() == there.contents[last]
    answer = agent.call("apply", b"".join(there.contents.values()), run="run-1", files=sized)
    assert link.done is None
    assert [file["path"] for file in answer["files"]] == list(there.contents)
    there.assert_patched()
    assert agent.call("rollback", run="run-1")["nothing"] is False
    there.assert_original()


def test_09_a_start_is_not_done_twice_and_a_request_is_not_sent_twice(machine: Machine) -> None:
    """A retry after ssh's exit code 255 runs a task again that must not run twice."""
    machine.behave(load=60)
    link = TornLink(machine.sshd)
    agent = machine.agent(link)
    lock(agent)
    command = [str(machine.python), "-m", "sglang.launch_server", "--port", str(machine.port)]
    where = {"log": str(machine.log), "port": machine.port, "cwd": str(machine.folder)}
    link.done = machine.starts
    record = agent.call("start", run="run-1", command=command, env={}, about={}, **where)
    assert link.done is None
    assert machine.starts() == [record["pid"]]

    def answer(handler: Any, _: Any) -> None:
        handler.send_response(200)
        handler.end_headers()

    with web(answer) as server:
        link.done = lambda: server.requests
        with pytest.raises(LinkLost):
            agent.call("generate", host="127.0.0.1", port=server.port, body={}, key=None, timeout=5.0)
        assert len(server.requests) == 1


def test_10_a_blip_is_survived_and_a_link_that_stays_away_is_no_endless_wait(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One blip of the network fails a long poll; or a network that is gone is ignored for hours."""
    machine.behave(load=1.5)
    thread = when(machine.starts, partial(machine.sshd.signal_sessions, signal.SIGKILL))
    machine.serve()
    thread.join()
    assert len(machine.starts()) == 1
    machine.rollback()
    monkeypatch.setattr(hosts, "AgentClient", partial(AgentClient, attempts=1))
    machine.behave(load=60)
    other = Sshd(tmp_path / "other", host_keys=("ed25519",))
    machine.inventory(port=other.port, key=str(other.key), known_hosts=str(other.known_hosts), ready_timeout=3)
    thread = when(lambda: len(machine.starts()) == 2, other.close)
    with machine.waiting_from(lambda: len(machine.starts()) == 2):
        done = machine.serve(code=3)  # what was started there cannot be ended from here
    thread.join()
    assert "no token within 3 s; still unreachable: " in done.stderr
    assert "invoke rollback --host gpu" in done.stderr
    machine.inventory()
    machine.rollback()
    machine.assert_original()


@pytest.fixture
def full_disk(machine: Machine) -> Iterator[None]:
    """The host's state folder on a disk of 64 kB that is full."""
    folder = machine.state.parent
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small tmpfs needs root")
    with (folder / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    yield
    subprocess.run(["umount", str(folder)], check=True)


def test_14_a_full_disk_is_called_so_and_changes_nothing(machine: Machine, full_disk: None) -> None:
    """A full disk shows as `size mismatch 0 != N`."""
    done = machine.edit(code=1)
    assert "only 0 MiB of disk are free for the state folder" in done.stderr
    assert "free some space there; nothing was changed" in done.stderr
    machine.assert_original()


def test_14_an_upload_that_breaks_off_leaves_the_old_file_and_is_made_anew(machine: Machine, tmp_path: Path) -> None:
    """An upload is cut off in the middle, and half a file is left."""
    link, there = TornLink(machine.sshd), Installation(tmp_path / "there")
    large, worker = b"x = 1\n" + b"# the same line again\n" * 200_000, there.workers[0]
    agent = machine.agent(link)
    lock(agent)
    old = worker.read_bytes()
    agent.call("backup", run="run-1", patch="t", by="me", files=[there.entry(worker, old, large)], originals=[])
    link.in_upload, link.look = True, worker.read_bytes
    sized = [{"path": str(worker), "size": len(large), "sha256": digest(large)}]
    agent.call("apply", large, run="run-1", files=sized)
    assert link.seen == [old]
    assert worker.read_bytes() == large


def test_16_a_host_key_that_is_not_known_or_has_changed_is_refused(machine: Machine, tmp_path: Path) -> None:
    """Host keys are accepted blindly."""
    known = tmp_path / "known_hosts"
    machine.inventory(known_hosts=str(known))
    done = machine.edit(code=1)
    assert "the host key is not known" in done.stderr
    assert f"ssh-keyscan -p {machine.sshd.port} 127.0.0.1 >> {known}" in done.stderr
    known.write_text(machine.sshd.known_line("ed25519", make_key(tmp_path / "other")))
    done = machine.edit(code=1)
    assert f"ssh-keygen -R '[127.0.0.1]:{machine.sshd.port}' -f {known}" in done.stderr
    assert not machine.state.exists()  # nothing was run there
    machine.assert_original()


def test_17_the_users_own_ssh_configuration_is_honoured_with_includes(machine: Machine, tmp_path: Path) -> None:
    """`ProxyJump none` and `Include` are not honoured."""
    sshd = machine.sshd
    (tmp_path / "included").write_text(
        f"Host gpu-7\n  HostName 127.0.0.1\n  Port {sshd.port}\n  IdentityFile {sshd.key}\n"
        f"  UserKnownHostsFile {sshd.known_hosts}\n  ProxyJump none\n"
    )
    config = tmp_path / "config"
    config.write_text(f"Include {tmp_path}/included\nHost *\n  ProxyJump nobody@192.0.2.7\n")
    machine.inventory(address="gpu-7", ssh_config=str(config), port=None, key=None, known_hosts=None)
    machine.edit()
    machine.rollback()
    machine.assert_original()
    machine.inventory(address="gpu-8", ssh_config=str(config), port=None, key=None, known_hosts=None)
    assert "is reached through a proxy" in machine.edit(code=1).stderr  # and that is not this machine


def test_18_the_one_key_of_the_inventory_is_the_one_that_is_offered(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IdentitiesOnly is ignored: the agent offers every key, and the host has heard enough before the right one."""
    socket = tmp_path / "agent.sock"
    with subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL) as ssh_agent:
        try:
            until(socket.exists, "the agent is up")
            monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
            for number in range(4):
                key = make_key(tmp_path / f"key{number}")
                subprocess.run(["ssh-add", "-q", key], check=True, capture_output=True)
            strict = Sshd(tmp_path / "strict", ("MaxAuthTries 2",), host_keys=("ed25519",))
            machine.inventory(port=strict.port, key=str(strict.key), known_hosts=str(strict.known_hosts))
            machine.edit()
            machine.rollback()
            wrong = str(tmp_path / "key0")
            machine.inventory(port=strict.port, key=wrong, known_hosts=str(strict.known_hosts))
            assert f"the host refused the login (keys tried: {wrong})" in machine.edit(code=1).stderr
            strict.close()
        finally:
            ssh_agent.terminate()


def test_19_sudo_is_never_asked_in_a_way_that_could_ask_back(machine: Machine, tmp_path: Path) -> None:
    """A sudo prompt hangs, and passwords with odd characters break: so there is neither."""
    asked, sudo = tmp_path / "asked", tmp_path / "bin/sudo"
    sudo.parent.mkdir()

    def answers(text: str) -> None:
        sudo.write_text(f'#!/bin/sh\necho "$*" >> {asked}\n[ "$1" = -n ] || read password\n{text}\n')
        sudo.chmod(0o755)

    other = Sshd(tmp_path / "other", host_keys=("ed25519",), environment=f"PATH={sudo.parent}:{os.environ['PATH']}")
    there = {"port": other.port, "key": str(other.key), "known_hosts": str(other.known_hosts)}
    answers("exit 9")
    machine.inventory(**there)
    machine.edit()
    machine.rollback()
    assert not asked.exists()
    machine.inventory(**there, sudo=True)
    answers("echo 'sudo: a password is required' >&2; exit 1")
    done = machine.edit(code=1)
    assert "cannot become root there without a question: sudo: a password is required" in done.stderr
    assert "NOPASSWD" in done.stderr
    machine.assert_original()
    answers('while [ "$1" != -- ]; do shift; done; shift; exec "$@"')
    machine.edit()
    machine.rollback()
    machine.assert_original()
    assert [line for line in asked.read_text().splitlines() if not line.startswith("-n ")] == []
    other.close()


def connections(sshd: Sshd) -> set[str]:
    listener = sshd._process.pid
    return set(Path(f"/proc/{listener}/task/{listener}/children").read_text().split())


@dataclass
class Counting:
    """The connections to an sshd while it is entered."""

    sshd: Sshd
    seen: set[str] = field(default_factory=set)
    over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Counting:
        until(lambda: not connections(self.sshd), "earlier connections have ended")
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self.over.wait(0.005):
            self.seen |= connections(self.sshd)


def test_33_a_command_makes_one_connection_and_a_step_costs_milliseconds(machine: Machine) -> None:
    """Every task has its overhead: ten echoes took 1.74 s."""
    with Counting(machine.sshd) as counting:
        done = machine.serve()
    assert len(counting.seen) == 1
    events = (Path(done.json["bundle"]) / "events.jsonl").read_text().splitlines()
    seconds = {event["action"]: event["seconds"] for event in map(json.loads, events) if event["state"] == "ok"}
    assert set(seconds) == {"doctor", "plan", "backup", "patch", "start", "wait", "fetch_logs"}  # each is on record
    machine.rollback()
    agent = machine.agent()
    agent.call("status")
    took = []
    for _ in range(50):
        began = time.monotonic()
        agent.call("list", pattern="/none")
        took.append(time.monotonic() - began)
    assert min(took) < 0.05  # what it costs where nothing else has the CPU meanwhile
