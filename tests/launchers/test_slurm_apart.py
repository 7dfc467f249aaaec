"""What a job does for itself on its node, in a shell: a port, what the node is, and an end where nobody comes back."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

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


class Job:
    """A job's script, run by a shell as slurmd would."""

    def __init__(self, folder: Path, *, first: int, number: int = 7, idle: float = 60.0, lasts: float = 30.0) -> None:
        self.state = StateFolder(str(folder / "place"))
        self.state.open("launch")
        self.papers = folder / "place/launch/eaglelab-1"
        self.papers.mkdir()
        self.log = folder / "server.log"
        command = [sys.executable, "-c", SERVE, "--port", str(first), str(lasts)]
        own = apart(self.state, str(self.papers), command, first, str(self.log), idle)
        script = shell_runner(own.command, own.before, str(self.papers / "exit.json"), own.beside, own.after)
        (self.papers / "job.sh").write_bytes(script)
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                ["/bin/sh", str(self.papers / "job.sh")],
                env={**os.environ, "SLURM_JOB_ID": str(number)},
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def said(self) -> str:
        return self.log.read_text()


def port_with_room() -> int:
    """A first port, of which that of job 7, and the one a thousand further, are free as well."""
    while True:
        port = free_port()
        if port < 60000:
            return port - 7


def test_the_port_is_the_first_one_moved_by_the_jobs_number_and_the_server_gets_it(tmp_path: Path) -> None:
    first = port_with_room()
    job = Job(tmp_path, first=first, lasts=0.1)
    assert job.process.wait(20) == 0
    assert told(job.state, RECORD).port == first + 7
    assert f"serving {first + 7}" in job.said()


def test_a_port_that_somebody_else_listens_on_is_passed_over(tmp_path: Path) -> None:
    first = port_with_room()
    with socket.create_server(("127.0.0.1", first + 7)):
        job = Job(tmp_path, first=first, lasts=0.1)
        assert job.process.wait(20) == 0
    assert told(job.state, RECORD).port == first + 1007


def test_jobs_of_other_numbers_choose_other_ports(tmp_path: Path) -> None:
    first = port_with_room()
    ports = set()
    for number in (12, 1013):
        (tmp_path / str(number)).mkdir()
        job = Job(tmp_path / str(number), first=first, number=number, lasts=0.0)
        job.process.wait(20)
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


def test_a_server_that_nobody_asks_for_anything_is_ended_and_says_why(tmp_path: Path) -> None:
    job = Job(tmp_path, first=port_with_room(), idle=2.0)
    began = time.monotonic()
    assert job.process.wait(20) != 0
    assert time.monotonic() - began >= 1.5
    why = told(job.state, RECORD).why
    assert why == "for 2 s nobody has asked this server for anything, so its job ends and frees its GPUs"
    assert why in job.said()


@pytest.mark.parametrize("sign", ["heartbeat", "log"])
def test_a_server_lives_as_long_as_somebody_gives_a_sign(tmp_path: Path, sign: str) -> None:
    job = Job(tmp_path, first=port_with_room(), idle=2.0)
    until(lambda: "serving" in job.said(), "it runs")
    path = Path(heartbeat(job.state)) if sign == "heartbeat" else job.log
    for _ in range(10):
        with path.open("a") as file:
            file.write("a line\n")
        time.sleep(0.5)
    assert job.process.poll() is None
    assert job.process.wait(20) != 0
    assert told(job.state, RECORD).why


def test_its_watchdog_ends_with_the_server(tmp_path: Path) -> None:
    job = Job(tmp_path, first=port_with_room(), idle=3600.0, lasts=0.1)
    assert job.process.wait(20) == 0
    until(lambda: not _members(job.process.pid), "nothing of it is left", 5)
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
