"""Calls over links that break: asked again where that is safe, never where it is not, and the host is asked what happened."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hostkit import ORIGINAL, Installation
from linkkit import BreakingLink, BreakingPipe, client, interpreters, wrapper
from serverkit import alive, free_port, until
from test_agent_http import DONE, STOP, chunk, stream, web

from eaglelab.errors import AttentionError, HostError, LockLost
from eaglelab.remote.agent.journal import Journal
from eaglelab.remote.agent.server import Server
from eaglelab.remote.client import AgentClient
from eaglelab.remote.hints import AgentFailure, explain
from eaglelab.remote.pipe import LinkLost, LocalLink, Silent

ME = {"by": "me@here", "run": "run-1", "command": "bench", "since": "today"}
OTHER = {"by": "colleague@there", "run": "run-9", "command": "sweep", "since": "today"}


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Every agent of a test keeps its state here; what it started is ended."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("eaglelab.remote.pipe._END_S", 0.3)
    yield tmp_path / "eaglelab"
    Server(Journal(str(tmp_path / "eaglelab"))).stop("end of test", 0.0, lambda _: None)


@pytest.fixture
def link() -> BreakingLink:
    return BreakingLink()


@pytest.fixture
def agent(link: BreakingLink) -> Iterator[AgentClient]:
    found = client(link)
    yield found
    found.close()


def receives(count: int) -> Callable[[BreakingPipe], None]:
    return lambda pipe: setattr(pipe, "received_left", count)


def sends(count: int) -> Callable[[BreakingPipe], None]:
    return lambda pipe: setattr(pipe, "sent_left", count)


def start_args(tmp_path: Path, port: int = 0) -> dict[str, Any]:
    return {
        "run": "run-1",
        "command": [sys.executable, "-S", "-c", "import time; time.sleep(60)"],
        "env": {},
        "log": str(tmp_path / "server.log"),
        "port": port or free_port(),
        "cwd": str(tmp_path),
        "about": {},
    }


def test_the_agent_answers_and_its_bytes_come_beside_the_answer(agent: AgentClient, tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_bytes(ORIGINAL)
    found, data = agent.call_bytes("read", path=str(tmp_path / "worker.py"))
    assert (data, found["size"]) == (ORIGINAL, len(ORIGINAL))
    lines = agent.call("sed", path=str(tmp_path / "worker.py"), ranges=[[2, 2]])["lines"]
    assert lines == {"2": "    return batch"}


def test_an_agent_s_refusal_comes_with_its_code_a_hint_and_the_host(agent: AgentClient) -> None:
    with pytest.raises(AgentFailure, match="no such file") as refused:
        agent.call("read", path="/none.py")
    assert (refused.value.code, refused.value.where) == ("no-such-file", "here")
    assert "inventory.yaml" in refused.value.hint
    assert agent.call("status")["record"] is None


def test_a_bug_in_the_agent_is_an_answer_and_the_agent_lives_on(agent: AgentClient, link: BreakingLink) -> None:
    with pytest.raises(AgentFailure, match="failed unexpectedly: AttributeError") as refused:
        agent.call("no-such-operation")
    assert "Traceback" in refused.value.details["traceback"]
    agent.call("status")
    assert len(link.pipes) == 1


def test_what_a_login_shell_prints_before_is_thrown_away(tmp_path: Path) -> None:
    chatter = f'echo "Welcome!"; printf "EL1 2 0"; echo oops >&2; exec {sys.executable} "$@"'
    found = client(python=wrapper(tmp_path, "python", chatter))
    assert found.call("status")["alive"] is False
    found.close()


def test_answers_may_come_in_pieces_of_any_size(agent: AgentClient, link: BreakingLink) -> None:
    agent.call("status")
    receive = link.pipes[0].receive
    pieces: list[bytes] = []

    def bit_by_bit(timeout: float) -> bytes:
        if not pieces:
            data = receive(timeout)
            pieces.extend(data[at : at + 1] for at in range(len(data)))
        return pieces.pop(0)

    link.pipes[0].receive = bit_by_bit  # type: ignore[method-assign]
    assert agent.call("status")["members"] == []
    assert agent.call("list", pattern="/none")["paths"] == []


def test_twenty_megabytes_go_both_ways_intact(agent: AgentClient, host: Installation, state: Path) -> None:
    large = os.urandom(20 << 20)
    worker = host.workers[0]
    worker.write_bytes(large)
    assert agent.call_bytes("read", path=str(worker))[1] == large
    agent.lock(ME)
    patched = b"x = 1\n"
    worker.write_bytes(patched)
    entry = host.entry(worker, large, patched)
    sized = [{"path": str(worker), "size": len(large), "sha256": entry["original"]}]
    agent.call("backup", large, run="run-1", patch="t", by="me", files=[entry], originals=sized)
    assert (state / "objects" / entry["original"]).read_bytes() == large


@pytest.mark.parametrize("count", [0, 1, 40])
def test_a_link_that_breaks_in_the_middle_of_an_answer_is_made_anew(
    agent: AgentClient, link: BreakingLink, tmp_path: Path, count: int
) -> None:
    (tmp_path / "worker.py").write_bytes(ORIGINAL)
    link.faults = [receives(count)]
    assert agent.call_bytes("read", path=str(tmp_path / "worker.py"))[1] == ORIGINAL
    assert len(link.pipes) == 2
    assert not alive(link.pipes[0].pid)


def test_a_link_that_breaks_in_the_middle_of_a_request_leaves_the_host_alone_and_is_made_anew(
    agent: AgentClient, link: BreakingLink, host: Installation
) -> None:
    host_state = Journal(os.environ["XDG_STATE_HOME"] + "/eaglelab")
    agent.lock(ME)
    agent.call("backup", run="run-1", patch="t", by="me", files=host.files(), originals=[])
    data = b"".join(host.contents.values())
    files = [
        {"path": entry["path"], "size": len(host.contents[entry["path"]]), "sha256": entry["patched"]}
        for entry in host.files()
    ]
    link.pipes[0].sent_left = 250  # not even the whole message
    answer = agent.call("apply", data, run="run-1", files=files)
    assert [change["changed"] for change in answer["files"]] == [True, True, True]
    assert len(link.pipes) == 2
    host.assert_patched()
    assert {item["state"] for item in host_state.states()} == {"patched"}
    agent.call("rollback", run="run-1")
    host.assert_original()


def test_an_apply_whose_answer_is_lost_is_asked_again_and_finds_it_done(
    agent: AgentClient, link: BreakingLink, host: Installation
) -> None:
    agent.lock(ME)
    agent.call("backup", run="run-1", patch="t", by="me", files=host.files(), originals=[])
    contents = host.contents
    files = [
        {"path": entry["path"], "size": len(contents[entry["path"]]), "sha256": entry["patched"]}
        for entry in host.files()
    ]
    link.pipes[0].received_left = 0
    answer = agent.call("apply", b"".join(contents.values()), run="run-1", files=files)
    assert [change["changed"] for change in answer["files"]] == [False, False, False]
    host.assert_patched()


def test_a_link_that_stays_away_is_said_each_time_and_given_up_in_the_end(link: BreakingLink) -> None:
    heard: list[str] = []
    found = client(link, lost=heard.append)
    link.faults = [receives(0)] * 12
    with pytest.raises(LinkLost, match="the connection broke"):
        found.call("status")
    assert len(link.pipes) == 12
    assert heard == ["the connection broke"] * 11


def test_a_host_that_stayed_away_is_tried_once_a_call_until_it_answers(link: BreakingLink) -> None:
    found = client(link)
    link.faults = [receives(0)] * 14
    for tries in (12, 13, 14):
        with pytest.raises(LinkLost):
            found.call("status")
        assert len(link.pipes) == tries
    assert found.call("status")["alive"] is False
    link.pipes[-1].received_left = 0
    assert found.call("status")["alive"] is False  # patient again
    found.close()


def test_pauses_between_tries_outlast_a_port_that_refuses_for_half_a_minute(link: BreakingLink) -> None:
    slept: list[float] = []
    found = AgentClient(link, sys.executable, sleep=slept.append)
    link.faults = [receives(0)] * 12
    with pytest.raises(LinkLost):
        found.call("status")
    assert 30 < sum(slept) < 60
    assert max(slept) == 5.0
    assert found.call("status")["alive"] is False
    found.close()


def test_a_generate_is_not_sent_twice(agent: AgentClient, link: BreakingLink) -> None:
    with web(stream(chunk(1, STOP), DONE)) as server:
        agent.call("status")
        link.pipes[0].received_left = 5
        with pytest.raises(LinkLost):
            agent.call("generate", host="127.0.0.1", port=server.port, body={}, key=None, timeout=5.0)
        assert len(server.requests) == 1
        answer = agent.call("generate", host="127.0.0.1", port=server.port, body={}, key=None, timeout=5.0)
        assert answer["meta_info"]["completion_tokens"] == 1
        assert len(server.requests) == 2


def test_a_generate_on_a_link_that_broke_before_is_sent_once_on_a_new_one(link: BreakingLink) -> None:
    """A laptop that slept: the agent has ended meanwhile, and the request must not be lost for it."""
    now = [0.0]
    found = client(link, clock=lambda: now[0])
    found.call("status")
    os.kill(link.pid, signal.SIGKILL)
    now[0] = 3600.0
    with web(stream(chunk(1, STOP), DONE)) as server:
        found.call("generate", host="127.0.0.1", port=server.port, body={}, key=None, timeout=5.0)
        assert len(server.requests) == 1
    found.close()


def test_a_host_that_cannot_be_reached_at_first_is_tried_once(link: BreakingLink) -> None:
    pauses: list[float] = []
    link.faults = [lambda pipe: os.kill(pipe.pid, signal.SIGKILL)] * 2
    found = AgentClient(link, sys.executable, sleep=pauses.append)
    for op in ("status", "http"):
        with pytest.raises(LinkLost):
            found.call(op, method="POST")
    assert (len(link.pipes), pauses) == (2, [])


def test_the_connection_is_tried_again_before_a_request_that_is_not(link: BreakingLink) -> None:
    now = [0.0]
    found = client(link, clock=lambda: now[0])
    found.call("status")
    os.kill(link.pid, signal.SIGKILL)
    now[0] = 3600.0
    link.faults = [lambda pipe: os.kill(pipe.pid, signal.SIGKILL)]
    with web(stream(chunk(1, STOP), DONE)) as server:
        found.call("generate", host="127.0.0.1", port=server.port, body={}, key=None, timeout=5.0)
        assert len(server.requests) == 1
    assert len(link.pipes) == 3
    found.close()


def test_a_look_at_the_server_is_repeated_and_a_post_is_not(agent: AgentClient, link: BreakingLink) -> None:
    about = {"host": "127.0.0.1", "path": "/x", "body": None, "key": None, "timeout": 5.0}
    with web(stream(b"{}")) as server:
        agent.call("status")
        link.pipes[-1].received_left = 0
        assert agent.call("http", method="GET", port=server.port, **about)["status"] == 200
        link.pipes[-1].received_left = 0
        with pytest.raises(LinkLost):
            agent.call("http", method="POST", port=server.port, **about)
        assert [seen["method"] for seen in server.requests] == ["GET", "GET", "POST"]


@pytest.mark.parametrize("fault", [sends(10), receives(0), receives(30)], ids=["request", "no-answer", "half-answer"])
def test_a_link_lost_around_a_start_ends_in_one_server_and_its_record(
    agent: AgentClient, link: BreakingLink, tmp_path: Path, fault: Callable[[BreakingPipe], None]
) -> None:
    agent.lock(ME)
    fault(link.pipes[0])
    record = agent.call("start", **start_args(tmp_path))
    status = agent.call("status")
    assert status["alive"]
    assert status["record"] == record
    assert set(status["members"]) == {record["pid"], record["session"]}
    notes = [json.loads(line) for line in (tmp_path / "eaglelab/journal.jsonl").read_text().splitlines()]
    assert [note["op"] for note in notes].count(
        "started"
    ) == 1  # the first agent may have been ended before it started any


def test_two_starts_of_one_run_are_two_starts(agent: AgentClient, tmp_path: Path) -> None:
    agent.lock(ME)
    first = agent.call("start", **start_args(tmp_path))
    with pytest.raises(AgentFailure, match="running already"):
        agent.call("start", **start_args(tmp_path))
    assert agent.call("stop", run="run-1", grace=60.0)["how"] == "term"
    assert agent.call("start", **start_args(tmp_path))["pid"] != first["pid"]


def test_the_next_agent_sees_the_server_of_one_that_was_killed_right_after_the_start(
    agent: AgentClient, link: BreakingLink, tmp_path: Path
) -> None:
    agent.lock(ME)
    record = agent.call("start", **start_args(tmp_path))
    os.kill(link.pid, signal.SIGKILL)
    until(lambda: not alive(link.pid), "the agent is gone")
    second = client()
    second.lock(OTHER)  # neither keeper nor server holds the lock
    assert second.call("status")["record"] == record
    assert second.call("status")["alive"]
    assert second.call("stop", run="run-9", grace=60.0)["how"] == "term"
    assert second.call("status")["exit"]["signal"] == signal.SIGTERM
    second.close()


def test_an_agent_that_is_killed_while_it_starts_a_server_never_leaves_two(tmp_path: Path, link: BreakingLink) -> None:
    found = client(link)
    found.lock(ME)
    for delay in (0.0, 0.004, 0.012):
        killer = threading.Timer(delay, os.kill, (link.pid, signal.SIGKILL))
        killer.start()
        record = found.call("start", **start_args(tmp_path))
        killer.join()
        members = found.call("status")["members"]
        assert set(members) == {record["pid"], record["session"]}
        found.call("stop", run="run-1", grace=5.0)
    found.close()


def test_a_frozen_agent_is_noticed_by_its_silence(link: BreakingLink) -> None:
    found = client(link, attempts=1)
    found.call("status")
    os.kill(link.pid, signal.SIGSTOP)
    with pytest.raises(Silent, match=r"no answer for 0\.[12] s"):
        found.call("status", silence=0.1)
    assert not alive(link.pid)
    found.close()


def test_a_frozen_agent_that_takes_no_more_bytes_is_noticed_too(link: BreakingLink) -> None:
    found = client(link, attempts=1)
    found.lock(ME)
    os.kill(link.pid, signal.SIGSTOP)
    with pytest.raises(Silent, match=r"took nothing for 0\.[13] s"):
        found.call("apply", b"x" * (1 << 20), silence=0.1, run="run-1", files=[])
    found.close()


def test_an_interrupt_in_the_middle_of_a_call_does_not_shift_the_answers(
    agent: AgentClient, link: BreakingLink, tmp_path: Path
) -> None:
    def ctrl_c(_: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    agent.lock(ME)
    stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    agent.call("start", **{**start_args(tmp_path), "command": [sys.executable, "-S", "-c", stubborn]})
    until(lambda: (tmp_path / "server.log").read_bytes() == b"up\n", "the server ignores TERM")
    with pytest.raises(KeyboardInterrupt):
        agent.call("stop", run="run-1", grace=30.0, news=ctrl_c)
    assert agent.call("rollback", run="run-1") == {"nothing": True, "files": []}
    assert agent.call("stop", run="run-1", grace=0.1)["how"] == "kill"
    assert len(link.pipes) == 2


def test_a_second_operator_is_refused_and_told_who_is_at_work(agent: AgentClient) -> None:
    agent.lock(ME)
    second = client()
    with pytest.raises(AgentFailure, match=r"another run is at work on this host.*me@here") as refused:
        second.lock(OTHER)
    assert refused.value.code == "locked"
    assert refused.value.details["holder"]["run"] == "run-1"
    assert second.call("status")["alive"] is False  # looking is free
    agent.close()
    second.lock(OTHER)
    second.close()


@pytest.mark.parametrize(
    ("holder", "who"),
    [
        ({**OTHER, "pid": 7, "doing": None}, "colleague@there runs sweep since today (run run-9)"),
        ({**OTHER, "pid": 7, "doing": "wait"}, "colleague@there runs sweep since today (run run-9, at wait)"),
        ({"by": "bob", "command": "python", "pid": 7, "run": None}, "process 7 of bob: python"),
        ({}, "it left no name"),
        (None, "it left no name"),
    ],
)
def test_who_holds_the_lock_is_said_in_one_sentence(holder: Any, who: str) -> None:
    error = explain({"code": "locked", "what": "another run is at work", "details": {"holder": holder}}, "here")
    assert error.what == f"another run is at work: {who}"


def test_the_lock_is_free_when_its_controller_says_goodbye(agent: AgentClient) -> None:
    for _ in range(2):
        agent.lock(ME)
        agent.close()


def test_the_lock_is_taken_once_however_often_it_is_asked_for(agent: AgentClient, link: BreakingLink) -> None:
    agent.lock(ME)
    agent.lock(ME)
    assert len(link.pipes) == 1


def test_the_lock_is_free_again_when_its_controller_is_killed(tmp_path: Path) -> None:
    script = f"""
