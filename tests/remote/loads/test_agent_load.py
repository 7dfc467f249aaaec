"""Loads as the host keeps them: started once, outliving agent, link and controller, and ended with the server."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from linkkit import BreakingLink, BreakingPipe, client, interpreters
from loadkit import ME, Streamer, load, request, streamer
from serverkit import alive, free_port, until

from eaglelab.remote.agent.journal import Journal
from eaglelab.remote.agent.load import Loads
from eaglelab.remote.agent.load_process import BEGIN, BEGUN
from eaglelab.remote.client import AgentClient
from eaglelab.remote.hints import AgentFailure


@pytest.fixture
def held() -> Iterator[Streamer]:
    """A server whose streams stop after their first event until `release` is set."""
    release = threading.Event()

    def hold(_: str, tokens: int) -> None:
        if tokens == 3:
            release.wait(20)

    with streamer(before=hold) as server:
        server.release = release  # type: ignore[attr-defined]
        yield server
        release.set()


def start(agent: AgentClient, port: int, count: int = 4, **changes: Any) -> dict[str, Any]:
    spec = load(port, count, **changes)
    return agent.call("load_start", id="k2", run="run-1", spec=spec, requests=[request(str(n)) for n in range(count)])


def poll(agent: AgentClient, offset: int = 0) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    found, data = agent.call_bytes("load_poll", id="k2", run="run-1", offset=offset)
    return found, [json.loads(line) for line in data.splitlines()]


def finished(agent: AgentClient, state: str = "done") -> list[dict[str, Any]]:
    """All lines, once the load has ended so."""
    until(lambda: poll(agent)[0]["state"] != "running", "the load has ended")
    found, lines = poll(agent)
    assert found["state"] == state
    assert not found["more"]
    return lines


def test_a_load_runs_by_itself_and_its_lines_come_bit_by_bit(agent: AgentClient, held: Any) -> None:
    begun = start(agent, held.port)
    assert begun["state"] == "running"
    held.wait_for(lambda: held.running == 2)
    found, lines = poll(agent)
    assert (found["state"], found["record"]["pid"]) == ("running", begun["record"]["pid"])
    assert [list(line) for line in lines] == [["begin"]]
    assert (lines[0]["begin"]["requests"], lines[0]["begin"]["connections"]) == (4, "one a request")
    held.release.set()
    finished(agent)
    rest = poll(agent, found["next"])[1]
    assert sorted(line["index"] for line in rest[:-1]) == [0, 1, 2, 3]
    assert rest[-1]["end"]["finished"] == 4


def test_progress_is_told_while_the_load_runs(agent: AgentClient, held: Any) -> None:
    start(agent, held.port)
    news = until(lambda: poll(agent)[0]["progress"], "there is news")
    until(lambda: poll(agent)[0]["progress"]["tokens"] == 2, "two streams began")
    news = poll(agent)[0]["progress"]
    assert (news["sent"], news["running"], news["finished"], news["failed"], news["requests"]) == (2, 2, 0, 0, 4)
    assert news["elapsed_s"] > 0


def test_the_process_is_detached_and_has_nothing_of_the_agent(
    agent: AgentClient, held: Any, link: BreakingLink
) -> None:
    pid = start(agent, held.port, key="tops3cret")["record"]["pid"]
    held.wait_for(lambda: held.running == 2)
    assert os.getsid(pid) == pid != os.getsid(link.pid)
    targets = {int(path.name): str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()}
    assert [target for target in targets.values() if target.endswith("lock")] == []
    assert [targets[number] for number in range(3)] == ["/dev/null"] * 3
    pipes = {str(Path(f"/proc/{link.pid}/fd/{number}").readlink()) for number in range(3)}
    assert not pipes & set(targets.values())


def test_the_key_is_in_no_file_and_no_argument(agent: AgentClient, held: Any, state: Path) -> None:
    pid = start(agent, held.port, key="tops3cret")["record"]["pid"]
    held.wait_for(lambda: held.running == 2)
    assert held.keys == {"Bearer tops3cret"}
    files = [path for path in state.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"k2.json", "k2.jsonl"}
    for path in [*files, Path(f"/proc/{pid}/cmdline"), Path(f"/proc/{pid}/environ")]:
        assert b"tops3cret" not in path.read_bytes()


def test_only_its_owner_may_read_what_was_asked(agent: AgentClient, held: Any, state: Path) -> None:
    start(agent, held.port)
    folder = state / "runs/run-1/load"
    assert [(folder / name).stat().st_mode & 0o077 for name in (".", "k2.json", "k2.jsonl")] == [0, 0, 0]


def test_asked_again_the_load_that_runs_or_has_ended_is_the_answer(agent: AgentClient, held: Any) -> None:
    first = start(agent, held.port)
    assert start(agent, held.port) == first
    held.release.set()
    finished(agent)
    again = start(agent, held.port)
    assert (again["state"], again["record"]) == ("done", first["record"])
    assert len(held.asked) == 4


def test_another_load_under_the_same_name_is_refused(agent: AgentClient, held: Any) -> None:
    start(agent, held.port)
    with pytest.raises(AgentFailure) as refused:
        start(agent, held.port, count=3)
    assert refused.value.code == "load-exists"


def test_two_loads_would_be_in_each_other_s_figures_so_the_second_is_refused(agent: AgentClient, held: Any) -> None:
    pid = start(agent, held.port)["record"]["pid"]
    with pytest.raises(AgentFailure, match="load k2 of run run-1 is still running") as refused:
        agent.call("load_start", id="k5", run="run-2", spec=load(held.port, 1), requests=[request("0")])
    assert refused.value.code == "load-running"
    assert refused.value.details["load"]["pid"] == pid


@pytest.mark.parametrize(
    "wrong",
    [
        {"rounds": [{"requests": [0, 7]}]},
        {"rounds": [{"requests": [0, 0]}]},
        {"rounds": [{"requests": [-1]}]},
        {"mode": "burst"},
        {"concurrency": 0},
        {"silence": 0},
        {"rounds": None},
    ],
)
def test_a_load_that_makes_no_sense_is_refused_before_anything_is_sent(
    agent: AgentClient, wrong: dict[str, Any]
) -> None:
    with streamer() as server:
        with pytest.raises(AgentFailure) as refused:
            start(agent, server.port, **wrong)
        assert refused.value.code == "bad-load"
        assert server.asked == []
    with pytest.raises(AgentFailure) as unknown:
        poll(agent)
    assert unknown.value.code == "no-load"


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden", "a.progress"])
def test_a_name_that_leads_elsewhere_is_refused(agent: AgentClient, name: str) -> None:
    with pytest.raises(AgentFailure) as refused:
        agent.call("load_poll", id=name, run="run-1", offset=0)
    assert refused.value.code == "bad-load"


def test_a_host_that_cannot_be_found_is_said_at_once_and_may_be_tried_again(agent: AgentClient, held: Any) -> None:
    with pytest.raises(AgentFailure, match="did not begin") as refused:
        start(agent, held.port, host="no host")
    assert refused.value.code == "load-failed"
    assert start(agent, held.port)["state"] == "running"


def test_a_load_needs_the_lock(link: BreakingLink) -> None:
    other = client(link)
    with pytest.raises(AgentFailure) as refused:
        start(other, free_port())
    assert refused.value.code == "not-locked"
    other.close()


def test_the_load_outlives_its_agent_and_the_next_one_reads_it_to_the_end(
    agent: AgentClient, link: BreakingLink, held: Any
) -> None:
    pid = start(agent, held.port)["record"]["pid"]
    held.wait_for(lambda: held.running == 2)
    os.kill(link.pid, signal.SIGKILL)
    assert poll(agent)[0]["state"] == "running"
    assert len(link.pipes) == 2
    assert alive(pid)
    held.release.set()
    assert finished(agent)[-1]["end"]["finished"] == 4


def test_a_load_whose_controller_is_gone_goes_on_to_its_end(agent: AgentClient, held: Any) -> None:
    start(agent, held.port)
    agent.close()
    held.release.set()
    held.wait_for(lambda: len(held.asked) == 4 and held.running == 0)
    later = client()
    assert finished(later)[-1]["end"]["reason"] == "finished"
    later.close()


def test_a_load_whose_agent_was_killed_before_it_could_begin_is_begun_by_the_next_try(
    agent: AgentClient, held: Any, state: Path
) -> None:
    record = start(agent, held.port)["record"]
    agent.call("load_stop", id="k2", run="run-1")
    (state / "runs/run-1/load/k2.jsonl").unlink()
    held.release.set()
    again = start(agent, held.port)["record"]
    assert (again["pid"], again["pid_start"]) != (record["pid"], record["pid_start"])
    assert finished(agent)[-1]["end"]["finished"] == 4


@pytest.mark.parametrize("count", [0, 1, 20, 60, 200, 400])
@pytest.mark.parametrize("way", ["sent_left", "received_left"])
def test_a_link_cut_anywhere_in_the_start_leaves_one_load_that_the_next_try_finds(
    tmp_path: Path, way: str, count: int
) -> None:
    def cut(pipe: BreakingPipe) -> None:
        setattr(pipe, way, count)

    with streamer() as server:
        link = BreakingLink(faults=[lambda _: None, cut])
        found = client(link)
        found.lock(ME)
        link.pipes[0].received_left = 0  # so that the next question makes a new link, which is then cut
        start(found, server.port)
        lines = finished(found)
        found.close()
    assert sorted(line["index"] for line in lines[1:-1]) == [0, 1, 2, 3]
    assert sorted(body["rid"] for body in server.asked) == list("0123")


def test_a_stopped_load_says_what_it_has_left_undone(agent: AgentClient, held: Any) -> None:
    pid = start(agent, held.port, count=9)["record"]["pid"]
    held.wait_for(lambda: held.running == 2)
    assert agent.call("load_stop", id="k2", run="run-1", grace=60.0) == {"how": "term", "state": "done"}
    assert not alive(pid)
    end = finished(agent)[-1]["end"]
    assert (end["reason"], end["failed"], end["unsent"]) == ("stopped", 2, 7)
    assert agent.call("load_stop", id="k2", run="run-1") == {"how": "none", "state": "done"}


def test_a_load_that_hears_no_signal_is_killed_and_is_then_dead(agent: AgentClient, held: Any) -> None:
    pid = start(agent, held.port)["record"]["pid"]
    held.wait_for(lambda: held.running == 2)
    os.kill(pid, signal.SIGSTOP)
    found = agent.call("load_stop", id="k2", run="run-1", grace=0.1)
    assert found == {"how": "kill", "state": "dead"}
    assert [list(line) for line in finished(agent, "dead")] == [["begin"]]


def test_a_pid_that_is_somebody_else_s_by_now_is_left_alone(agent: AgentClient, held: Any, state: Path) -> None:
    record = start(agent, held.port)["record"]
    agent.call("load_stop", id="k2", run="run-1")
    path = state / "runs/run-1/load/k2.json"
    path.write_text(json.dumps({**record, "pid": os.getpid()}))
    assert agent.call("load_stop", id="k2", run="run-1")["how"] == "none"
    path.write_text(json.dumps({**record, "pid": os.getpid(), "boot": "another"}))
    assert agent.call("load_stop", id="k2", run="run-1")["how"] == "none"


def test_a_load_is_ended_before_the_server_is(agent: AgentClient, held: Any) -> None:
    pid = start(agent, held.port)["record"]["pid"]
    held.wait_for(lambda: held.running == 2)
    agent.call("stop", run="run-2", grace=60.0)
    assert not alive(pid)
    assert finished(agent)[-1]["end"]["reason"] == "stopped"


def test_a_damaged_record_of_a_load_does_not_keep_a_server_from_being_stopped(agent: AgentClient, state: Path) -> None:
    folder = state / "runs/run-0/load"
    folder.mkdir(parents=True)
    (folder / "k1.json").write_text("{half")
    assert agent.call("stop", run="run-2", grace=1.0)["how"] == "none"


def test_a_killed_load_whose_last_line_was_cut_off_is_dead_and_its_whole_lines_are_there(
    agent: AgentClient, held: Any, state: Path
) -> None:
    pid = start(agent, held.port)["record"]["pid"]
    held.wait_for(lambda: held.running == 2)
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid), "the load is gone")
    with (state / "runs/run-1/load/k2.jsonl").open("a") as file:
        file.write('{"end":')
    found, lines = poll(agent)
    assert (found["state"], found["more"]) == ("dead", False)
    assert [list(line) for line in lines] == [["begin"]]


def test_a_result_that_is_too_large_for_one_answer_comes_in_whole_lines(tmp_path: Path) -> None:
    loads = Loads(Journal(str(tmp_path / "eaglelab")))
    loads.state.open()
    folder = tmp_path / "eaglelab/runs/run-1/load"
    folder.mkdir(parents=True)
    record = {"id": "k2", "run": "run-1", "pid": 2, "pid_start": 0, "boot": "", "what": ""}
    (folder / "k2.json").write_text(json.dumps(record))
    written = b"".join(b'{"index":%d,"x":"%s"}\n' % (number, b"x" * 999_999) for number in range(9)) + b'{"end":{}}\n'
    (folder / "k2.jsonl").write_bytes(written)
    found, data, offsets = {"next": 0, "more": True}, b"", []
    while found["more"]:
        found, piece = loads.poll("k2", "run-1", found["next"])
        assert piece.endswith(b"\n")
        data += piece
        offsets.append(found["next"])
    assert data == written
    assert (found["state"], len(offsets)) == ("done", 3)


def test_a_load_goes_on_though_its_agent_dies_in_the_moment_in_which_it_begins(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with streamer() as server:
        about = json.dumps([load(server.port, 4), [request(str(number)) for number in range(4)]])
        code = (
            "import json, socket, sys; from eaglelab.remote.agent.load_process import driving, run_load; "
            "run_load(sys.argv[1], driving(*json.loads(sys.argv[2])), socket.socket(fileno=int(sys.argv[3])))"
        )
        arguments = [sys.executable, "-c", code, str(tmp_path / "k2"), about, str(theirs.fileno())]
        process = subprocess.Popen(arguments, pass_fds=[theirs.fileno()])
        theirs.close()
        with ours:
            assert ours.recv(100) == BEGUN
            ours.sendall(BEGIN)
        process.wait(20)
    assert json.loads((tmp_path / "k2.jsonl").read_text().splitlines()[-1])["end"]["finished"] == 4


@pytest.mark.parametrize(
    "python", [path for version, path in interpreters().items() if version in ("3.8", "3.9", "3.13")]
)
def test_old_and_new_pythons_run_a_load(python: str) -> None:
    with streamer() as server:
        found = client(python=python)
        found.lock(ME)
        start(found, server.port)
        assert finished(found)[-1]["end"]["finished"] == 4
        found.close()


def test_a_full_disk_ends_the_load_and_the_progress_says_why(agent: AgentClient, held: Any) -> None:
    pid = start(agent, held.port)["record"]["pid"]
    held.wait_for(lambda: held.running == 2)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (300, 300))
    held.release.set()
    until(lambda: poll(agent)[0]["state"] == "dead", "the load has ended")
    found, lines = poll(agent)
    assert [list(line) for line in lines] == [["begin"]]
    assert "File too large" in found["progress"]["error"]
