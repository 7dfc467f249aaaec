"""Whose processes are whose: a mark that was copied, a path that means another folder, a caller inside it all."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serverkit import ServerHost, alive, until

from eaglelab.remote.agent import marks, processes
from eaglelab.remote.agent.lineage import ancestors, find_reaper
from eaglelab.remote.agent.marks import MARK
from eaglelab.remote.agent.server import Server
from eaglelab.remote.agent.wire import AgentError

SLEEP = "import time; time.sleep(60)"
UP = "import time; print('up', flush=True); time.sleep(60)"

PROJECT = str(Path(marks.__file__).parents[3])

DAEMON = """
import os, pathlib, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        pathlib.Path(sys.argv[1], "daemon").write_text(str(os.getpid()))
        time.sleep(60)
    os._exit(0)
os.wait()
print("up", flush=True)
time.sleep(60)
"""

SHELL = """
import pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"], start_new_session=True)
pathlib.Path(sys.argv[1], "child").write_text(str(child.pid))
print("up", flush=True)
time.sleep(60)
"""


@pytest.fixture
def daemons(server_host: ServerHost) -> Iterator[list[int]]:
    """Pids to end after the test, where they are no stranger's own."""
    found: list[int] = []
    yield found
    for pid in found:
        if alive(pid):
            os.kill(pid, signal.SIGKILL)


def environment(pid: int) -> dict[str, str]:
    """As `env $(cat /proc/PID/environ)` gives it to somebody else."""
    pairs = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


def test_every_start_has_a_mark_of_its_own(server_host: ServerHost) -> None:
    first = server_host.start(SLEEP)["mark"]
    server_host.stop()
    second = server_host.start(SLEEP, token="token-2")["mark"]
    assert first != second
    for mark in (first, second):
        folder, _, word = mark.rpartition("#")
        assert folder == f"{server_host.folder}/state"
        assert len(word) == 16


@pytest.mark.parametrize("how", ["itself", "below-it"])
def test_a_shell_with_a_copy_of_our_environment_is_named_and_left_alone(
    server_host: ServerHost, daemons: list[int], how: str
) -> None:
    record = server_host.start(SLEEP)
    copied = environment(record["pid"])
    if how == "itself":
        shell = server_host.stranger(UP, env=copied)
        theirs = [shell.pid]
    else:
        shell = server_host.stranger(SHELL, str(server_host.folder), env=copied)
        theirs = sorted([shell.pid, server_host.pid("child")])
        daemons.append(server_host.pid("child"))
    status = server_host.fresh().status()
    assert set(status["members"]) == {record["pid"], record["session"]}
    assert [stranger["pid"] for stranger in status["strangers"]] == theirs
    assert status["strangers"][0]["command"].startswith(sys.executable)
    result = server_host.stop()
    assert set(result["stopped"]) == {record["pid"], record["session"]}
    assert [stranger["pid"] for stranger in result["strangers"]] == theirs
    assert all(alive(pid) for pid in theirs)
    assert [stranger["pid"] for stranger in server_host.fresh().status()["strangers"]] == theirs


def test_a_path_that_means_another_folder_in_a_container_is_not_ours(server_host: ServerHost) -> None:
    record = server_host.start(SLEEP)
    stranger = server_host.stranger(UP, env={MARK: f"{server_host.folder}/state"})
    other = server_host.stranger(UP, env={MARK: f"{server_host.folder}/state#0123456789abcdef"})
    status = server_host.fresh().status()
    assert set(status["members"]) == {record["pid"], record["session"]}
    assert status["strangers"] == []
    server_host.stop()
    assert stranger.poll() is None
    assert other.poll() is None