import sys, time
sys.path[:0] = {sys.path!r}
from eaglelab.remote.client import AgentClient
from eaglelab.remote.pipe import LocalLink
client = AgentClient(LocalLink("here"), sys.executable)
client.lock({ME!r})
print("locked", flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as controller:
        assert controller.stdout is not None
        assert controller.stdout.readline() == b"locked\n"
        second = client()
        with pytest.raises(AgentFailure, match="me@here"):
            second.lock(OTHER)
        controller.kill()
    until(lambda: takes_lock(second), "the lock is free")
    second.close()


def takes_lock(found: AgentClient) -> bool:
    try:
        found.lock(OTHER)
    except AgentFailure as error:
        if error.code != "locked":
            raise
        return False
    return True


def test_after_a_lost_link_the_lock_is_taken_again(agent: AgentClient, link: BreakingLink) -> None:
    agent.lock(ME)
    link.pipes[0].received_left = 0
    agent.call("rollback", run="run-1")
    assert len(link.pipes) == 2
    second = client()
    with pytest.raises(AgentFailure, match="me@here"):
        second.lock(OTHER)
    second.close()


def test_an_own_agent_that_is_stuck_behind_a_dead_link_is_ended_for_its_lock(link: BreakingLink) -> None:
    found = client(link)
    found.lock(ME)
    lost = link.pipes[0]
    lost.close = lambda: None  # type: ignore[method-assign] - no goodbye comes through a dead link
    lost.received_left = 0
    assert found.call("rollback", run="run-1")["nothing"]
    until(lambda: not alive(lost.pid), "the stuck agent is gone")
    found.close()
    lost._pipe.close()


def test_a_colleague_s_agent_is_never_ended_for_its_lock(link: BreakingLink) -> None:
    mine, theirs = client(link), client()
    mine.lock(ME)
    with pytest.raises(AgentFailure):
        theirs.lock({**ME})  # even under the same name: another session
    assert alive(link.pid)
    mine.close()
    theirs.close()


def test_a_lock_that_somebody_else_took_meanwhile_ends_the_run(link: BreakingLink) -> None:
    found, other = client(link), client()
    found.lock(ME)
    os.kill(link.pid, signal.SIGKILL)
    until(lambda: takes_lock(other), "the lock is free")
    for _ in range(2):
        with pytest.raises(LockLost, match="the lock of here was taken over: colleague@there"):
            found.call("rollback", run="run-1")
    other.close()
    with pytest.raises(LockLost):  # nor when that one has gone: what it left is not this run's business
        found.call("status")
    found.close()


def test_a_lock_that_somebody_else_had_meanwhile_and_gave_back_ends_the_run_too(link: BreakingLink) -> None:
    found, other = client(link), client()
    found.lock(ME)
    os.kill(link.pid, signal.SIGKILL)
    until(lambda: takes_lock(other), "the lock is free")
    other.close()
    with pytest.raises(LockLost, match="the lock of here was taken over: colleague@there"):
        found.call("status")
    found.close()


def test_a_lock_is_stolen_from_an_agent_that_is_ended(link: BreakingLink) -> None:
    found, thief = client(link), client()
    found.lock(ME)
    thief.lock(OTHER, steal=True)
    with pytest.raises(LockLost):
        found.call("status")
    thief.close()
    found.close()


def test_a_host_for_which_another_client_has_waited_in_vain_is_tried_once_until_it_answers(link: BreakingLink) -> None:
    found = client(link, attempts=5)
    found.call("status")
    found.give_up()
    link.pipes[-1].received_left = 0
    with pytest.raises(LinkLost):
        found.call("status")
    assert (found.given_up, len(link.pipes)) == (True, 1)
    found.call("status")
    link.pipes[-1].received_left = 0
    found.call("status")
    assert (found.given_up, len(link.pipes)) == (False, 3)
    found.close()


def test_who_only_waits_hears_that_the_lock_was_stolen_and_of_a_lost_link_nothing(link: BreakingLink) -> None:
    found, thief = client(link), client()
    found.look()  # without a lock there is nothing to lose
    assert link.pipes == []
    found.lock(ME)
    link.pipes[-1].received_left = 0
    link.faults = [receives(0)]
    found.look()  # lost, made anew and lost again: tried once
    found.look()
    assert len(link.pipes) == 3
    with pytest.raises(AgentFailure, match="me@here"):
        thief.lock(OTHER)
    thief.lock(OTHER, steal=True)
    for _ in range(2):
        with pytest.raises(LockLost, match="the lock of here was taken over: colleague@there"):
            found.look()
    thief.close()
    found.close()


def test_what_the_holder_of_the_lock_is_at_is_told_and_may_fail(agent: AgentClient, link: BreakingLink) -> None:
    agent.doing("Nothing")  # no lock, and not even a link
    assert link.pipes == []
    agent.lock(ME)
    agent.doing("Patch")
    other = client()
    assert other.call("status")["lock"]["doing"] == "Patch"
    other.close()
    link.pipes[-1].received_left = 0
    agent.doing("Report")
    assert agent.call("status")["alive"] is False


def test_nothing_is_changed_without_the_lock(agent: AgentClient) -> None:
    for op in ("backup", "apply", "rollback", "start", "stop", "stop_foreign", "loaded"):
        with pytest.raises(AgentFailure, match="needs its lock") as refused:
            agent.call(op)
        assert refused.value.code == "not-locked"


def test_an_agent_whose_controller_has_been_silent_for_long_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    from eaglelab.remote.payload import agent_source

    short = agent_source().replace(b"_IDLE_S = 300\n", b"_IDLE_S = 1\n")
    assert short != agent_source()
    monkeypatch.setattr("eaglelab.remote.greeting.agent_source", lambda: short)
    link = BreakingLink()
    found = client(link)
    found.lock(ME)
    assert link.pipes[0]._pipe._process.wait(60) == -signal.SIGALRM
    second = client()
    second.lock(OTHER)
    second.close()
    found.close()


def test_a_frame_that_makes_no_sense_is_a_lost_link(agent: AgentClient, link: BreakingLink) -> None:
    agent.call("status")
    receive, once = link.pipes[0].receive, [b"Killed\n"]
    link.pipes[0].receive = lambda timeout: once.pop() if once else receive(timeout)  # type: ignore[method-assign]
    assert agent.call("status")["alive"] is False
    assert len(link.pipes) == 2


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("exit 127", "there is no Python at"),
        ("echo 'EAGLELAB-PYTHON-TOO-OLD 3.6' >&2; exit 1", "is Python 3.6; 3.8 or later is needed"),
        ("echo 'Unknown option: -I' >&2; exit 2", "is Python 2; 3.8 or later is needed"),
        ("exit 0", "ended with 0 before the agent ran"),
        ("echo 'This account is currently not available.'; exit 1", "ended with 1 .*currently not available"),
        ("head -c 10 >/dev/null; exit 3", "ended with 3 before the agent ran"),
        ('read -r size; head -c "$size" >/dev/null; exec yes', "prints without end and starts no agent: y"),
    ],
)
def test_a_python_that_is_none_is_told_apart(tmp_path: Path, text: str, what: str) -> None:
    found = client(python=wrapper(tmp_path, "python", text))
    with pytest.raises(HostError, match=what) as refused:
        found.call("status")
    assert not isinstance(refused.value, LinkLost)
    assert "python" in refused.value.hint
    found.close()


