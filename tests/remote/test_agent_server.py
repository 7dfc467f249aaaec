"""Start, look, stop: all of our server, and nobody else."""

from __future__ import annotations

import getpass
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from serverkit import ServerHost, alive, until

from eaglelab.remote.agent import keeper, processes
from eaglelab.remote.agent.journal import Journal
from eaglelab.remote.agent.marks import MARK
from eaglelab.remote.agent.wire import AgentError

SLEEP = "import time; time.sleep(60)"

TERM_IGNORED = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path(sys.argv[1], "ready").write_text("1")
time.sleep(60)
"""

DOUBLE_FORK = """
import os, pathlib, sys, time
if os.fork() == 0:
    if os.fork() == 0:
        if {leaves}: os.setsid()
        if {nameless}: os.execve(sys.executable, [sys.executable, "-S", "-c", "import time; time.sleep(60)"], {{}})
        pathlib.Path(sys.argv[1], "orphan").write_text(str(os.getpid()))
        time.sleep(60)
    os._exit(0)
os.wait()
time.sleep({launcher})
"""

LISTEN = """
import socket, sys, time
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("up", flush=True)
time.sleep(60)
"""


def test_a_started_server_is_on_record_with_all_that_finds_it_again(server_host: ServerHost) -> None:
    server_host.log.parent.mkdir()
    server_host.log.write_bytes(b"of an earlier run\n")
    record = server_host.start("print('hello', flush=True); import time; time.sleep(60)", env={"A": "one two; echo"})
    assert record == server_host.fresh().record()
    assert (record["run"], record["steps"], record["port"]) == ("run-1", 2, server_host.port)
    assert (record["log"], record["log_offset"], record["env"]) == (str(server_host.log), 18, ["A"])
    assert record["pid_start"] == processes.start_ticks(record["pid"])
    assert os.getsid(record["pid"]) == os.getpgid(record["pid"]) == record["session"] != os.getsid(0)
    until(lambda: server_host.log.read_bytes() == b"of an earlier run\nhello\n", "the output is in the log")
    status = server_host.fresh().status()
    assert (status["alive"], status["exit"]) == (True, None)
    assert set(status["members"]) == {record["pid"], record["session"]}


def test_a_server_gets_its_variables_whole_and_no_open_file_of_ours(server_host: ServerHost) -> None:
    with Path(os.devnull).open() as low:
        high = os.dup2(low.fileno(), 900)  # inheritable, and beyond what a loop over the first descriptors finds
        try:
            record = server_host.start(SLEEP, env={"A": "one two; $HOME\n"})
        finally:
            os.close(high)
    env = Path(f"/proc/{record['pid']}/environ").read_bytes().split(b"\0")
    assert b"A=one two; $HOME\n" in env
    assert f"{MARK}={record['mark']}".encode() in env
    wanted = {"0": os.devnull, "1": str(server_host.log), "2": str(server_host.log)}
    both = (record["pid"], record["session"])
    until(lambda: [opened(pid) for pid in both] == [wanted, wanted], "both have nothing open but their streams")


def opened(pid: int) -> dict[str, str]:
    try:
        return {entry.name: str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()}
    except FileNotFoundError:  # closed between the two looks
        return {}


def test_how_a_server_ended_is_recorded_at_once(server_host: ServerHost) -> None:
    record = server_host.start("raise SystemExit(7)")
    status = server_host.ended()  # the very first look that sees it dead
    assert (status["exit"]["pid"], status["exit"]["code"], status["exit"]["signal"]) == (record["pid"], 7, None)
    assert server_host.fresh().status()["exit"] == status["exit"]


def test_the_signal_that_ended_a_server_is_recorded(server_host: ServerHost) -> None:
    server_host.start("import os; os.kill(os.getpid(), 11)")
    ended = server_host.ended()["exit"]
    assert (ended["code"], ended["signal"]) == (None, signal.SIGSEGV)


def test_a_new_start_forgets_how_the_last_server_ended(server_host: ServerHost) -> None:
    server_host.start("raise SystemExit(7)")
    server_host.ended()
    server_host.stop()
    server_host.start(SLEEP, token="token-2")
    assert server_host.server.status()["exit"] is None


def test_a_zombie_is_not_alive(server_host: ServerHost) -> None:
    record = server_host.start(SLEEP)
    os.kill(record["session"], signal.SIGSTOP)  # its keeper cannot collect it
    until(lambda: ") T " in Path(f"/proc/{record['session']}/stat").read_text(), "the keeper stands still")
    os.kill(record["pid"], signal.SIGKILL)
    until(lambda: not alive(record["pid"]), "the server has died")
    assert Path(f"/proc/{record['pid']}").exists()
    now = iter(range(100))
    server = server_host.fresh()
    server.clock, server.sleep = lambda: float(next(now)), lambda _: None
    status = server.status()
    assert (status["alive"], status["exit"]) == (False, None)
    os.kill(record["session"], signal.SIGCONT)
    assert server_host.ended()["exit"]["signal"] == signal.SIGKILL


def test_a_server_ends_at_the_first_term(server_host: ServerHost) -> None:
    record = server_host.start(SLEEP)
    result = server_host.stop()
    assert (result["how"], set(result["stopped"])) == ("term", {record["pid"], record["session"]})
    assert not alive(record["pid"])
    status = server_host.server.status()
    assert (status["record"], status["members"]) == (None, [])
    assert status["exit"]["signal"] == signal.SIGTERM


def test_a_stop_without_a_server_does_nothing(server_host: ServerHost) -> None:
    for _ in range(2):
        result = server_host.stop()
        assert (result["how"], result["stopped"]) == ("none", [])
    assert not (server_host.folder / "state").exists()


def test_a_server_that_ignores_term_is_killed_and_its_end_is_still_written_down(server_host: ServerHost) -> None:
    record = server_host.start(TERM_IGNORED)
    server_host.pid("ready")
    beats: list[dict[str, Any]] = []
    result = server_host.server.stop("run-2", 0.2, beats.append)
    assert result["how"] == "kill"
    assert not alive(record["pid"])
    assert not alive(record["session"])
    ended = server_host.server.status()["exit"]
    assert (ended["pid"], ended["signal"]) == (record["pid"], signal.SIGKILL)
    assert beats[0]["stopping"] == sorted([record["pid"], record["session"]])


def test_a_keeper_that_hangs_is_killed_in_the_end(server_host: ServerHost, monkeypatch: pytest.MonkeyPatch) -> None:
    record = server_host.start(SLEEP)
    os.kill(record["session"], signal.SIGSTOP)
    now, killed = [0.0], []

    def note(pid: int, number: int) -> None:
        os.kill(pid, number)
        if number == signal.SIGKILL:
            killed.append(pid)

    def sleep(seconds: float) -> None:
        until(lambda: not any(map(alive, killed)), "whoever was killed is dead")  # however long that takes here
        now[0] += 1.0

    monkeypatch.setattr("eaglelab.remote.agent.launchers.process._signal", note)
    server_host.server.clock, server_host.server.sleep = lambda: now[0], sleep
    assert server_host.stop(grace=1.0)["how"] == "kill"
    assert not alive(record["pid"])
    assert not alive(record["session"])


@pytest.mark.parametrize("leaves", [False, True], ids=["in-the-session", "left-the-session"])
def test_a_grandchild_that_went_to_process_1_is_found_and_ended(server_host: ServerHost, leaves: bool) -> None:
    record = server_host.start(DOUBLE_FORK.format(leaves=leaves, nameless=False, launcher=60))
    orphan = server_host.pid("orphan")
    assert (os.getsid(orphan) == record["session"]) is not leaves
    assert orphan in server_host.fresh().members()
    result = server_host.stop()
    assert orphan in result["stopped"]
    assert not alive(orphan)


def test_what_a_dead_launcher_left_behind_gets_its_term_at_once(server_host: ServerHost) -> None:
    server_host.start(DOUBLE_FORK.format(leaves=False, nameless=False, launcher=0))
    orphan = server_host.pid("orphan")
    assert orphan in server_host.ended()["members"]
    until(lambda: server_host.server.members() == {orphan}, "the keeper is gone, too")
    with pytest.raises(AgentError, match="a server of ours is running already") as refused:
        server_host.start(SLEEP, token="token-2")
    assert refused.value.details["pids"] == [orphan]
    result = server_host.stop(grace=600.0)
    assert (result["how"], result["stopped"]) == ("term", [orphan])
    assert result["seconds"] < 60


def test_an_orphan_without_leader_and_mark_is_known_by_the_log_it_writes(server_host: ServerHost) -> None:
    """As SGLang's schedulers, whose new titles overwrite their environment."""
    record = server_host.start(DOUBLE_FORK.format(leaves=False, nameless=True, launcher=60))
    orphan = until(
        lambda: [
            pid
            for pid in server_host.server.members() - {record["pid"], record["session"]}
            if Path(f"/proc/{pid}/environ").read_bytes() == b"" and Path(f"/proc/{pid}/cmdline").read_bytes()
        ],
        "the orphan is nameless",
    )[0]
    for pid in (record["session"], record["pid"]):
        os.kill(pid, signal.SIGKILL)
    until(lambda: server_host.server.members() == {orphan}, "only the orphan is left")
    server_host.log.rename(server_host.log.with_suffix(".1"))  # rotated
    status = server_host.fresh().status()
    assert (status["alive"], status["exit"], status["members"]) == (False, None, [orphan])
    assert server_host.stop()["stopped"] == [orphan]
    assert not alive(orphan)


