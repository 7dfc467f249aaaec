"""Who has the host, what they are at, and how it is taken from them."""

from __future__ import annotations

import errno
import fcntl
import getpass
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hostkit import Installation
from linkkit import BreakingLink, client, interpreters
from serverkit import alive, free_port, until

from eaglelab.errors import HostError
from eaglelab.remote.agent.flocks import FolderLocks
from eaglelab.remote.agent.journal import Journal
from eaglelab.remote.agent.lock import Lock
from eaglelab.remote.agent.processes import boot_id, start_ticks
from eaglelab.remote.agent.wire import AgentError
from eaglelab.remote.client import AgentClient
from eaglelab.remote.hints import AgentFailure, explain

ME = {"by": "me@here", "run": "run-1", "command": "bench", "since": "today 12:00"}
OTHER = {"by": "colleague@there", "run": "run-9", "command": "sweep", "since": "today 12:05"}


def nothing(news: dict[str, Any]) -> None:
    """Where nobody wants to hear what is waited for."""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "eaglelab"


@pytest.fixture
def link() -> BreakingLink:
    return BreakingLink()


@pytest.fixture
def holding(state: Path, link: BreakingLink) -> Iterator[AgentClient]:
    """A colleague's run that has the lock."""
    found = client(link)
    found.lock(OTHER)
    yield found
    found.close()


def lock(state: Path) -> Lock:
    return Lock(Journal(str(state)), sleep=lambda _: None)


def refused(state: Path, **how: Any) -> AgentError:
    with pytest.raises(AgentError) as error:
        lock(state).take(ME, **how)
    return error.value


def test_who_has_the_lock_and_what_they_are_at_comes_with_the_refusal(
    state: Path, holding: AgentClient, link: BreakingLink
) -> None:
    error = refused(state)
    assert error.code == "locked"
    assert error.details == {"holder": {**OTHER, "doing": None, "pid": link.pid}}
    holding.call("doing", text="wait: loading")
    assert refused(state).details["holder"] == {**OTHER, "doing": "wait: loading", "pid": link.pid}
    holding.call("doing", text="stop")  # shorter: nothing of the longer one is left
    assert refused(state).details["holder"]["doing"] == "stop"


def test_the_status_names_the_present_holder_and_takes_nothing(
    state: Path, holding: AgentClient, link: BreakingLink
) -> None:
    looking = client()
    assert looking.call("status")["lock"] == {**OTHER, "doing": None, "pid": link.pid}
    assert holding.call("status")["lock"]["run"] == "run-9"
    holding.close()
    assert looking.call("status")["lock"] is None
    with_it = client()
    with_it.lock(ME)
    assert looking.call("status")["lock"]["by"] == "me@here"
    with_it.close()
    looking.close()


def test_what_is_done_without_the_lock_is_written_down_nowhere(state: Path) -> None:
    found = client()
    assert found.call("doing", text="status") == {}
    assert not state.exists()
    found.close()


