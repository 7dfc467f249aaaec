"""Complaints 1, 2, 5, 11 to 13, 15, 29 and 30: what is started on a host, and what is left of it."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from machine import Machine
from serverkit import alive, until

from eaglelab.remote.client import AgentClient
from eaglelab.server.readiness import poll_interval

pytestmark = pytest.mark.sshd


def start(agent: AgentClient, machine: Machine) -> dict[str, Any]:
    agent.lock({"by": "me", "run": "run-1", "command": "test", "since": "now"})
    command = [str(machine.python), "-m", "sglang.launch_server", "--port", str(machine.port)]
    where = {"log": str(machine.log), "port": machine.port, "cwd": str(machine.folder)}
    return agent.call("start", run="run-1", command=command, env={}, about={}, **where)


def test_01_a_start_returns_at_once_and_no_stream_of_the_server_is_the_connection(machine: Machine) -> None:
    """`cmd &` and `nohup cmd &` hang the SSH call."""
    machine.behave(load=600)
    agent = machine.agent()
    agent.call("status")
    record = start(agent, machine)
    pid = int(record["pid"])
    assert alive(pid)  # and will be for ten minutes: nobody has waited for its end
    streams = [str(Path(f"/proc/{pid}/fd/{number}").readlink()) for number in range(3)]
    assert streams == ["/dev/null", str(machine.log), str(machine.log)]
    assert os.getsid(pid) == record["session"] != os.getsid(0)


def test_02_a_server_outlives_the_connection_that_started_it_however_soon_that_ends(machine: Machine) -> None:
    """The backgrounded process dies when the channel closes quickly."""
    machine.behave(load=60)
    agent = machine.agent()
    record = start(agent, machine)
    agent.close()
    until(lambda: machine.sshd.sessions() == [], "the session is over")
    assert alive(record["pid"])
    words = Path(f"/proc/{record['pid']}/cmdline").read_bytes().split(b"\0")
    assert b"sglang.launch_server" in words  # it is the command, and no shell on its way there
    assert json.loads((machine.state / "server.json").read_text())["pid"] == record["pid"]
    status = machine.agent().call("status")
    assert (status["alive"], status["record"]["pid"]) == (True, record["pid"])


def test_05_a_timeout_ends_what_runs_there_and_proves_it(machine: Machine) -> None:
    """A timeout kills the local side only."""
    machine.behave(load=60, ignore_term=True)
    machine.inventory(ready_timeout=1)
    with machine.waiting_from(machine.starts):
        assert "error: gpu: no token within 1 s; still loading" in machine.serve(code=1).stderr
    [pid] = machine.starts()
    assert not alive(pid)
    machine.assert_original()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", machine.port)) != 0


@contextmanager
def watched(folder: Path) -> Iterator[list[str]]:
    """Reads every JSON file of the state folder again and again; gives the contents that were not whole."""
    broken: list[str] = []
    seen: set[str] = set()
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            for path in folder.glob("*.json"):
                try:
                    text = path.read_text()
                except FileNotFoundError:
                    continue
                seen.add(path.name)
                try:
                    json.loads(text)
                except ValueError:
                    broken.append(f"{path.name}: {text!r}")

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield broken
    finally:
        over.set()
        thread.join()
    assert {"manifest.json", "server.json"} <= seen


def test_11_what_a_host_remembers_is_whole_whenever_it_is_read(machine: Machine) -> None:
    """The job's record vanishes or is half written when it is polled."""
    with watched(machine.state) as broken:
        machine.serve()
        machine.rollback()
    assert broken == []
    machine.assert_original()


def test_12_a_server_that_dies_is_told_at_once_with_the_end_of_its_log(machine: Machine) -> None:
    """The poll keeps waiting after the job has died."""
    machine.behave(lines=60, load=0.3, die=3)
    began = time.monotonic()
    done = machine.serve(code=1)
    assert time.monotonic() - began < 60  # ready_timeout is half an hour
    assert "error: gpu: the server ended by itself with exit code 3\n" in done.stderr
    shown = [line.strip() for line in done.stderr.splitlines()]
    assert [f"line {number}" in shown for number in range(30, 60)] == [True] * 30
    machine.assert_original()


def test_13_a_wait_keeps_to_its_budget_and_the_cause_is_said_first(machine: Machine) -> None:
    """The limit of a retry overshoots, and the cause is hidden in the error of the retry."""
    machine.behave(health=503)
    machine.inventory(ready_timeout=2)
    with machine.waiting_from(machine.looks):
        machine.serve(code=1)
    assert machine.looks() <= 2.0 / poll_interval(1) + 2  # from the first one on, and one more at most
    [events] = machine.scene.folder.glob("logs/*/events.jsonl")
    failed = [json.loads(line) for line in events.read_text().splitlines() if '"wait"' in line and '"failed"' in line]
    assert failed[0]["seconds"] >= 2.0
    (machine.scene.folder / "again.yaml").write_text(AGAIN)
    done = machine.command("play", "again", code=1)
    [error] = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert error == "error: gpu: the cause"
    assert "attempt 3 of 3" in done.stderr
    assert "RetryError" not in done.stderr


AGAIN = """
name: again
tasks:
  - {name: Fail, fail: {message: the cause}, retries: 2, delay: 0}
"""


def test_15_megabytes_of_output_do_not_hold_up_the_server_and_come_home_whole(machine: Machine) -> None:
    """More than 2 MiB on stdout and stderr is a deadlock, and the exit status waits for ever."""
    machine.behave(bulk=3 << 20)
    done = machine.serve()
    bundle = Path(done.json["bundle"])
    there, home = machine.log.read_bytes(), (bundle / "server.log").read_bytes()
    assert len(there) > 6_200_000
    assert hashlib.sha256(home).digest() == hashlib.sha256(there).digest()
    machine.rollback()


def test_29_a_server_is_ended_with_its_orphans_and_a_strangers_is_named(machine: Machine) -> None:
    """Orphaned GPU servers keep memory and port; and a restart after SIGKILL hangs."""
    machine.behave(orphan=60)
    machine.serve()
    first, orphan = machine.starts()
    assert os.getsid(orphan) != os.getsid(first)
    machine.rollback()
    assert not alive(orphan)
    machine.assert_original()
    assert machine.journal("stopped")[-1]["how"] == "term"  # nobody was killed who would have gone by himself
    script = (
        "import socket, sys; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); print('up'); sys.stdin.read()"
    )
    command = [sys.executable, "-u", "-c", script, str(machine.port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as stranger:
        assert stranger.stdout is not None
        assert stranger.stdout.readline() == b"up\n"
        done = machine.serve(code=1)
        assert f"pid {stranger.pid} of " in done.stderr
        assert "--takeover" in done.stderr
        machine.rollback()
        assert stranger.poll() is None


def test_30_a_server_is_ready_when_a_token_came_from_a_living_process_and_not_before(machine: Machine) -> None:
    """`ready` too early, in the warm-up, or falsely, after a crash: the health page says 200."""
    machine.behave(token=False)
    machine.inventory(ready_timeout=1.5)
    with machine.waiting_from(machine.looks):
        assert "answers 200, but no token: /generate says 500" in machine.serve(code=1).stderr
    machine.inventory()
    machine.behave(orphan=1.0, token=False)  # its first process ends and what it left goes on to say 200
    began = time.monotonic()
    done = machine.serve(code=1)
    assert time.monotonic() - began < 60  # ready_timeout is half an hour
    assert "the server ended by itself with exit code 0" in done.stderr
    machine.assert_original()