@pytest.mark.parametrize("text", ["exec cat", "exec tail -n 1"])
def test_a_program_that_reads_and_does_not_greet_is_given_up(tmp_path: Path, text: str) -> None:
    found = client(python=wrapper(tmp_path, "python", text), attempts=1, start_silence=0.2)
    with pytest.raises(Silent):
        found.call("status")
    found.close()


def test_a_missing_python_is_named() -> None:
    with pytest.raises(HostError, match="cannot run /none/python: No such file") as refused:
        client(python="/none/python").call("status")
    assert "`python` of this host" in refused.value.hint


def test_a_python_below_the_home_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    wrapper(tmp_path, "my python", f'exec {sys.executable} "$@"')
    found = client(python="~/my python")
    assert found.call("status")["alive"] is False
    found.close()


def test_much_on_stderr_does_not_stop_the_agent(tmp_path: Path) -> None:
    noise = f'head -c 1000000 /dev/zero >&2; exec {sys.executable} "$@"'
    found = client(python=wrapper(tmp_path, "python", noise))
    assert found.call("status")["alive"] is False
    found.close()


@pytest.mark.parametrize("code", ["not-stopped", "not-reverted", "backup-damaged", "bad-state"])
def test_a_host_that_a_person_must_mend_is_exit_code_3(code: str) -> None:
    error = explain({"code": code, "what": "it is so", "details": {}}, "here")
    assert isinstance(error, AttentionError)
    assert error.hint


