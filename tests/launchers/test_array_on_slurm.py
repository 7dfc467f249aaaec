"""sweep --array on the embedded lab, whose host submits to a real Slurm of two nodes with two GPUs each."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scene import Scene, picture
from serverkit import until
from slurmkit import Cluster

TOOLS = ("sbatch", "squeue", "scontrol", "scancel", "sinfo", "sacct")
SMALL = ("--separate-loads", "--num-prompts", "2", "--repeats", "2", "--output-len", "64")
LONG = ("--separate-loads", "--num-prompts", "24", "--repeats", "2", "--output-len", "256")
ENDLESS = ("--separate-loads", "--num-prompts", "400", "--repeats", "2", "--output-len", "256")
IDLE_S = 20


@pytest.fixture(scope="module")
def project(pair: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    made = Scene.make(tmp_path_factory.mktemp("project"))
    made.invoke("lab-up", "--load-seconds", "0.5")
    for tool in TOOLS:
        path = made.folder / ".lab/host/home/bin" / tool
        path.write_text(f'#!/bin/sh\nSLURM_CONF="{pair.config}" exec {shutil.which(tool)} "$@"\n')
        path.chmod(0o755)
    inventory = made.folder / "inventory.yaml"
    own = "    server:\n      tp_size: 1\n"
    assert own in inventory.read_text()
    slurm = f"{own}      launcher: slurm\n      slurm: {{partition: gpu, time: '00:10:00', idle: {IDLE_S}}}\n"
    inventory.write_text(inventory.read_text().replace(own, slurm))
    yield made
    made.invoke("lab-down")


@pytest.fixture
def lab(project: Scene, pair: Cluster) -> Iterator[Scene]:
    """The project, whose host is as it was before once a test is over: no job of ours, no server on record, nobody in a
    place. What ended jobs left behind is that of runs that nobody took up again, and no later test's business.
    """
    before = picture(package(project))
    known = bundles(project)
    try:
        yield project
        assert picture(package(project)) == before
        assert not living(pair)
        for name in ("server.json*", "launch/*"):
            assert not placed(project, name)
        status = project.invoke("status", "--json").json["hosts"]["sim"]
        assert (status["tasks"], status["lock"]) == ([], None)
        assert {run for run, _ in status["ended"]} <= bundles(project) - known
        assert len(status["ended"]) == len(placed(project, "server.log"))
        assert all(path.stat().st_size for path in placed(project, "server.log"))
    finally:
        shutil.rmtree(state(project) / "tasks", ignore_errors=True)


def bundles(scene: Scene) -> set[str]:
    """The runs that there have been."""
    return {path.name for path in scene.folder.glob("logs/*")}


def package(scene: Scene) -> Path:
    return scene.folder / ".lab/host/home/sglang/python/sglang"


def state(scene: Scene) -> Path:
    return scene.folder / ".lab/host/home/.local/state/eaglelab"


def jobs(cluster: Cluster) -> dict[str, str]:
    """State by number, of all jobs of ours that Slurm remembers."""
    rows = cluster.ask("squeue", "-h", "-t", "all", "-o", "%i %T %j").splitlines()
    return {number: state for number, state, name in map(str.split, rows) if name.startswith("eaglelab-")}


def living(cluster: Cluster) -> set[str]:
    return {number for number, state in jobs(cluster).items() if state in ("PENDING", "RUNNING", "COMPLETING")}


def rows(done: Any) -> dict[str, dict[str, Any]]:
    return {row["load"]: row for row in done.json["hosts"]["sim"]["jobs"]}


def placed(scene: Scene, name: str) -> list[Path]:
    """A file in the places of all tasks."""
    return sorted(state(scene).glob(f"tasks/*/*/{name}"))


@contextlib.contextmanager
def colleague(cluster: Cluster, *nodes: str) -> Iterator[list[str]]:
    """Jobs of somebody else, which have all the GPUs of these nodes."""
    words = ("sbatch", "--parsable", "--gres=gpu:2", "--output=/dev/null", "--wrap", "sleep 3600")
    theirs = [cluster.ask(*words, "-w", node).strip() for node in nodes]
    try:
        until(lambda: {cluster.state(job) for job in theirs} == {"RUNNING"}, "they run")
        yield theirs
    finally:
        cluster.ask("scancel", *theirs)


def begin(scene: Scene, *words: str) -> subprocess.Popen[str]:
    """A command that goes on. Its output is in a file, so that no pipe can fill up."""
    with (scene.folder / "out").open("w") as out:
        return subprocess.Popen(
            scene.command(*words), cwd=scene.folder, env=scene.environment(), stdout=out, stderr=out, text=True
        )


def measuring(scene: Scene, count: int) -> Callable[[], bool]:
    """Whether so many tasks have begun to send requests."""
    return lambda: len(placed(scene, "runs/*/load/*.jsonl")) >= count


def said(scene: Scene) -> str:
    return (scene.folder / "out").read_text()


@pytest.mark.sample
def test_the_loads_of_a_sweep_are_jobs_at_the_same_time_on_both_nodes(lab: Scene, pair: Cluster) -> None:
    done = lab.invoke("sweep", "--steps", "1,2", "--array", *SMALL, "--json")
    assert "3 jobs of Slurm, each with 1 GPU, 3 at a time, in partition gpu" in done.stderr
    assert "Slurm would start one now" in done.stderr
    found = rows(done)
    settings = {"baseline", "k1", "k2"}
    assert settings < set(found)
    assert {row["ended"] for row in found.values()} == {"measured"}
    assert len({row["job"] for row in found.values()}) == len(found) == 4
    assert {found[name]["node"] for name in settings} == {"n1", "n2"}
    # Both nodes have measured the reference, the second one because settings came to lie on it.
    assert {row["node"] for name, row in found.items() if name.startswith("baseline")} == {"n1", "n2"}
    host = done.json["hosts"]["sim"]
    assert [each["code"] for each in host["findings"]] == ["reference-across-hosts"]
    assert {each["steps"] for each in host["rankings"][0]["ranking"]["settings"]} == {None, 1, 2}
    bundle = Path(lab.folder, done.json["bundle"])
    spread = json.loads((bundle / "spread.json").read_text())
    assert sorted(row["host"] for row in spread["settings"] if row["steps"] is None) == ["n1", "n2"]
    for name in settings:
        log = (bundle / name / "server.log").read_text()
        assert "Decode batch" in log or name == "baseline"
        assert (bundle / name / "done.json").exists()


def test_two_jobs_of_one_node_have_ports_of_their_own(lab: Scene, pair: Cluster) -> None:
    running = begin(lab, "sweep", "--steps", "1", "--array", *ENDLESS)
    until(measuring(lab, 2), "both are measured", 60)
    ports = [path.read_text().strip() for path in placed(lab, "launch/*/port")]
    assert len(set(ports)) == 2
    status = lab.invoke("status").stdout
    for port in ports:
        assert f"port {port}" in status
    running.send_signal(signal.SIGINT)
    assert running.wait(60) == 130


def test_no_more_jobs_than_asked_for_are_in_the_queue_at_a_time(lab: Scene, pair: Cluster) -> None:
    running, most = begin(lab, "sweep", "--steps", "1,2", "--array", "1", *SMALL), 0
    while running.poll() is None:
        most = max(most, len(living(pair)))
        time.sleep(0.2)
    assert (running.returncode, most) == (0, 1)


def test_a_run_whose_controller_was_killed_goes_on_with_the_jobs_that_it_left(lab: Scene, pair: Cluster) -> None:
    known = set(jobs(pair))
    running = begin(lab, "sweep", "--steps", "1,2", "--array", *LONG)
    until(measuring(lab, 2), "they are measured", 60)
    running.kill()
    running.wait()
    left = living(pair)
    assert len(left) >= 2
    resumed = lab.invoke("sweep", "--resume", "last", "--json")
    assert "going on with the load" in resumed.stderr
    found = rows(resumed)
    assert {row["ended"] for row in found.values()} == {"measured"}
    assert left <= {row["job"] for row in found.values()}
    assert len(set(jobs(pair)) - known) == len(found)  # none was submitted twice
    again = lab.invoke("sweep", "--resume", "last", "--json")
    assert "nothing is left to do" in again.stderr


def test_jobs_that_ended_while_the_controller_was_away_are_made_again_and_what_was_measured_holds(
    lab: Scene, pair: Cluster
) -> None:
    running = begin(lab, "sweep", "--steps", "1,2", "--array", "1", *SMALL)
    until(lambda: list(lab.folder.glob("logs/*/baseline/done.json")) and len(placed(lab, "server.json")) > 0, "one", 60)
    until(lambda: Path(max(lab.folder.glob("logs/*-sweep-*")), "baseline/done.json").exists(), "the first is done", 60)
    until(lambda: [path for path in placed(lab, "server.json") if path.parent.name == "k1"], "the next is there", 60)
    running.kill()
    running.wait()
    for number in living(pair):
        pair.ask("scancel", number)
    until(lambda: not living(pair), "they are gone", 30)
    resumed = lab.invoke("sweep", "--resume", "last", "--json")
    assert "baseline | holds since" in resumed.stderr
    assert "k1       | holds" not in resumed.stderr
    assert {row["ended"] for row in rows(resumed).values()} == {"measured"}


def test_an_interrupt_ends_our_jobs_and_nobody_elses_and_the_run_can_go_on(lab: Scene, pair: Cluster) -> None:
    with colleague(pair, "n2") as (theirs,):
        running = begin(lab, "sweep", "--steps", "1,2", "--array", *LONG)
        until(lambda: measuring(lab, 1)() and "PENDING" in jobs(pair).values(), "one is measured, one waits", 60)
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 130
        assert "goes on with this run" in said(lab)
        assert not living(pair)
        assert pair.state(theirs) == "RUNNING"
    resumed = lab.invoke("sweep", "--resume", "last", "--json")
    assert {row["ended"] for row in rows(resumed).values()} == {"measured"}


def test_time_in_the_queue_is_told_for_each_job(lab: Scene, pair: Cluster) -> None:
    with colleague(pair, "n1", "n2"):
        running = begin(lab, "sweep", "--steps", "1", "--no-baseline", "--array", *SMALL, "--json")
        until(lambda: "PENDING" in jobs(pair).values(), "the job waits", 60)
        (waiting,) = living(pair)
        words = ("squeue", "-h", "-j", waiting, "-O", "PendingTime")
        until(lambda: int(pair.ask(*words)) >= 3, "it has waited by Slurm's own clock")
    assert running.wait(60) == 0
    (row,) = json.loads(said(lab).splitlines()[-1])["hosts"]["sim"]["jobs"]
    assert row["queued"] >= 3
    assert row["seconds"] > 0


def test_a_job_that_somebody_cancels_is_a_failed_setting_and_is_not_submitted_again(lab: Scene, pair: Cluster) -> None:
    running = begin(lab, "sweep", "--steps", "1,2", "--array", *LONG, "--json")
    until(measuring(lab, 3), "all are measured", 60)
    victim = next(path for path in placed(lab, "server.json") if path.parent.name == "k2")
    number = json.loads(victim.read_text())["job"]
    pair.ask("scancel", number)
    assert running.wait(90) == 1
    done = json.loads(said(lab).splitlines()[-1])
    found = {row["load"]: row for row in done["hosts"]["sim"]["jobs"]}
    assert f"Slurm ended job {number}: cancelled" in found["k2"]["ended"]
    assert {found[name]["ended"] for name in found if name != "k2"} == {"measured"}
    assert [each["steps"] for each in done["hosts"]["sim"]["failed"]] == [2]


def test_a_job_whose_node_fails_is_submitted_once_more(lab: Scene, pair: Cluster) -> None:
    running = begin(lab, "sweep", "--steps", "1", "--no-baseline", "--array", *LONG, "--json")
    until(measuring(lab, 1), "it is measured", 60)
    (path,) = placed(lab, "server.json")
    first = json.loads(path.read_text())["job"]
    node = pair.ask("squeue", "-h", "-j", first, "-o", "%N").strip()
    pair.ask("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
    try:
        assert running.wait(90) == 0, said(lab)
    finally:
        pair.ask("scontrol", "update", f"nodename={node}", "state=resume")
    found = json.loads(said(lab).splitlines()[-1])["hosts"]["sim"]["jobs"]
    assert [row["ended"] for row in found] == ["not, submitted anew", "measured"]
    assert found[1]["job"] != first
    assert "that says nothing of its setting: it is submitted once more" in said(lab)


def test_a_setting_whose_server_dies_fails_and_the_others_are_measured(lab: Scene, pair: Cluster) -> None:
    done = lab.invoke(
        "sweep",
        "--steps",
        "2",
        "--env",
        "PYTHONHASHSEED=0,nonsense",
        "--no-baseline",
        "--array",
        *SMALL,
        "--json",
        code=None,
    )
    found = rows(done)
    assert done.code == 1, done.stderr
    assert sorted(row["ended"] == "measured" for row in found.values()) == [False, True]


def test_a_job_that_nobody_comes_back_to_ends_itself_and_rollback_puts_the_rest_back(lab: Scene, pair: Cluster) -> None:
    running = begin(lab, "sweep", "--steps", "1", "--no-baseline", "--array", *SMALL)
    until(lambda: placed(lab, "launch/*/port"), "it runs", 60)
    running.kill()
    running.wait()
    assert living(pair)
    until(lambda: not living(pair), "its watchdog has ended it", 60 + IDLE_S)
    (log,) = placed(lab, "server.log")
    assert f"for {IDLE_S} s nobody has asked this server for anything" in log.read_text()
    status = lab.invoke("status").stdout
    assert "ended (for 20 s nobody has asked this server for anything, so its job ends and frees its GPUs)" in status
    assert "task k1 of run" in lab.invoke("logs").stdout
    lab.invoke("rollback")
    assert placed(lab, "server.log") == [log]  # until somebody has had the time to look at it
    assert "k1 ended, and what they left is kept" in lab.invoke("status").stdout
    (task,) = lab.invoke("logs", "--json").json["hosts"]["sim"]["tasks"]
    assert Path(lab.folder, task["log"]).read_bytes() == log.read_bytes()


def test_what_ended_jobs_left_goes_with_a_later_rollback_and_its_log_comes_home(lab: Scene, pair: Cluster) -> None:
    running = begin(lab, "sweep", "--steps", "1", "--no-baseline", "--array", *ENDLESS)
    until(measuring(lab, 1), "it is measured", 60)
    running.kill()
    running.wait()
    lab.invoke("rollback")
    (log,) = placed(lab, "server.log")
    (beat,) = placed(lab, "alive")
    said_there, long_ago = log.read_bytes(), time.time() - 15 * 86400
    os.utime(log, (long_ago, long_ago))
    assert "removed there" not in lab.invoke("rollback").stdout
    assert log.exists()  # somebody worked there meanwhile
    os.utime(beat, (long_ago, long_ago))
    done = lab.invoke("rollback", "--json")
    assert "removed there: what 1 ended job of earlier runs" in done.stderr
    assert not placed(lab, "*")
    (home,) = Path(lab.folder, done.json["bundle"]).glob("k1-of-*-sweep-*.log")
    assert home.read_bytes() == said_there


def test_rollback_and_stop_end_the_jobs_of_a_controller_that_is_gone(lab: Scene, pair: Cluster) -> None:
    running = begin(lab, "sweep", "--steps", "1", "--array", *ENDLESS)
    until(measuring(lab, 2), "they are measured", 60)
    running.kill()
    running.wait()
    checked = lab.invoke("stop", "--check").stdout
    assert checked.count("would end task") == 2
    assert len(living(pair)) == 2
    stopped = lab.invoke("stop").stdout
    assert "ended: baseline" in stopped
    assert not living(pair)
    back = lab.invoke("rollback").stdout
    assert "back to the original" in back
    assert "nothing to do" in lab.invoke("rollback").stdout


def test_a_run_that_was_robbed_of_the_lock_submits_nothing_more(lab: Scene, pair: Cluster) -> None:
    running = begin(lab, "sweep", "--steps", "1,2", "--array", "1", *ENDLESS)
    until(measuring(lab, 1), "the first is measured", 60)
    assert "taking the lock over" in lab.invoke("rollback", "--steal-lock").stdout
    known = set(jobs(pair))
    assert running.wait(20) == 1
    assert "was taken over" in said(lab)
    assert set(jobs(pair)) == known
    assert not living(pair)


def test_a_run_that_was_robbed_while_its_jobs_wait_in_the_queue_ends_at_once(lab: Scene, pair: Cluster) -> None:
    with colleague(pair, "n1", "n2"):
        running = begin(lab, "sweep", "--steps", "1", "--array", *ENDLESS)
        until(lambda: list(jobs(pair).values()).count("PENDING") == 2, "both wait", 60)
        # Whoever takes it over and ends no task: that of the host's own server is none of them.
        lab.invoke("deploy-profiling", "--steal-lock", "--check")
        assert running.poll() is None  # a check takes no lock
        thief(lab)
        assert running.wait(20) == 1
        assert "was taken over: thief@there runs bench" in said(lab)
        assert list(jobs(pair).values()).count("PENDING") == 2  # it does nothing more there
        lab.invoke("rollback")
        assert "PENDING" not in jobs(pair).values()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_run_whose_lock_was_taken_over(lab: Scene, pair: Cluster, number: signal.Signals) -> None:
    running = begin(lab, "sweep", "--steps", "1,2", "--array", *ENDLESS)
    until(measuring(lab, 2), "they are measured", 60)
    thief(lab)
    running.send_signal(number)
    assert running.wait(20) in (1, 130)  # whichever it hears of first
    lab.invoke("rollback")


def thief(scene: Scene) -> None:
    """Somebody takes the lock over, does nothing and goes."""
    script = """
