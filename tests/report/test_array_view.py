from __future__ import annotations

import io

import pytest
from rich.console import Console

from eaglelab.report.array_view import array_table, queue_words
from eaglelab.sweep.matrix import Variation
from eaglelab.sweep.plan import Load, SweepPlan

PLAN = SweepPlan(tuple(Load((steps,), Variation()) for steps in (1, 2, 3, 4, 5)), 900.0)
QUEUE = {"nodes": {"idle": 3, "allocated": 9}, "waiting": 7, "starts_in": 2520.0}


def words(**changes) -> str:
    about = {"at_once": 2, "gpus": 8, "partition": "h200", "queue": QUEUE, "limit": "04:00:00", "idle": 1800.0}
    return "\n".join(queue_words(PLAN, **{**about, **changes}))


def test_the_plan_says_how_many_jobs_the_queue_and_the_expected_time() -> None:
    told = words()
    assert "5 jobs of Slurm, each with 8 GPUs, 2 at a time, in partition h200" in told
    assert "nodes: 9 allocated, 3 idle; 7 jobs waiting there; Slurm would start one in 42 min" in told
    assert "loading, once they run: 3 x 15 min" in told
    assert "asked its server for anything for 30 min, and after 04:00:00 (server.slurm.time)" in told


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"at_once": 9}, "5 at a time"),
        ({"at_once": 5}, "loading, once they run: 15 min, then"),
        ({"gpus": 0}, "without a reservation of GPUs"),
        ({"partition": None}, "in the default partition"),
        ({"limit": None}, "only by the time limit of the partition (no server.slurm.time)"),
        ({"queue": {**QUEUE, "starts_in": None}}, "Slurm does not say when the first could begin"),
        ({"queue": {**QUEUE, "starts_in": 0.0, "waiting": 1}}, "1 job waiting there; Slurm would start one now"),
    ],
)
def test_what_is_not_there_is_said(changes, told: str) -> None:
    assert told in words(**changes)


def test_each_job_has_its_time_in_the_queue_apart_from_its_load() -> None:
    row = {"load": "k2", "job": "12", "node": "n1", "queued": 5820.0, "seconds": 612.44, "ended": "measured"}
    lost = {
        "load": "k3",
        "job": None,
        "node": None,
        "queued": None,
        "seconds": None,
        "ended": "Slurm ended job 13: timeout",
    }
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(array_table([row, lost]))
    text = console.export_text()
    assert [line.split() for line in text.splitlines()[1:3]] == [
        ["k2", "12", "n1", "5820.0", "612.4", "measured"],
        ["k3", "-", "-", "-", "-", "Slurm", "ended", "job", "13:", "timeout"],
    ]