def test_whoever_must_mend_the_state_is_told_where_the_originals_lie() -> None:
    hint = explain({"code": "bad-state", "what": "it is so", "details": {}}, "here").hint
    assert "objects/" in hint
    assert "journal.jsonl" in hint


def test_a_closed_client_can_be_used_again(agent: AgentClient) -> None:
    agent.call("status")
    agent.close()
    agent.close()
    assert agent.call("status")["alive"] is False


INTERPRETERS = interpreters()


@pytest.mark.parametrize("version", ["3.8", "3.13"])
def test_the_whole_road_under_another_python(version: str, host: Installation, tmp_path: Path) -> None:
    if version not in INTERPRETERS:
        pytest.skip(f"no Python {version} is installed here")
    python = INTERPRETERS[version]
    found = AgentClient(LocalLink("here"), python)
    found.lock(ME)
    entries, contents = host.files(), host.contents
    found.call("backup", run="run-1", patch="t", by="me", files=entries, originals=[])
    sized = [{"path": e["path"], "size": len(contents[e["path"]]), "sha256": e["patched"]} for e in entries]
    found.call("apply", b"".join(contents.values()), run="run-1", files=sized)
    host.assert_patched()
    record = found.call(
        "start", **{**start_args(tmp_path), "command": [python, "-S", "-c", "import time; time.sleep(60)"]}
    )
    assert found.call("status")["alive"]
    with socket.create_server(("127.0.0.1", 0)) as silent:
        about = {"host": "127.0.0.1", "port": silent.getsockname()[1], "key": None, "timeout": 0.1}
        assert found.call("http", method="GET", path="/", body=None, **about) == {"error": "timeout"}
        with pytest.raises(AgentFailure) as refused:
            found.call("generate", body={}, **about)
        assert refused.value.code == "timeout"
    assert set(found.call("stop", run="run-1", grace=60.0)["stopped"]) == {record["pid"], record["session"]}
    assert found.call("status")["exit"]["signal"] == signal.SIGTERM
    found.call("rollback", run="run-1")
    host.assert_original()
    found.close()


@pytest.mark.parametrize("name", ["2.7", "3.7"])
def test_a_real_python_that_is_too_old_says_so_itself(name: str) -> None:
    found = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{name}.*/bin/python"))
    if not found:
        pytest.skip(f"no Python {name} is installed here")
    with pytest.raises(HostError, match=f"is Python {'2' if name == '2.7' else name}; 3.8 or later is needed"):
        client(python=str(found[0])).call("status")