import sys
from eaglelab.remote.client import AgentClient
from eaglelab.remote.pipe import LocalLink
client = AgentClient(LocalLink("sim"), sys.executable)
client.lock({"by": "thief@there", "run": "run-9", "command": "bench", "since": "today"}, steal=True)
client.close()
"""
    home = str(scene.folder / ".lab/host/home")
    env = {**scene.environment(), "HOME": home, "XDG_STATE_HOME": f"{home}/.local/state"}
    subprocess.run([sys.executable, "-c", script], env=env, check=True, timeout=60)


def test_a_check_shows_plan_and_queue_and_submits_nothing(lab: Scene, pair: Cluster) -> None:
    known = set(jobs(pair))
    done = lab.invoke("sweep", "--steps", "1,2", "--array", "2", "--check", *SMALL)
    assert "3 jobs of Slurm, each with 1 GPU, 2 at a time" in done.stdout
    assert done.stdout.count("would start:") == 3
    assert set(jobs(pair)) == known


def test_a_server_that_ran_before_runs_on_and_its_patch_stays(lab: Scene, pair: Cluster) -> None:
    lab.invoke("deploy-profiling", "--json")
    own, before = living(pair), picture(package(lab))
    assert len(own) == 1
    done = lab.invoke("sweep", "--steps", "1", "--no-baseline", "--array", *SMALL, "--json")
    assert {row["ended"] for row in rows(done).values()} == {"measured"}
    assert living(pair) == own
    assert picture(package(lab)) == before
    assert "no load is needed" in lab.invoke("deploy-profiling", "--json").stderr
    lab.invoke("rollback")
