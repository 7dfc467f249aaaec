"""What a job does for itself on its node, in a shell: a port, what the node is, and an end where nobody comes back."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from serverkit import free_port, until

from eaglelab.remote.agent.launchers import slurm_queue
from eaglelab.remote.agent.launchers.engine import Answer, shell_runner
from eaglelab.remote.agent.launchers.slurm_apart import NO_PORT, apart, told
from eaglelab.remote.agent.launchers.slurm_queue import asked_for, queue_of, waited
from eaglelab.remote.agent.places import heartbeat
from eaglelab.remote.agent.state import StateFolder
from eaglelab.remote.agent.wire import AgentError

RECORD = {"name": "eaglelab-1", "apart": True}
SERVE = "import sys, time; print('serving', sys.argv[2], flush=True); time.sleep(float(sys.argv[3]))"


PORTS = (7, 12, 13, 1007)
"""Of jobs 7, 12 and 1013, and the next one of job 7: how far they are from the first port."""


class Naps:
    """A `sleep` for the shell of a job, which ends when it is told to and not after a time."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "bin"
        self.path.mkdir()
        self._log = folder / "naps"
        self._log.touch()
        os.mkfifo(folder / "wake")
        self._wake = os.open(folder / "wake", os.O_RDWR)  # so that neither end waits for the other to open it
        sleep = self.path / "sleep"
        sleep.write_text(f'#!/bin/sh\necho "$1" >>"{self._log}"\nread -r line <"{folder}/wake"\n')
        sleep.chmod(0o755)
        self._ended = 0

    @property
    def begun(self) -> list[str]:
        """Seconds of each."""
        return self._log.read_text().split()

    def until_asleep(self) -> None:
        until(lambda: len(self.begun) > self._ended, "it sleeps")

    def end_one(self) -> None:
        self.until_asleep()
        self._ended += 1
        os.write(self._wake, b"\n")

    def close(self) -> None:
        os.close(self._wake)


class Job:
    """A job's script, run by a shell as slurmd would. `path`: where that shell looks for programs first."""

    began: ClassVar[list[subprocess.Popen[bytes]]] = []

    def __init__(
        self,
        folder: Path,
        *,
        first: int,
        number: int = 7,
        idle: float = 3600.0,
        lasts: float = 3600.0,
        path: Path | None = None,
    ) -> None:
        self.state = StateFolder(str(folder / "place"))
        self.state.open("launch")
        self.papers = folder / "place/launch/eaglelab-1"
        self.papers.mkdir()
        self.log = folder / "server.log"
        command = [sys.executable, "-c", SERVE, "--port", str(first), str(lasts)]
        own = apart(self.state, str(self.papers), command, first, str(self.log), idle)
        script = shell_runner(own.command, own.before, str(self.papers / "exit.json"), own.beside, own.after)
        (self.papers / "job.sh").write_bytes(script)
        programs = os.environ["PATH"] if path is None else f"{path}:{os.environ['PATH']}"
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                ["/bin/sh", str(self.papers / "job.sh")],
                env={**os.environ, "PATH": programs, "SLURM_JOB_ID": str(number)},
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self.began.append(self.process)

    def said(self) -> str:
        return self.log.read_text()


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    while Job.began:
        process = Job.began.pop()
        for pid in _members(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        process.wait()


@pytest.fixture
def naps(tmp_path: Path) -> Iterator[Naps]:
    made = Naps(tmp_path)
    yield made
    made.close()


@pytest.fixture
def first() -> Iterator[int]:
    """A first port. Those of PORTS are bound, as a job binds them, and nobody listens there: they are free for jobs alone."""
    while True:
        port = free_port() - PORTS[0]
        with contextlib.ExitStack() as bound:
            try:
                for further in PORTS:
                    one = bound.enter_context(socket.socket())
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    one.bind(("", port + further))
            except (OSError, OverflowError):
                continue
            yield port
            return


def test_the_port_is_the_first_one_moved_by_the_jobs_number_and_the_server_gets_it(tmp_path: Path, first: int) -> None:
    job = Job(tmp_path, first=first, lasts=0.1)
    assert job.process.wait(60) == 0
    assert told(job.state, RECORD).port == first + 7
    assert f"serving {first + 7}" in job.said()


def test_a_port_that_somebody_else_listens_on_is_passed_over(tmp_path: Path, first: int) -> None:
    with socket.create_server(("127.0.0.1", first + 7)):
        job = Job(tmp_path, first=first, lasts=0.1)
        assert job.process.wait(60) == 0
    assert told(job.state, RECORD).port == first + 1007


def test_jobs_of_other_numbers_choose_other_ports(tmp_path: Path, first: int) -> None:
    ports = set()
    for number in (12, 1013):
        (tmp_path / str(number)).mkdir()
        job = Job(tmp_path / str(number), first=first, number=number, lasts=0.0)
        job.process.wait(60)
        ports.add(told(job.state, RECORD).port)
    assert ports == {first + 12, first + 13}


def test_a_node_without_a_free_port_ends_the_job_with_a_reason(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 65535)):
        job = Job(tmp_path, first=65535)
        assert job.process.wait(20) == NO_PORT
    assert "no port is free on this node" in job.said()