def test_a_stranger_with_the_same_command_line_is_not_touched(server_host: ServerHost) -> None:
    record = server_host.start("import time; print('up', flush=True); time.sleep(60)")
    stranger = server_host.stranger("import time; print('up', flush=True); time.sleep(60)", str(server_host.folder))
    assert stranger.pid not in server_host.server.members()
    server_host.stop()
    assert not alive(record["pid"])
    assert stranger.poll() is None


def test_a_stranger_under_our_old_pid_is_not_touched(server_host: ServerHost) -> None:
    server_host.start("raise SystemExit(0)")
    record = server_host.ended()["record"]
    stranger = server_host.stranger("import time; print('up', flush=True); time.sleep(60)")
    record.update(pid=stranger.pid, session=stranger.pid)
    server_host.server.state.write("server.json", record)
    status = server_host.fresh().status()
    assert (status["alive"], status["members"]) == (False, [])
    assert server_host.stop()["stopped"] == []
    assert stranger.poll() is None


def test_a_daemon_in_a_session_with_our_old_number_is_not_touched(server_host: ServerHost) -> None:
    """Its leader is gone, as ours is: only more than the number can tell them apart."""
    server_host.start("raise SystemExit(0)")
    record = server_host.ended()["record"]
    launcher = server_host.stranger(
        """
        import os, sys, time
        if os.fork():
            os._exit(0)
        print("up", flush=True)
        time.sleep(60)
        """
    )
    launcher.wait()
    daemon = next(iter(processes.session_members(launcher.pid, 0, lambda _: True)))
    try:
        record.update(pid=launcher.pid, session=launcher.pid)
        server_host.server.state.write("server.json", record)
        assert server_host.fresh().status()["members"] == []
        assert server_host.stop()["stopped"] == []
        assert alive(daemon)
    finally:
        os.kill(daemon, signal.SIGKILL)


