"""The road on the embedded lab whose server is a job of a real Slurm: deploy, no second load, a queue, rollback."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scene import Scene, picture
from slurmkit import Cluster

TASKS_TO_START = 8
"""Of deploy-profiling: doctor to start."""

TOOLS = ("sbatch", "squeue", "scontrol", "scancel", "sinfo", "sacct")


@pytest.fixture(scope="module")
def scene(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A lab whose host knows the cluster, and an inventory that says so."""
    made = Scene.make(tmp_path_factory.mktemp("project"))
    made.invoke("lab-up", "--load-seconds", "0.5")
    for tool in TOOLS:
        path = made.folder / ".lab/host/home/bin" / tool
        path.write_text(f'#!/bin/sh\nSLURM_CONF="{cluster.config}" exec {shutil.which(tool)} "$@"\n')
        path.chmod(0o755)
    inventory = made.folder / "inventory.yaml"
    own = "    server:\n      tp_size: 1\n"
    assert own in inventory.read_text()
    slurm = f"{own}      launcher: slurm\n      slurm:\n        partition: gpu\n        time: 00:10:00\n"
    inventory.write_text(inventory.read_text().replace(own, slurm))
    yield made
    made.invoke("lab-down")


def package(scene: Scene) -> Path:
    return scene.folder / ".lab/host/home/sglang/python/sglang"


def jobs(cluster: Cluster) -> dict[str, str]:
    """State by number, of all jobs of ours that Slurm remembers."""
    rows = cluster.ask("squeue", "-h", "-t", "all", "-o", "%i %T %j").splitlines()
    return {number: state for number, state, name in map(str.split, rows) if name.startswith("eaglelab-")}


def events(scene: Scene, done: Any) -> list[dict[str, Any]]:
    path = Path(scene.folder, done.json["bundle"], "events.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.sample
def test_deploy_profiling_runs_in_a_job_and_rollback_takes_it_away(scene: Scene, cluster: Cluster) -> None:
    before = picture(package(scene))
    deploy = scene.invoke("deploy-profiling", "--json")
    assert "of Slurm, log" in deploy.stderr
    [(number, state)] = jobs(cluster).items()
    assert state == "RUNNING"
    status = scene.invoke("status").stdout
    assert f"server: job {number} of Slurm on " in status
    again = scene.invoke("deploy-profiling", "--json")
    assert "no load is needed" in again.stderr
    assert jobs(cluster) == {number: "RUNNING"}
    assert picture(package(scene)) != before
    rollback = scene.invoke("rollback")
    assert "processes of the server ended" in rollback.stdout
    assert picture(package(scene)) == before
    assert "RUNNING" not in jobs(cluster).values()
    assert "nothing to do" in scene.invoke("rollback").stdout


def test_time_in_the_queue_is_said_apart_from_the_load(scene: Scene, cluster: Cluster) -> None:
    busy = cluster.ask("sbatch", "--parsable", "--gres=gpu:2", "--output=/dev/null", "--wrap", "sleep 60").strip()

    def free_them() -> None:
        while "PENDING" not in jobs(cluster).values():
            time.sleep(0.2)
        time.sleep(3)
        cluster.ask("scancel", busy)

    colleague = threading.Thread(target=free_them)
    colleague.start()
    deploy = scene.invoke("deploy-profiling", "--json")
    colleague.join()
    waited = [event["result"] for event in events(scene, deploy) if (event["action"], event["state"]) == ("wait", "ok")]
    assert waited[0]["queued"] >= 2.5
    assert waited[0]["seconds"] < 20
    assert "s in the queue before it" in deploy.stderr
    assert scene.invoke("rollback", "--json").json["ok"] is True


def test_a_controller_that_is_killed_in_the_load_leaves_a_job_that_rollback_ends(
    scene: Scene, cluster: Cluster
) -> None:
    before, known = picture(package(scene)), set(jobs(cluster))
    scene.killed_after(TASKS_TO_START, "deploy-profiling", "--tokens", "64")
    assert set(jobs(cluster)) - known
    scene.invoke("rollback")
    assert picture(package(scene)) == before
    assert not {"RUNNING", "PENDING", "COMPLETING"} & set(jobs(cluster).values())