def test_a_first_port_near_the_end_of_all_ports_is_come_back_to(tmp_path: Path) -> None:
    job = Job(tmp_path, first=65535, lasts=0.1)
    assert job.process.wait(20) == 0
    assert told(job.state, RECORD).port == 65535


def test_a_server_that_nobody_asks_for_anything_is_ended_and_says_why(tmp_path: Path, first: int, naps: Naps) -> None:
    job = Job(tmp_path, first=first, idle=20.0, path=naps.path)
    until(lambda: "serving" in job.said(), "it runs")
    for _ in range(4):  # after the first there is nothing yet to compare with
        naps.end_one()
    naps.until_asleep()
    assert (job.process.poll(), told(job.state, RECORD).why) == (None, None)
    naps.end_one()
    assert job.process.wait(60) != 0
    assert naps.begun[:5] == ["5"] * 5
    why = told(job.state, RECORD).why
    assert why == "for 20 s nobody has asked this server for anything, so its job ends and frees its GPUs"
    assert why in job.said()


@pytest.mark.parametrize("sign", ["heartbeat", "log"])
def test_a_server_lives_as_long_as_somebody_gives_a_sign(tmp_path: Path, first: int, naps: Naps, sign: str) -> None:
    job = Job(tmp_path, first=first, idle=20.0, path=naps.path)
    until(lambda: "serving" in job.said(), "it runs")
    path = Path(heartbeat(job.state)) if sign == "heartbeat" else job.log
    for _ in range(10):
        for _ in range(3):
            naps.end_one()
        naps.until_asleep()
        with path.open("a") as file:
            file.write("a line\n")
        naps.end_one()
    naps.until_asleep()
    assert (job.process.poll(), told(job.state, RECORD).why) == (None, None)
    for _ in range(4):
        naps.end_one()
    assert job.process.wait(60) != 0
    assert told(job.state, RECORD).why


def test_its_watchdog_ends_with_the_server(tmp_path: Path, first: int, naps: Naps) -> None:
    job = Job(tmp_path, first=first, lasts=0.1, path=naps.path)
    assert job.process.wait(60) == 0
    until(lambda: not _members(job.process.pid), "nothing of it is left")
    assert told(job.state, RECORD).why is None


def _members(session: int) -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if int((folder / "stat").read_text().rpartition(")")[2].split()[3]) == session:
                found.append(folder.name)
        except OSError:
            continue
    return found


def test_a_job_that_says_nothing_yet_has_no_port(tmp_path: Path) -> None:
    state = StateFolder(str(tmp_path))
    assert told(state, RECORD) == (None, (), None)


def test_what_is_asked_for_ends_with_the_node_that_it_must_be() -> None:
    options = {"partition": "h200", "gpus": 8, "cpus": 4, "time": "1:00", "options": ["--mem=0"], "nodelist": "n2"}
    words = ["--partition=h200", "--time=1:00", "--gres=gpu:8", "--cpus-per-task=4", "--mem=0", "--nodelist=n2"]
    assert asked_for(options) == words
    assert asked_for({"gpus": 0}) == []


def test_time_in_the_queue_is_from_submission_to_start_by_slurms_own_clock() -> None:
    about = {"SubmitTime": "2026-11-30T03:00:00", "StartTime": "2026-11-30T04:37:00"}
    assert waited(about) == 5820.0
    assert waited({**about, "StartTime": "Unknown"}) is None
    assert waited({}) is None


def test_the_queue_is_read_and_nothing_is_submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def ask(words, *more):
        asked.append(list(words))
        told_when = "sbatch: Job 9 to start at 2026-11-30T04:42:00 using 8 processors on nodes n3 in partition h200"
        answers = {"sinfo": (0, "idle* 3\nallocated 9\nidle 1\n", ""), "squeue": (0, "4\n5_1\n", "")}
        return Answer(*answers.get(words[0], (0, "", told_when)))

    monkeypatch.setattr(slurm_queue, "ask", ask)
    now = time.mktime(time.strptime("2026-11-30T04:00:00", "%Y-%m-%dT%H:%M:%S"))
    found = queue_of({"partition": "h200", "gpus": 8}, now)
    assert found == {"nodes": {"idle": 4, "allocated": 9}, "waiting": 2, "starts_in": 2520.0}
    assert "--test-only" in asked[2]


def test_a_job_that_slurm_would_refuse_is_said_before_anything_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(words, *more):
        return Answer(1, "", "allocation failure: Invalid qos") if words[0] == "sbatch" else Answer(0, "", "")

    monkeypatch.setattr(slurm_queue, "ask", ask)
    with pytest.raises(AgentError, match="Invalid qos") as refused:
        queue_of({}, 0.0)
    assert refused.value.code == "start-failed"