def test_a_record_that_lacks_something_counts_as_none_and_is_named(server_host: ServerHost) -> None:
    record = server_host.start(SLEEP)
    for key in ("boot", "session", "pid_start", "port", "log_inode"):
        server_host.server.state.write("server.json", {name: record[name] for name in record if name != key})
        status = server_host.fresh().status()
        assert (status["record"], status["alive"], status["members"]) == (None, False, [record["pid"]])
        assert status["damaged"].endswith(f"server.json lacks {key}")
    server_host.server.state.write("server.json", record)
    assert server_host.fresh().status()["damaged"] is None


def test_a_record_from_before_a_reboot_names_nobody(server_host: ServerHost) -> None:
    stranger = server_host.stranger("import time; print('up', flush=True); time.sleep(60)")
    server_host.start("raise SystemExit(0)")
    record = server_host.ended()["record"]
    start = processes.start_ticks(stranger.pid)
    record.update(boot="another", pid=stranger.pid, pid_start=start, session=stranger.pid, session_start=start)
    server_host.server.state.write("server.json", record)
    status = server_host.fresh().status()
    assert (status["alive"], status["members"]) == (False, [])
    server_host.stop()
    assert stranger.poll() is None


def test_a_port_that_a_stranger_has_is_refused_and_the_stranger_is_named(server_host: ServerHost) -> None:
    stranger = server_host.stranger(LISTEN, str(server_host.port), "--api-key", "tops3cret")
    with pytest.raises(AgentError) as refused:
        server_host.start(SLEEP)
    assert refused.value.code == "port-taken"
    assert f"port {server_host.port} is taken by pid {stranger.pid} of {getpass.getuser()}: " in refused.value.what
    assert refused.value.what.endswith("--api-key ***")
    assert server_host.server.members() == set()
    assert stranger.poll() is None