def test_what_is_done_is_said_without_fail_on_a_full_disk(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    held = lock(state)
    held.take(ME)
    monkeypatch.setattr(os, "pwrite", full)
    held.doing("wait")
    assert held.holder() == {**ME, "doing": "wait", "pid": os.getpid()}
    assert lock(state).holder() == {**ME, "doing": None, "pid": os.getpid()}


def test_a_holder_without_room_for_its_name_is_known_by_its_process(
    state: Path, holding: AgentClient, link: BreakingLink
) -> None:
    (state / "lock").write_bytes(b"")
    for found in (refused(state).details["holder"], lock(state).holder()):
        assert found is not None
        assert (found["pid"], found["run"]) == (link.pid, None)
        assert found["command"] == "an agent of eaglelab"


@pytest.mark.parametrize(
    "text",
    [
        *("{half", "[1]", "\0" * 100, '{"pid": "7"}', "[" * 10_000, '{"pid": true, "start": 1}'),
        *(f'{{"pid": {pid}, "start": [], "by": {{}}}}' for pid in ("1e400", "-1", "7.5", "null", "1" * 400, "NaN")),
    ],
)
def test_a_lock_file_of_garbage_is_as_good_as_none(state: Path, text: str) -> None:
    Journal(str(state)).open()
    (state / "lock").write_text(text)
    assert lock(state).holder() is None
    held = lock(state)
    held.take(ME)
    assert json.loads((state / "lock").read_text())["run"] == "run-1"


def test_a_lock_whose_holder_is_gone_is_simply_taken(state: Path, holding: AgentClient, link: BreakingLink) -> None:
    os.kill(link.pid, signal.SIGKILL)
    until(lambda: not alive(link.pid), "the holder is gone")
    assert lock(state).holder() is None
    lock(state).take(ME)
    assert not (state / "journal.jsonl").exists()  # nothing was taken from anybody


def test_a_steal_ends_the_holder_and_is_noted_with_both_names(
    state: Path, holding: AgentClient, link: BreakingLink
) -> None:
    victim = link.pid
    thief = client()
    thief.call("lock", holder=ME, steal=True)
    until(lambda: not alive(victim), "the holder's agent is gone")
    assert lock(state).holder() == {**ME, "doing": None, "pid": thief.link.pid}  # type: ignore[attr-defined]
    (note,) = [json.loads(line) for line in (state / "journal.jsonl").read_text().splitlines()]
    assert (note["op"], note["from"]["by"], note["from"]["pid"]) == ("steal", "colleague@there", victim)
    assert (note["by"]["by"], note["by"]["run"]) == ("me@here", "run-1")
    with pytest.raises(HostError, match="me@here runs bench"):  # the victim's controller, with a new agent
        holding.call("rollback", run="run-9")
    thief.close()


def test_whoever_takes_the_lock_is_told_who_had_it_before(state: Path) -> None:
    first, again = lock(state), lock(state)
    assert first.take(OTHER) is None
    assert first.take(OTHER) is None
    assert first._descriptor is not None
    os.close(first._descriptor)  # as at its end
    found = again.take(ME)
    assert found is not None
    assert (found["run"], found["since"]) == ("run-9", "today 12:05")


def test_a_steal_of_a_free_lock_is_a_plain_lock(state: Path) -> None:
    lock(state).take(ME, steal=True)
    assert not (state / "journal.jsonl").exists()


@pytest.mark.parametrize("wrong", ["start", "boot", "pid"])
def test_a_process_that_is_not_proven_to_be_the_holder_is_never_ended(
    state: Path, holding: AgentClient, link: BreakingLink, wrong: str
) -> None:
    """The record names a stranger who got the pid, or one from before a reboot, or nobody."""
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        record = {**OTHER, "pid": stranger.pid, "start": start_ticks(stranger.pid), "boot": boot_id()}
        record[wrong] = {"start": 1, "boot": "another", "pid": None}[wrong]
        (state / "lock").write_text(json.dumps(record))
        error = refused(state, steal=True)
        assert error.code == "locked"
        assert "cannot be proven, so none was ended" in error.what
        assert error.details["holder"]["pid"] == link.pid  # by what the kernel says
        assert stranger.poll() is None
        assert alive(link.pid)
        stranger.communicate(b"\n")


def test_a_holder_that_is_another_user_s_is_refused(
    state: Path, holding: AgentClient, link: BreakingLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_ours(pid: int, number: int) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "kill", not_ours)
    error = refused(state, steal=True)
    assert error.code == "not-allowed"
    assert f"the run of colleague@there cannot be ended: its process {link.pid} is another user's" in error.what
    monkeypatch.undo()


def test_a_full_disk_under_an_older_state_folder_does_not_keep_the_lock_from_a_rollback(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state.mkdir(mode=0o700)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "mkdir", full)
    lock(state).take(ME)


def test_a_link_in_the_place_of_the_lock_is_not_followed(state: Path, tmp_path: Path) -> None:
    Journal(str(state)).open()
    (tmp_path / "precious").write_text("keep")
    (state / "lock").symlink_to(tmp_path / "precious")
    assert refused(state).code == "not-regular"
    assert (tmp_path / "precious").read_text() == "keep"


def test_a_pipe_in_the_place_of_the_lock_is_refused_at_once(state: Path) -> None:
    Journal(str(state)).open()
    os.mkfifo(state / "lock")
    assert refused(state).code == "not-regular"
    with pytest.raises(AgentError):
        lock(state).holder()


# Two users, each with a state folder of their own, and one installation.


def agent_of(
    folder: Path, monkeypatch: pytest.MonkeyPatch, link: BreakingLink | None = None, **more: Any
) -> AgentClient:
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    found = client(link, **more)
    found.call("status")
    return found


def backup(found: AgentClient, host: Installation) -> Any:
    return found.call("backup", run="run-1", patch="t", by="me", files=host.files(), originals=[])


def apply(found: AgentClient, host: Installation) -> Any:
    contents = host.contents
    sized = [{"path": e["path"], "size": len(contents[e["path"]]), "sha256": e["patched"]} for e in host.files()]
    return found.call("apply", b"".join(contents.values()), run="run-1", files=sized)


def test_two_users_with_two_state_folders_are_still_one_operator_at_a_time(
    host: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = BreakingLink()
    mine = agent_of(host.folder / "mine", monkeypatch, link)
    theirs = agent_of(host.folder / "theirs", monkeypatch)
    mine.lock(ME)
    theirs.lock(OTHER)  # of another state folder
    backup(mine, host)
    for act in (backup, apply):
        with pytest.raises(AgentFailure, match=r"another run is at work in .*sglang: process") as refusal:
            act(theirs, host)
        assert refusal.value.code == "locked"
        assert refusal.value.details["holder"]["pid"] == link.pid
    mine.close()
    backup(theirs, host)
    apply(theirs, host)
    monkeypatch.setenv("XDG_STATE_HOME", str(host.folder / "mine"))
    mine.lock(ME)
    for op in ({"op": "rollback", "run": "run-1"}, {"op": "start"}):
        with pytest.raises(AgentFailure, match="another run is at work"):
            mine.call(**op)
    theirs.call("rollback", run="run-9")
    theirs.close()
    assert mine.call("rollback", run="run-1")["nothing"]
    host.assert_original()
    mine.close()


def test_a_server_and_its_keeper_do_not_keep_the_folders_of_a_dead_agent(
    host: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = BreakingLink()
    mine = agent_of(host.folder / "mine", monkeypatch, link)
    mine.lock(ME)
    backup(mine, host)
    command = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
    log, about = str(host.folder / "server.log"), {"env": {}, "cwd": "/", "about": {}}
    mine.call("start", run="run-1", command=command, log=log, port=free_port(), **about)
    os.kill(link.pid, signal.SIGKILL)
    until(lambda: not alive(link.pid), "the agent is gone")
    theirs = agent_of(host.folder / "theirs", monkeypatch)
    theirs.lock(OTHER)
    assert backup(theirs, host)["run"] == "run-1"
    theirs.close()
    monkeypatch.setenv("XDG_STATE_HOME", str(host.folder / "mine"))
    mine.lock(ME)
    assert mine.call("stop", run="run-1", grace=60.0)["how"] == "term"
    mine.close()


def test_a_stranger_who_locks_the_folder_is_named_by_its_command(host: Installation) -> None:
    script = (
        "import fcntl, os, sys; fcntl.flock(os.open(sys.argv[1], 0), fcntl.LOCK_EX); print('up', flush=True); input()"
    )
    command = [sys.executable, "-S", "-c", script, str(host.package)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as stranger:
        assert stranger.stdout is not None
        assert stranger.stdout.readline() == b"up\n"
        with pytest.raises(AgentError) as error:
            FolderLocks().hold([str(host.workers[0])], nothing, 0.0)
        assert error.value.details["holder"]["pid"] == stranger.pid
        assert error.value.details["holder"]["command"].startswith(sys.executable)
        stranger.communicate(b"\n")
    FolderLocks().hold([str(host.workers[0])], nothing, 0.0)


@pytest.mark.parametrize(
    "script",
    [
        "import fcntl, os, sys; fcntl.flock(os.open(sys.argv[1], 0), fcntl.LOCK_EX); print('up', flush=True); input()",
        # As `flock 9` in a shell: it takes the lock and ends, and the shell keeps it.
        "import fcntl, os, sys\nfd = os.open(sys.argv[1], 0)\nif os.fork() == 0:\n fcntl.flock(fd, fcntl.LOCK_EX)\n"
        " os._exit(0)\nos.wait(); print('up', flush=True); input()",
    ],
    ids=["itself", "a-child-that-ended"],
)
def test_a_stranger_s_lock_is_waited_for_and_then_named_with_what_to_do(host: Installation, script: str) -> None:
    now, beats = [0.0], []
    folders = FolderLocks(clock=lambda: now[0], sleep=lambda seconds: now.__setitem__(0, now[0] + seconds))
    with subprocess.Popen(
        [sys.executable, "-S", "-c", script, str(host.package)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as stranger:
        assert stranger.stdout is not None
        assert stranger.stdout.readline() == b"up\n"
        with pytest.raises(AgentError) as error:
            folders.hold([str(host.workers[0])], beats.append, 10.0)
        stranger.communicate(b"\n")
    assert 10.0 <= now[0] < 10.2
    assert {news["waiting"] for news in beats} == {str(host.package)}
    said = explain({"code": error.value.code, "what": error.value.what, "details": error.value.details}, "eagle")
    who = f"process {stranger.pid} of {getpass.getuser()}: {sys.executable}"
    assert str(said).startswith(f"eagle: somebody has locked {host.package}: {who}")
    assert said.hint == f"end process {stranger.pid} on the host, or wait for it; then: invoke rollback --host eagle"


def test_a_stranger_s_lock_that_ends_meanwhile_does_not_keep_a_rollback(
    state: Path, host: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = agent_of(host.folder / "mine", monkeypatch)
    found.lock(ME)
    backup(found, host)
    apply(found, host)
    found.close()
    found.lock(ME)  # a new agent, which holds no folder yet
    descriptor = os.open(host.package, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    beats: list[dict[str, Any]] = []

    def heard(news: dict[str, Any]) -> None:
        beats.append(news)
        if len(beats) == 15:  # later than what an apply waits
            fcntl.flock(descriptor, fcntl.LOCK_UN)

    assert not found.call("rollback", run="run-2", news=heard)["nothing"]
    os.close(descriptor)
    found.close()
    assert len(beats) >= 15
    assert beats[0]["holder"]["pid"] == os.getpid()
    host.assert_original()


def test_a_folder_that_is_gone_or_keeps_no_locks_is_no_reason_to_refuse(
    host: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = FolderLocks()
    folders.hold(["/none/worker.py", str(host.workers[0]), str(host.workers[1])], nothing)
    folders.hold([str(host.workers[0])], nothing)  # twice by one process

    def none_here(*_: Any) -> None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    monkeypatch.setattr("fcntl.flock", none_here)
    FolderLocks().hold([str(host.workers[0])], nothing, 0.0)


@pytest.mark.skipif("3.8" not in interpreters(), reason="no Python 3.8 is installed here")
def test_the_lock_is_told_and_stolen_under_python_3_8(state: Path, holding: AgentClient) -> None:
    thief = client(python=interpreters()["3.8"])
    assert thief.call("status")["lock"]["by"] == "colleague@there"
    thief.call("lock", holder=ME, steal=True)
    thief.call("doing", text="patch")
    assert thief.call("status")["lock"]["doing"] == "patch"
    thief.close()
