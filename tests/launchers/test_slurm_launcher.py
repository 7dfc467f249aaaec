"""Servers as jobs, on a real Slurm of one node: start, look, stop, and nobody else's job."""

from __future__ import annotations

import getpass
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hostkit import Installation
from serverkit import ServerHost, alive, until
from slurmkit import GPUS, Cluster

from eaglelab.remote.agent.launchers import slurm
from eaglelab.remote.agent.wire import AgentError

SLURM = {"name": "slurm", "partition": "gpu", "gpus": GPUS, "options": ["--mem=10"]}
SERVE = """
import os, pathlib, socket, sys, time
listening = socket.create_server(("127.0.0.1", int(sys.argv[2]))) if len(sys.argv) > 2 else None
print("hello", os.environ.get("SECRET_TOKEN"), os.environ.get("CUDA_VISIBLE_DEVICES"), flush=True)
pathlib.Path(sys.argv[1], "pid").write_text(str(os.getpid()))
time.sleep(60)
"""
DEAF = """
import os, pathlib, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path(sys.argv[1], "pid").write_text(str(os.getpid()))
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "_PAUSE_S", 0.1)


def start(host: ServerHost, text: str = SERVE, **changes: Any) -> dict[str, Any]:
    return host.start(text, **{"launcher": SLURM, "token": token(host), **changes})


def token(host: ServerHost) -> str:
    """As unlike any other test's as a real one: the cluster is the same for all."""
    return f"port-{host.port}"


def runs(host: ServerHost) -> dict[str, Any]:
    """The status once the server itself runs."""
    host.pid("pid")
    status: dict[str, Any] = until(
        lambda: (now := host.fresh().status())["alive"] and not now["queued"] and now["members"] and now, "it runs", 20
    )
    return status


@pytest.fixture
def busy(cluster: Cluster) -> str:
    """A colleague's job that holds all GPUs."""
    return cluster.ask("sbatch", "--parsable", f"--gres=gpu:{GPUS}", "--output=/dev/null", "--wrap", "sleep 60").strip()


@pytest.mark.sample
def test_a_job_is_on_record_with_its_number_and_its_processes_are_seen(slurm_host: ServerHost) -> None:
    record = start(slurm_host)
    assert record == slurm_host.fresh().record()
    assert (record["launcher"], record["name"]) == ("slurm", f"eaglelab-{token(slurm_host)}")
    assert record["job"].isdigit()
    status = runs(slurm_host)
    assert slurm_host.pid("pid") in status["members"]
    assert (status["alive"], status["there"], status["address"]) == (True, True, "127.0.0.1")
    assert status["node"] == os.uname().nodename.split(".")[0]


def test_the_log_is_what_the_server_writes_from_its_offset_on(slurm_host: ServerHost) -> None:
    slurm_host.log.parent.mkdir()
    slurm_host.log.write_bytes(b"of an earlier run\n")
    record = start(slurm_host)
    runs(slurm_host)
    assert record["log_offset"] == 18
    until(lambda: slurm_host.log.read_bytes().startswith(b"of an earlier run\nhello"), "the output is in the log")


def test_variables_reach_the_server_and_are_seen_by_nobody_else(slurm_host: ServerHost, cluster: Cluster) -> None:
    record = start(slurm_host, env={"SECRET_TOKEN": "s3cret one; $HOME"})
    runs(slurm_host)
    until(lambda: b"hello s3cret one; $HOME" in slurm_host.log.read_bytes(), "the server has the variable")
    assert "s3cret" not in cluster.ask("scontrol", "-d", "show", "job", record["job"])
    written = [path for path in (slurm_host.folder / "state").rglob("*") if path.is_file()]
    assert written
    assert not [path for path in written if b"s3cret" in path.read_bytes()]


@pytest.mark.sample
def test_a_stop_ends_the_job_and_all_of_its_processes(slurm_host: ServerHost, cluster: Cluster) -> None:
    record = start(slurm_host, command=[*slurm_host.script(SERVE), str(slurm_host.port)])
    members = runs(slurm_host)["members"]
    result = slurm_host.stop()
    assert (result["how"], result["stopped"]) == ("term", members)
    assert not any(alive(pid) for pid in members)
    assert cluster.state(record["job"]) in ("FAILED", "CANCELLED")
    status = slurm_host.fresh().status()
    assert (status["record"], status["there"], status["members"]) == (None, False, [])
    assert list((slurm_host.folder / "state/launch").iterdir()) == []


def test_a_server_that_ignores_term_is_killed_by_slurm(slurm_host: ServerHost) -> None:
    start(slurm_host, DEAF)
    members = runs(slurm_host)["members"]
    assert slurm_host.stop(grace=0.3)["how"] == "kill"
    assert not any(alive(pid) for pid in members)