def test_a_stranger_who_took_the_port_after_our_server_died_does_not_hold_up_a_stop(server_host: ServerHost) -> None:
    server_host.start("raise SystemExit(0)")
    server_host.gone()
    stranger = server_host.stranger(LISTEN, str(server_host.port))
    assert server_host.stop()["how"] == "none"
    assert server_host.server.record() is None
    assert stranger.poll() is None


def test_a_port_that_our_stopped_server_leaves_to_nobody_is_waited_for(server_host: ServerHost) -> None:
    server_host.start(
        f"""
        import socket, time
        server = socket.create_server(("127.0.0.1", {server_host.port}))
        time.sleep(60)
        """
    )
    until(lambda: processes.listener(server_host.port), "the server listens")
    server_host.stop()
    assert processes.listener(server_host.port) is None


def test_a_second_start_is_refused_while_ours_runs(server_host: ServerHost) -> None:
    record = server_host.start(SLEEP)
    with pytest.raises(AgentError) as refused:
        server_host.start(SLEEP, token="token-2")
    assert refused.value.code == "running"
    assert server_host.server.record() == record


def test_the_same_start_asked_again_gives_the_server_that_the_first_one_started(server_host: ServerHost) -> None:
    record = server_host.start(SLEEP)
    assert server_host.fresh().start("run-1", ["/none"], {}, "/none", 1, "/", {}, "token-1") == record
    os.kill(record["pid"], signal.SIGKILL)
    server_host.ended()
    assert server_host.start(SLEEP) == record  # its end is for `status` to tell


