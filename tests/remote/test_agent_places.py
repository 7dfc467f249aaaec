"""Places for servers that run at the same time: entered by whoever has the lock, looked at and ended from outside."""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from linkkit import BreakingLink, client
from serverkit import alive, free_port, until

from eaglelab.errors import AttentionError, LockLost
from eaglelab.remote.agent.journal import Journal
from eaglelab.remote.agent.lock import Lock
from eaglelab.remote.agent.main import Agent
from eaglelab.remote.agent.places import Places, heartbeat
from eaglelab.remote.agent.server import Server
from eaglelab.remote.agent.state import StateFolder
from eaglelab.remote.agent.wire import AgentError
from eaglelab.remote.client import AgentClient
from eaglelab.remote.hints import AgentFailure

ME = {"by": "me@here", "run": "run-1", "command": "sweep", "since": "today 12:00"}
OTHER = {"by": "colleague@there", "run": "run-9", "command": "bench", "since": "today 12:05"}


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "eaglelab"


@pytest.fixture
def main(state: Path) -> Iterator[AgentClient]:
    """The run that has the lock, and that leaves no server behind."""
    found = client(BreakingLink())
    found.lock(ME)
    yield found
    found.close()
    last = client(BreakingLink())
    last.lock(ME, steal=True)
    last.call("end_tasks", run="run-1", grace=0.0)
    last.close()


@pytest.fixture
def worker(state: Path) -> Iterator[AgentClient]:
    found = client(BreakingLink())
    yield found
    found.close()


def serve(worker: AgentClient, folder: str, name: str) -> dict[str, Any]:
    return worker.call(
        "start",
        run="run-1",
        command=[sys.executable, "-c", "import time; time.sleep(60)"],
        env={},
        log=f"{folder}/server.log",
        port=free_port(),
        cwd=folder,
        about={"steps": 2, "fingerprint": name},
    )


def test_servers_in_two_places_run_at_the_same_time_and_each_place_knows_its_own(
    main: AgentClient, worker: AgentClient, state: Path
) -> None:
    pids = []
    for name in ("k1", "k2"):
        folder = worker.enter("run-1", name, main.session)
        assert folder == str(state / "tasks/run-1" / name)
        pids.append(serve(worker, folder, name)["pid"])
    assert worker.call("status")["record"]["fingerprint"] == "k2"
    status = main.call("status")
    assert status["record"] is None
    assert [(task["run"], task["task"], task["record"]["pid"]) for task in status["tasks"]] == [
        ("run-1", "k1", pids[0]),
        ("run-1", "k2", pids[1]),
    ]
    assert "tasks" not in worker.call("status")


def test_all_servers_of_a_run_are_ended_and_their_places_go(
    main: AgentClient, worker: AgentClient, state: Path
) -> None:
    pids = {}
    for run, name in (("run-1", "k1"), ("run-1", "k2"), ("run-0", "k1"), ("run-0", "silent")):
        pids[run, name] = serve(worker, worker.enter(run, name, main.session), name)["pid"]
        (state / "tasks" / run / name / "server.log").write_text("" if name == "silent" else "what it said")
    assert main.call("end_tasks", run="run-1", of="run-1", grace=0.0)["stopped"] == ["k1", "k2"]
    assert [alive(pid) for pid in pids.values()] == [False, False, True, True]
    assert [path.name for path in (state / "tasks").iterdir()] == ["run-0"]
    assert main.call("end_tasks", run="run-1", grace=0.0)["stopped"] == ["k1", "silent"]
    assert [alive(pid) for pid in pids.values()] == [False] * 4
    assert [path.name for path in (state / "tasks/run-0").iterdir()] == ["k1"], "nobody has looked at its log yet"
    assert main.call("status")["tasks"] == []
    assert main.call("status")["ended"] == [["run-0", "k1"]]
    assert main.call("end_tasks", run="run-0", of="run-0", grace=0.0)["stopped"] == []
    assert list((state / "tasks").iterdir()) == []
    assert main.call("end_tasks", run="run-1", grace=0.0)["stopped"] == []


def test_a_stop_of_the_hosts_own_server_leaves_those_in_places_alone(main: AgentClient, worker: AgentClient) -> None:
    pid = serve(worker, worker.enter("run-1", "k1", main.session), "k1")["pid"]
    assert main.call("stop", run="run-1", grace=0.0)["stopped"] == []
    assert alive(pid)


def test_after_a_lost_link_the_worker_is_in_its_place_again(main: AgentClient, state: Path) -> None:
    link = BreakingLink()
    worker = client(link)
    serve(worker, worker.enter("run-1", "k1", main.session), "k1")
    link.pipes[-1].received_left = 0
    assert worker.call("status")["record"]["fingerprint"] == "k1"
    assert len(link.pipes) == 2
    worker.close()