@pytest.mark.parametrize("left", ["whole", "damaged", "gone"])
def test_another_mount_namespace_is_another_folder(
    server_host: ServerHost, daemons: list[int], monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    record = server_host.start(SLEEP)
    container = server_host.stranger(DAEMON, str(server_host.folder), env=environment(record["pid"]))
    daemon = server_host.pid("daemon")
    daemons.append(daemon)
    path = server_host.folder / "state/server.json"
    if left != "whole":
        path.unlink()
    if left == "damaged":
        path.write_text("{half")
    seen = marks.mount_namespace
    monkeypatch.setattr(marks, "mount_namespace", lambda pid: 7 if pid in (daemon, container.pid) else seen(pid))
    status = server_host.fresh().status()
    assert record["pid"] in status["members"]
    assert not {daemon, container.pid} & set(status["members"])
    assert status["strangers"] == []
    server_host.stop()
    assert alive(daemon)


@pytest.mark.skipif(
    shutil.which("unshare") is None or subprocess.run(["unshare", "-m", "true"], check=False).returncode != 0,
    reason="this user may make no mount namespace",
)
def test_a_process_in_a_real_mount_namespace_is_left_alone(server_host: ServerHost) -> None:
    record = server_host.start(SLEEP)
    mark = {MARK: f"{server_host.folder}/state"}
    (server_host.folder / "state/server.json").unlink()
    container = server_host.stranger(UP, env=mark, before=("unshare", "-m"))
    assert marks.mount_namespace(container.pid) not in (None, record["mount_ns"])
    status = server_host.fresh().status()
    assert (status["members"], status["strangers"]) == ([record["pid"]], [])
    server_host.stop()
    assert container.poll() is None


def test_a_server_that_runs_in_a_container_keeps_what_left_its_session(
    server_host: ServerHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = server_host.start(DAEMON)
    daemon = server_host.pid("daemon")
    seen = marks.mount_namespace
    monkeypatch.setattr(marks, "mount_namespace", lambda pid: 7 if pid in (daemon, record["pid"]) else seen(pid))
    assert daemon in server_host.fresh().members()


def test_a_stop_from_a_shell_that_carries_our_mark_ends_neither_itself_nor_its_callers(
    server_host: ServerHost, daemons: list[int]
) -> None:
    record = server_host.start(SLEEP)
    script = server_host.folder / "caller.py"
    script.write_text(
        "import json, subprocess, sys\n"
        "from eaglelab.remote.agent.journal import Journal\n"
        "from eaglelab.remote.agent.server import Server\n"
        "sleep, nothing = [sys.executable, '-S', '-c', 'import time; time.sleep(60)'], subprocess.DEVNULL\n"
        "beside = subprocess.Popen(sleep, stdout=nothing, stderr=nothing)\n"
        "print(json.dumps([beside.pid, Server(Journal(sys.argv[1])).stop('run-2', 5.0, lambda _: None)]))\n"
    )
    words = f"{sys.executable} {script} {server_host.folder}/state && echo survived"
    done = subprocess.run(
        ["setsid", "--wait", "sh", "-c", words],
        env={**os.environ, MARK: record["mark"], "PYTHONPATH": PROJECT},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer, said = done.stdout.splitlines()
    assert said == "survived"
    beside, result = json.loads(answer)
    daemons.append(beside)
    assert set(result["stopped"]) == {record["pid"], record["session"]}
    assert [stranger["pid"] for stranger in result["strangers"]] == [beside]
    assert alive(beside)


@pytest.mark.parametrize("left", ["whole", "damaged", "gone"])
def test_a_daemon_of_our_server_is_found_also_where_its_record_is_not(server_host: ServerHost, left: str) -> None:
    record = server_host.start(DAEMON)
    daemon = server_host.pid("daemon")
    shell = server_host.stranger(UP, env=environment(record["pid"]))
    path = server_host.folder / "state/server.json"
    if left != "whole":
        path.unlink()
    if left == "damaged":
        path.write_text("{half")
    status = server_host.fresh().status()
    assert {daemon, record["pid"]} <= set(status["members"]) <= {daemon, record["pid"], record["session"]}
    assert [stranger["pid"] for stranger in status["strangers"]] == [shell.pid]
    assert {daemon, record["pid"]} <= set(server_host.stop()["stopped"])
    assert not alive(daemon)
    assert shell.poll() is None


def test_a_daemon_that_a_subreaper_took_in_is_ours(server_host: ServerHost) -> None:
    """As `systemd --user` does; there the daemon's parent is neither process 1 nor ours."""
    starter = server_host.stranger(
        """
        import ctypes, sys, time
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
        sys.path[:0] = [sys.argv[4]]
        from eaglelab.remote.agent.journal import Journal
        from eaglelab.remote.agent.lineage import find_reaper
        from eaglelab.remote.agent.server import Server
        import os
        if os.fork() == 0:  # the agent: it ends, as agents do
            Server(Journal(sys.argv[1] + "/state")).start(
                "run-1", [sys.executable, "-S", sys.argv[2], sys.argv[1]], {}, sys.argv[1] + "/log", int(sys.argv[3]),
                "/", {}, "token-1",
            )
            os._exit(0)
        os.wait()
        print("up", flush=True)
        time.sleep(60)
        """,
        str(server_host.folder),
        server_host.script(DAEMON)[2],
        str(server_host.port),
        PROJECT,
    )
    daemon = server_host.pid("daemon")
    record = server_host.server.record()
    assert record is not None
    assert (record["reaper"], processes.parent_of(daemon)) == (starter.pid, starter.pid)
    assert set(server_host.fresh().members()) == {record["session"], record["pid"], daemon}
    server_host.stop()
    assert not alive(daemon)
    assert starter.poll() is None


def test_a_record_of_an_earlier_version_still_finds_what_left_the_session(
    server_host: ServerHost, daemons: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = f"{server_host.folder}/state"
    early = server_host.stranger(DAEMON, str(server_host.folder), env={MARK: folder})
    earlier = server_host.pid("daemon")
    (server_host.folder / "daemon").unlink()
    daemons.append(earlier)
    early.kill()
    early.wait()
    tick = processes.started(earlier)
    monkeypatch.setattr("eaglelab.remote.agent.server.identity", lambda folder: {"mark": folder})
    # What is there already would be taken for a server of ours whose record is gone.
    monkeypatch.setattr(Server, "_must_be_startable", lambda *_: None)
    until(lambda: processes.started(os.getpid()) is not None and _now() > (tick or 0), "the clock has ticked")
    record = server_host.start(DAEMON)
    daemon = server_host.pid("daemon")
    del record["mark"]
    server_host.server.state.write("server.json", record)
    status = server_host.fresh().status()
    assert set(status["members"]) == {record["session"], record["pid"], daemon}
    assert [stranger["pid"] for stranger in status["strangers"]] == [earlier]  # older than the server


def _now() -> int:
    return int(float(Path("/proc/uptime").read_text().split()[0]) * os.sysconf("SC_CLK_TCK"))


def test_who_else_of_us_has_the_port_is_named_by_its_state_folder(server_host: ServerHost) -> None:
    listen = (
        "import socket, sys, time; s = socket.create_server(('127.0.0.1', int(sys.argv[1])));"
        "print('up', flush=True); time.sleep(60)"
    )
    server_host.stranger(listen, str(server_host.port), env={MARK: "/home/colleague/.local/state/eaglelab#" + "a" * 16})
    with pytest.raises(AgentError, match="eaglelab started it from the state folder /home/colleague/") as refused:
        server_host.start(SLEEP)
    assert refused.value.code == "port-taken"
    assert refused.value.details["holder"]["state"] == "/home/colleague/.local/state/eaglelab"
    mine = marks.port_holder(server_host.port, "/home/colleague/.local/state/eaglelab")
    assert mine is not None
    assert "state" not in mine


def test_the_record_keeps_who_started_the_server(server_host: ServerHost) -> None:
    server_host.start(SLEEP, about={"steps": 2, "by": "me@here"})
    status: dict[str, Any] = server_host.fresh().status()
    assert status["record"]["by"] == "me@here"


def test_the_parents_of_a_process_end_with_the_first_one(server_host: ServerHost) -> None:
    found = ancestors(os.getpid())
    assert found is not None
    assert found[0] == os.getppid()
    assert processes.parent_of(found[-1]) == 0
    assert find_reaper() in found
    assert ancestors(2**22 + 1) is None


def test_without_a_process_to_spare_the_first_one_is_taken_for_the_reaper(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left() -> int:
        raise BlockingIOError

    monkeypatch.setattr(os, "fork", none_left)
    before = sorted(path.name for path in Path("/proc/self/fd").iterdir())
    assert find_reaper() == 1
    assert sorted(path.name for path in Path("/proc/self/fd").iterdir()) == before


def test_a_keeper_is_told_by_its_name_in_ps(server_host: ServerHost) -> None:
    record = server_host.start(SLEEP)
    assert processes.process_name(record["session"]) == "eaglelab-keeper"
    assert processes.process_name(2**22 + 1) == ""