def test_the_same_start_asked_again_before_the_server_runs_waits_for_it(
    server_host: ServerHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = server_host.start(SLEEP)
    half = dict(record, pid=None, pid_start=None)
    server = server_host.fresh()
    server.state.write("server.json", half)
    monkeypatch.setattr(server, "sleep", lambda _: server.state.write("server.json", record))
    assert server.start("run-1", ["/none"], {}, "/none", 1, "/", {}, "token-1") == record


def test_a_start_that_was_cut_off_before_anything_ran_is_made_again(server_host: ServerHost) -> None:
    server_host.start("raise SystemExit(0)")
    record = server_host.ended()["record"]
    server_host.server.state.write("server.json", dict(record, pid=None, pid_start=None))
    again = server_host.start(SLEEP)
    assert again["pid"] not in (None, record["pid"])
    assert server_host.server.status()["alive"]


def test_a_command_that_does_not_exist_leaves_nothing_behind(server_host: ServerHost) -> None:
    with pytest.raises(AgentError, match=r"cannot start the server: .*No such file.*none") as refused:
        server_host.start(SLEEP, command=["/none"])
    assert refused.value.code == "start-failed"
    assert server_host.server.record() is None
    assert server_host.server.members() == set()


@pytest.mark.parametrize("env", [{"A": "nul \0"}, {"A=B": "1"}])
def test_variables_that_no_process_can_have_are_a_failed_start(server_host: ServerHost, env: dict[str, str]) -> None:
    with pytest.raises(AgentError, match="cannot start the server") as refused:
        server_host.start(SLEEP, env=env)
    assert refused.value.code == "start-failed"
    assert server_host.server.members() == set()


def test_a_log_that_cannot_be_written_is_named(server_host: ServerHost) -> None:
    with pytest.raises(AgentError, match=r"cannot write the server log /proc/none/server\.log"):
        server_host.start(SLEEP, log="/proc/none/server.log")
    assert server_host.server.members() == set()


@pytest.mark.parametrize("reader", [True, False])
def test_a_pipe_in_the_place_of_the_log_is_refused_at_once(server_host: ServerHost, reader: bool) -> None:
    server_host.log.parent.mkdir()
    os.mkfifo(server_host.log)
    end = os.open(server_host.log, os.O_RDONLY | os.O_NONBLOCK) if reader else None
    with pytest.raises(AgentError) as refused:
        server_host.start(SLEEP)
    if end is not None:
        os.close(end)
    assert refused.value.code == "not-regular"
    assert str(server_host.log) in refused.value.what
    assert server_host.server.members() == set()


def test_a_command_line_with_commands_for_the_terminal_is_shown_without_them(server_host: ServerHost) -> None:
    stranger = server_host.stranger(LISTEN, str(server_host.port), "\x1b[2J\x07\r\u202e\nx")
    holder = processes.listener(server_host.port)
    assert holder is not None
    assert holder["pid"] == stranger.pid
    assert holder["command"].endswith(" ?[2J????x")


def test_a_server_whose_pid_cannot_be_written_down_is_not_left_running(
    server_host: ServerHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Journal.write

    def full(journal: Journal, name: str, content: dict[str, Any]) -> None:
        if name == "server.json" and content["pid"] is not None:
            raise AgentError("disk-full", "no space left on the disk")
        write(journal, name, content)

    monkeypatch.setattr(Journal, "write", full)
    with pytest.raises(AgentError, match="no space left"):
        server_host.start(SLEEP)
    assert server_host.server.members() == set()
    assert server_host.server.record() is None


def test_without_room_for_the_record_no_server_is_started(
    server_host: ServerHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise AgentError("disk-full", "no space left on the disk")

    monkeypatch.setattr(Journal, "write", full)
    with pytest.raises(AgentError, match="no space left"):
        server_host.start("import pathlib, sys; pathlib.Path(sys.argv[1], 'ran').touch()")
    assert server_host.server.members() == set()
    assert not (server_host.folder / "ran").exists()


@pytest.mark.parametrize("moment", ["before the go", "after the go"])
def test_a_keeper_whose_agent_dies_runs_its_server_to_the_end_or_not_at_all(
    server_host: ServerHost, moment: str
) -> None:
    ours, theirs = socket.socketpair()
    state = Journal(str(server_host.folder / "state"))
    state.open()
    out = os.open(server_host.folder / "log", os.O_WRONLY | os.O_CREAT)
    command = server_host.script("import pathlib, sys; pathlib.Path(sys.argv[1], 'ran').touch(); raise SystemExit(5)")
    record = {"run": "run-1", "boot": "this", "port": server_host.port, "log": str(server_host.folder / "log")}
    record.update(log_offset=0, log_device=0, log_inode=0)
    pid = os.fork()
    if pid == 0:
        try:
            keeper._keep(state, command, dict(os.environ), out, "/", record, theirs)
        finally:
            os._exit(0)
    theirs.close()
    os.close(out)
    assert ours.recv(100) == b"ready\n"
    if moment == "after the go":
        ours.sendall(b"go\n")
    ours.close()
    os.waitpid(pid, 0)
    ran = moment == "after the go"
    assert (server_host.folder / "ran").exists() is ran
    assert (state.read("server.json") is not None) is ran
    ended = state.read("server.exit.json")
    assert (ended["code"] if ended else None) == (5 if ran else None)


def test_a_term_to_the_whole_group_leaves_the_keeper_to_write_down_the_end(server_host: ServerHost) -> None:
    record = server_host.start(SLEEP)
    os.killpg(record["session"], signal.SIGTERM)
    assert server_host.ended()["exit"]["signal"] == signal.SIGTERM


def test_no_secret_of_the_command_line_is_written_down(server_host: ServerHost) -> None:
    command = [
        *server_host.script(SLEEP),
        "--api-key",
        "tops3cret",
        "--hf-token=tops3cret",
        "--hf_token=tops3cret",
        "--port",
        "1",
    ]
    record = server_host.start(SLEEP, command=command, env={"HF_TOKEN": "tops3cret"})
    assert record["command"][-6:] == ["--api-key", "***", "--hf-token=***", "--hf_token=***", "--port", "1"]
    assert b"tops3cret" in Path(f"/proc/{record['pid']}/cmdline").read_bytes()
    server_host.stop()
    written = [path for path in (server_host.folder / "state").rglob("*") if path.is_file()]
    assert written
    assert not [path for path in written if b"tops3cret" in path.read_bytes()]


def test_a_takeover_ends_the_stranger_on_the_port_with_its_children_and_nobody_else(server_host: ServerHost) -> None:
    other = server_host.stranger("import time; print('up', flush=True); time.sleep(60)")
    holder = server_host.stranger(
        """
        import os, signal, socket, sys, time
        server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
        child = os.fork()
        if child == 0:
            server.close()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            print("up", flush=True)
            time.sleep(60)
        time.sleep(60)
        """,
        str(server_host.port),
    )
    tree = processes.descendants(holder.pid)
    assert len(tree) == 2
    server_host.server.state.open()
    result = server_host.server.stop_foreign("run-1", server_host.port, 0.2, lambda _: None)
    assert (result["how"], set(result["stopped"]), result["holder"]["pid"]) == ("kill", tree, holder.pid)
    assert not any(alive(pid) for pid in tree)
    assert processes.listener(server_host.port) is None
    assert other.poll() is None
    noted = [json.loads(line) for line in (server_host.folder / "state/journal.jsonl").read_text().splitlines()]
    assert [note["op"] for note in noted] == ["takeover"]


def test_a_takeover_of_a_free_port_does_nothing(server_host: ServerHost) -> None:
    result = server_host.server.stop_foreign("run-1", server_host.port, 1.0, lambda _: None)
    assert result == {"stopped": [], "how": "none"}


def test_a_process_that_does_not_end_is_named(server_host: ServerHost, monkeypatch: pytest.MonkeyPatch) -> None:
    record = server_host.start(SLEEP)
    now = [0.0]
    server_host.server.clock = lambda: now[0]
    server_host.server.sleep = lambda _: now.__setitem__(0, now[0] + 1.0)
    monkeypatch.setattr("eaglelab.remote.agent.launchers.process._signal", lambda pid, number: None)
    with pytest.raises(AgentError, match=f"these processes do not end: .*{record['pid']}") as refused:
        server_host.stop(grace=2.0)
    assert refused.value.code == "not-stopped"
    assert {item["pid"] for item in refused.value.details["pids"]} == {record["pid"], record["session"]}
    assert server_host.server.record() == record


def test_gpu_memory_that_stays_is_named(server_host: ServerHost, monkeypatch: pytest.MonkeyPatch) -> None:
    record = server_host.start(SLEEP)
    (server_host.folder / "nvidia-smi").write_text(f"#!/bin/sh\necho '{record['pid']}, 900'\n")
    (server_host.folder / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{server_host.folder}:{os.environ['PATH']}")
    assert processes.gpu_processes() == {record["pid"]: "900"}
    now = [0.0]

    def sleep(_: float) -> None:
        until(lambda: not alive(record["pid"]) and not alive(record["session"]), "both have ended")
        now[0] += 1.0

    server_host.server.clock, server_host.server.sleep = lambda: now[0], sleep
    with pytest.raises(AgentError, match="GPU memory is still held") as refused:
        server_host.stop()
    assert refused.value.code == "not-stopped"


def test_this_process_is_not_taken_for_a_part_of_the_server(server_host: ServerHost) -> None:
    record = server_host.start(SLEEP)
    assert os.getpid() not in server_host.server.members()
    assert processes.describe(record["pid"])["command"].startswith(sys.executable)
    assert processes.describe(2**22 + 1) == {"pid": 2**22 + 1, "user": "?", "command": "(gone)"}