LOOKS: list[dict[str, Any]] = [
    {"op": "status"},
    {"op": "load_poll", "id": "l", "run": "run-1", "offset": 0},
    {"op": "tail", "path": "/none", "offset": 0, "limit": 1},
    {"op": "list", "pattern": ""},
    {"op": "stop", "run": "run-1", "grace": 0.0},
]


@pytest.mark.parametrize("what", LOOKS, ids=[what["op"] for what in LOOKS])
def test_once_somebody_else_has_taken_the_lock_a_place_answers_nothing_so_that_who_only_waits_ends(
    main: AgentClient, worker: AgentClient, what: dict[str, Any]
) -> None:
    folder = worker.enter("run-1", "k1", main.session)
    thief = client(BreakingLink())
    thief.lock(OTHER, steal=True)
    with pytest.raises(LockLost, match=r"taken over: colleague@there runs bench .*run-9"):
        worker.call(**what)
    thief.close()
    with pytest.raises(LockLost):  # nor once the thief has gone
        serve(worker, folder, "k1")


def test_a_worker_that_lost_the_lock_says_not_a_word_more_to_the_host(main: AgentClient, state: Path) -> None:
    link = BreakingLink()
    worker = client(link)
    worker.enter("run-1", "k1", main.session)
    thief = client(BreakingLink())
    thief.lock(OTHER, steal=True)
    for _ in range(2):
        with pytest.raises(LockLost, match="colleague@there runs bench"):
            worker.call("status")
    until(lambda: not alive(link.pid), "its agent has ended")
    assert len(link.pipes) == 1
    thief.close()
    worker.close()


def test_a_worker_that_only_waits_hears_that_the_lock_was_taken_over(main: AgentClient, worker: AgentClient) -> None:
    worker.look()  # it has no place yet
    worker.enter("run-1", "k1", main.session)
    worker.look()
    thief = client(BreakingLink())
    thief.lock(OTHER, steal=True)
    with pytest.raises(LockLost, match="colleague@there runs bench"):
        worker.look()
    thief.close()


def test_an_agent_that_did_not_get_into_its_place_is_asked_nothing_in_its_stead(main: AgentClient, state: Path) -> None:
    link = BreakingLink()
    worker = client(link)
    worker.enter("run-1", "k1", main.session)
    link.pipes[-1].received_left = 0
    (state / "tasks").chmod(0o755)
    for _ in range(2):  # the second question, too, is not one to the server of the host itself
        with pytest.raises(AttentionError, match="may be entered by other users"):
            worker.call("stop", run="run-1", grace=0.0)
    (state / "tasks").chmod(0o700)
    assert worker.call("stop", run="run-1", grace=0.0)["stopped"] == []
    worker.close()


def test_an_agent_that_could_not_enter_changes_nothing_of_the_host_itself(main: AgentClient, state: Path) -> None:
    agent = Agent(Journal(str(state)), io.BytesIO())
    for session, name, what in ((main.session, "a/b", "no place can be named"), ("another", "k1", "was taken over")):
        with pytest.raises(AgentError, match=what):
            agent.op_enter("run-1", name, session)
        with pytest.raises(AgentError, match="stop changes the host and needs its lock"):
            agent._must_be_ours("stop")


def test_whose_lock_it_is_is_asked_again_while_somebody_is_about_to_write_that_down(
    main: AgentClient, worker: AgentClient, state: Path
) -> None:
    written = (state / "lock").read_text()
    lock = Lock(StateFolder(str(state)), sleep=lambda _: (state / "lock").write_text(written) and None)
    (state / "lock").write_text("")  # as whoever takes it does first, also the run itself after a lost link
    assert lock.last()["session"] == main.session
    naps: list[float] = []
    (state / "lock").write_text("")
    assert Lock(StateFolder(str(state)), sleep=naps.append).last() == {}
    assert 0 < sum(naps) < 0.5
    (state / "lock").write_text(written)


def test_a_place_works_on_while_the_link_of_the_one_with_the_lock_is_away(
    main: AgentClient, worker: AgentClient
) -> None:
    folder = worker.enter("run-1", "k1", main.session)
    main.close()
    assert serve(worker, folder, "k1")["pid"]


def test_a_place_is_not_entered_by_whoever_has_no_lock(state: Path, worker: AgentClient) -> None:
    with pytest.raises(LockLost, match="taken over"):
        worker.enter("run-1", "k1", "a session that never was")
    assert not (state / "tasks").exists()


@pytest.mark.parametrize("op", ["backup", "apply", "rollback", "end_tasks", "remove_tasks", "stop_foreign"])
def test_what_all_places_share_is_not_changed_from_within_one(main: AgentClient, worker: AgentClient, op: str) -> None:
    worker.enter("run-1", "k1", main.session)
    with pytest.raises(AgentFailure, match="is not for a place of its own"):
        worker.call(op)


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "k1\n", "/etc"])
def test_a_name_that_leads_elsewhere_is_refused(main: AgentClient, worker: AgentClient, state: Path, name: str) -> None:
    with pytest.raises(AgentFailure, match="no place can be named"):
        worker.enter("run-1", name, main.session)
    with pytest.raises(AgentFailure, match="no place can be named"):
        worker.enter(name, "k1", main.session)