@pytest.mark.sample
def test_a_job_that_waits_says_why_and_is_taken_out_of_the_queue(
    slurm_host: ServerHost, cluster: Cluster, busy: str
) -> None:
    until(lambda: cluster.state(busy) == "RUNNING", "the colleague's job runs")
    record = start(slurm_host)
    status = until(lambda: (now := slurm_host.fresh().status())["queued"] and now, "the job is seen")
    assert status["queued"].startswith("pending (")
    assert (status["alive"], status["address"], status["members"]) == (True, None, [])
    result = slurm_host.stop()
    assert (result["how"], result["stopped"]) == ("term", [record["name"]])
    assert cluster.state(record["job"]) == "CANCELLED"
    assert cluster.state(busy) == "RUNNING"  # nobody else's job is touched
    cluster.ask("scancel", busy)


def test_a_job_that_waited_runs_once_its_gpus_are_free(slurm_host: ServerHost, cluster: Cluster, busy: str) -> None:
    until(lambda: cluster.state(busy) == "RUNNING", "the colleague's job runs")
    start(slurm_host)
    cluster.ask("scancel", busy)
    assert runs(slurm_host)["queued"] is None
    until(lambda: b"hello" in slurm_host.log.read_bytes(), "it writes")


def test_how_a_job_ended_is_told_also_once_slurm_has_forgotten_it(
    slurm_host: ServerHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(slurm_host, "raise SystemExit(7)")
    ended = until(lambda: (now := slurm_host.fresh().status())["exit"] and not now["there"] and now, "it has ended", 20)
    assert ended["exit"] == {"code": 7, "signal": None, "why": None}
    real = slurm.ask
    forgotten = slurm.ask(["scontrol", "show", "job", "999999"])
    assert "Invalid job id" in forgotten.error
    monkeypatch.setattr(slurm, "ask", lambda words, *more: forgotten if words[0] == "scontrol" else real(words, *more))
    assert slurm_host.fresh().status()["exit"] == {"code": 7, "signal": None, "why": None}


def test_a_job_that_somebody_cancelled_says_so(slurm_host: ServerHost, cluster: Cluster) -> None:
    record = start(slurm_host)
    runs(slurm_host)
    cluster.ask("scancel", record["job"])
    ended = until(lambda: (now := slurm_host.fresh().status())["exit"] and now, "it has ended", 20)
    assert ended["exit"]["why"] == f"Slurm ended job {record['job']}: cancelled"


def test_a_second_request_of_the_same_start_finds_the_job_of_the_first(
    slurm_host: ServerHost, cluster: Cluster
) -> None:
    record = start(slurm_host)
    slurm_host.server = slurm_host.fresh()
    assert start(slurm_host) == record
    assert cluster.ask("squeue", "-h", "--name=" + record["name"], "-o", "%i").split() == [record["job"]]


def test_an_agent_killed_between_sbatch_and_its_record_leaves_a_job_that_is_found(
    slurm_host: ServerHost, cluster: Cluster
) -> None:
    record = start(slurm_host)
    until(lambda: cluster.state(record["job"]), "Slurm has it")
    slurm_host.server.state.write("server.json", {**record, "job": None})  # as it is at that moment
    slurm_host.server = slurm_host.fresh()
    assert start(slurm_host) == record
    slurm_host.server.state.write("server.json", {**record, "job": None})
    slurm_host.stop()
    assert cluster.state(record["job"]) in ("FAILED", "CANCELLED", "COMPLETED")


def test_an_agent_killed_before_sbatch_leaves_nothing_to_stop_and_the_next_start_submits(
    slurm_host: ServerHost, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(slurm, "ask", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            start(slurm_host)
    assert slurm_host.fresh().status()["there"] is False
    slurm_host.server = slurm_host.fresh()
    assert start(slurm_host)["job"].isdigit()


@pytest.mark.sample
@pytest.mark.parametrize("done", [False, True], ids=["before-sbatch", "after-sbatch"])
def test_an_agent_killed_in_a_start_leaves_nothing_that_a_stop_does_not_end(
    slurm_host: ServerHost, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    real = slurm.ask

    def killed(words: list[str], *more: Any) -> Any:
        if done:
            real(words, *more)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(slurm, "ask", killed)
        with pytest.raises(KeyboardInterrupt):
            start(slurm_host)
    assert slurm_host.fresh().status()["there"] is done
    slurm_host.fresh().stop("run-2", 0.0, lambda _: None)
    assert not cluster.ask("squeue", "-h", f"--name=eaglelab-{token(slurm_host)}")
    assert slurm_host.fresh().status()["record"] is None
    assert list((slurm_host.folder / "state/launch").iterdir()) == []


def test_a_refused_job_leaves_no_record(slurm_host: ServerHost) -> None:
    with pytest.raises(AgentError, match=r"sbatch: .*nvalid partition") as refused:
        start(slurm_host, launcher={**SLURM, "partition": "nonesuch"})
    assert refused.value.code == "start-failed"
    assert slurm_host.fresh().record() is None
    assert list((slurm_host.folder / "state/launch").iterdir()) == []


def test_a_damaged_record_does_not_hide_the_job(slurm_host: ServerHost, cluster: Cluster) -> None:
    record = start(slurm_host)
    runs(slurm_host)
    Path(slurm_host.folder, "state/server.json").write_text("{")
    status = slurm_host.fresh().status()
    assert status["damaged"]
    assert status["there"] is True
    assert "is not a JSON object" in slurm_host.stop()["damaged"]
    assert cluster.state(record["job"]) in ("FAILED", "CANCELLED")


def test_while_slurm_does_not_answer_nothing_is_said_to_be_dead_or_stopped(
    slurm_host: ServerHost, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(cluster.config))
    start(slurm_host)
    members = runs(slurm_host)["members"]
    cluster.end("slurmctld")
    status = slurm_host.fresh().status()
    assert status["there"] is True
    assert "Slurm does not answer" in status["unknown"]
    with pytest.raises(AgentError, match="nothing can be said of our server") as refused:
        slurm_host.stop()
    assert refused.value.code == "not-stopped"
    assert all(alive(pid) for pid in members)
    cluster.control()
    until(lambda: slurm_host.fresh().status()["alive"], "the controller is back, and knows of the job", 20)
    slurm_host.stop()
    assert not any(alive(pid) for pid in members)


def test_a_node_that_sees_another_sglang_refuses_before_the_server_is_started(
    slurm_host: ServerHost, cluster: Cluster, busy: str
) -> None:
    sglang = Installation(slurm_host.folder)
    sglang.deploy()
    until(lambda: cluster.state(busy) == "RUNNING", "the colleague's job runs")
    start(slurm_host)
    sglang.workers[0].write_bytes(b"what another node has there\n")
    cluster.ask("scancel", busy)
    ended = until(lambda: (now := slurm_host.fresh().status())["exit"] and now, "it has ended", 20)
    assert ended["exit"]["code"] == 97
    assert b"eaglelab: this node does not see the same SGLang as" in slurm_host.log.read_bytes()
    assert not (slurm_host.folder / "pid").exists()


def test_a_server_on_the_patched_files_of_its_host_starts(slurm_host: ServerHost) -> None:
    Installation(slurm_host.folder).deploy()
    start(slurm_host)
    assert runs(slurm_host)["alive"]


def test_loopback_is_refused_where_a_node_is_another_host(
    slurm_host: ServerHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = slurm_host.server.launchers.named("slurm")
    launcher.check(SLURM, "127.0.0.1")  # the only node is this host
    monkeypatch.setattr("socket.gethostname", lambda: "login-1")
    launcher.check(SLURM, "0.0.0.0")
    with pytest.raises(AgentError, match=r"binds to 127\.0\.0\.1 on a node of Slurm cannot be reached") as refused:
        launcher.check(SLURM, "127.0.0.1")
    assert refused.value.code == "not-reachable"


def test_an_unknown_partition_is_refused_before_anything_is_done(slurm_host: ServerHost) -> None:
    launcher = slurm_host.server.launchers.named("slurm")
    with pytest.raises(AgentError, match="no node in partition nonesuch"):
        launcher.check({**SLURM, "partition": "nonesuch"}, "0.0.0.0")


def test_what_was_reserved_is_what_the_inventory_says(slurm_host: ServerHost, cluster: Cluster) -> None:
    record = start(slurm_host, launcher={**SLURM, "gpus": 1, "cpus": 2, "time": "00:05:00"})
    shown = cluster.ask("scontrol", "-o", "show", "job", record["job"])
    assert "gres:gpu:1" in shown.replace("gres/gpu:1", "gres:gpu:1")
    assert "TimeLimit=00:05:00" in shown
    assert "CPUs/Task=2" in shown
    assert f"Comment=eaglelab run {record['run']}" in shown
    assert f"UserId={getpass.getuser()}(" in shown
    noted = [json.loads(line)["op"] for line in (slurm_host.folder / "state/journal.jsonl").read_text().splitlines()]
    assert noted == ["start", "started"]