def test_what_works_in_a_place_shows_that_somebody_is_there(
    main: AgentClient, worker: AgentClient, state: Path
) -> None:
    worker.enter("run-1", "k1", main.session)
    worker.call("status")
    beat = state / "tasks/run-1/k1/alive"
    assert abs(int(beat.read_text()) - time.time()) < 30


def test_the_files_of_a_place_are_its_own(main: AgentClient, worker: AgentClient, state: Path) -> None:
    worker.enter("run-1", "k1", main.session)
    path = worker.call("keep", b"{}", suffix=".json")["path"]
    assert path.startswith(str(state / "tasks/run-1/k1/files/"))


def test_one_that_cannot_be_ended_is_named_and_keeps_its_place_and_the_others_end(tmp_path: Path) -> None:
    class Stubborn(Server):
        def stop(self, run: str, grace: float, beat: Any) -> dict[str, Any]:
            if self.state.folder.endswith("k1"):
                raise AgentError("not-stopped", "nothing can be said of our server")
            if self.state.folder.endswith("k3"):
                raise KeyError("name")
            return {"stopped": ["eaglelab-2"], "how": "term", "damaged": None}

    home = Journal(str(tmp_path / "state"))
    places = Places(home, Stubborn)
    for name in ("k1", "k2", "k3"):
        places.enter("run-1", name)
    said = r"not ended: k1 of run run-1: nothing can be said of our server; k3 of run run-1: KeyError: 'name'"
    with pytest.raises(AgentError, match=said) as raised:
        places.end("run-1", None, 0.0, lambda _: None)
    assert raised.value.code == "not-stopped"
    assert sorted(path.name for path in (tmp_path / "state/tasks/run-1").iterdir()) == ["k1", "k3"]
    noted = [json.loads(line) for line in (tmp_path / "state/journal.jsonl").read_text().splitlines()]
    assert noted[-1]["tasks"] == ["run-1/k1", "run-1/k2", "run-1/k3"]


def test_a_place_whose_record_cannot_be_read_is_said_and_kept(main: AgentClient, state: Path) -> None:
    place = state / "tasks/run-1/k1"
    Places(Journal(str(state)), Server).enter("run-1", "k1")
    for name in ("server.json", "server.json.old"):
        (place / name).write_text("half of a rec")
    (place / "server.log").write_text("what it said\n")
    with pytest.raises(
        AttentionError, match=f"k1 of run run-1: its record cannot be read, .* job of it runs on .{place}."
    ):
        main.call("end_tasks", run="run-1", grace=0.0)
    assert (place / "server.log").read_text() == "what it said\n"
    assert (place / "server.json.damaged").read_text() == "half of a rec"


def test_an_agent_that_is_left_in_a_place_is_ended_by_the_next_one_there(main: AgentClient, state: Path) -> None:
    left = client(BreakingLink())
    left.enter("run-1", "k1", main.session)
    agent = json.loads((state / "tasks/run-1/k1/lock").read_text())["pid"]
    worker = client(BreakingLink())
    worker.enter("run-1", "k1", main.session)
    until(lambda: not alive(agent), "it has ended")
    worker.enter("run-1", "k2", main.session)
    assert Lock(StateFolder(str(state / "tasks/run-1/k1"), Journal(str(state)))).holder() is None
    worker.close()
    left.close()


def test_what_is_stuck_in_a_place_is_ended_before_its_server_is(main: AgentClient, state: Path) -> None:
    left = client(BreakingLink())
    left.enter("run-1", "k1", main.session)
    agent = json.loads((state / "tasks/run-1/k1/lock").read_text())["pid"]
    assert main.call("end_tasks", run="run-1", grace=0.0)["stopped"] == []
    until(lambda: not alive(agent), "it has ended")
    left.close()


def test_a_place_is_private_as_the_state_folder_is(tmp_path: Path) -> None:
    home = Journal(str(tmp_path / "state"))
    place = Places(home, Server).enter("run-1", "k1")
    for folder in (tmp_path / "state/tasks", Path(place.folder), Path(place.folder, "runs")):
        assert folder.stat().st_mode & 0o077 == 0
    (tmp_path / "state/tasks").chmod(0o755)
    with pytest.raises(AgentError, match="may be entered by other users") as refused:
        Places(home, Server).enter("run-1", "k2")
    assert refused.value.code == "unsafe-state"
    assert heartbeat(place).startswith(place.folder)
    assert until(lambda: place.home is home, "it knows its home")
