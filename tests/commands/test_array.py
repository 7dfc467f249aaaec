"""sweep --array on a cluster in memory: jobs in places of their own, what fails, and what is put back."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_cluster import FakeCluster, Place, not_stopped
from fake_host import WORKER, WORKER_PATH, Clock, refusal

from eaglelab.commands import arrays, on_hosts
from eaglelab.errors import LockLost
from eaglelab.remote.pipe import LinkLost
from eaglelab.sweep.jobs import JobQueue
from eaglelab.sweep.matrix import Variation
from eaglelab.sweep.plan import Load

SMALL = ("--num-prompts", "4", "--repeats", "4", "--output-len", "64", "--json")
STEPS = ("--steps", "1,2,3", "--separate-loads")
SLURM = "  b:\n    server: {launcher: slurm, slurm: {partition: h200, gpus: 4%s}}"


@pytest.fixture
def cluster(own: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    path = own / "inventory.yaml"
    path.write_text(path.read_text().replace("  b: {}", SLURM % ""))
    made = FakeCluster()
    made.facts["sglang_version"] = "0.5.12.dev1"
    monkeypatch.setattr(on_hosts, "connected", made.connected)
    monkeypatch.setattr(arrays, "connected", made.connected)
    return made


def sweep(invoke: Any, *words: str) -> Any:
    return invoke("sweep", "--host", "b", *(words or ("--array",)), *STEPS, *SMALL)


def jobs(done: Any) -> dict[str, Any]:
    return {row["load"]: row for row in done.json["hosts"]["b"]["jobs"]}


def made(cluster: FakeCluster) -> dict[str, int]:
    """How often each load was started."""
    return {name: len(place.started) for name, place in cluster.places.items() if place.started}


def as_found(cluster: FakeCluster) -> bool:
    return cluster.files[WORKER_PATH] == WORKER and not any(place.alive for place in cluster.places.values())


def test_every_load_is_a_job_in_a_place_of_its_own_and_the_patch_is_put_in_and_back_once(invoke, cluster) -> None:
    done = sweep(invoke)
    assert done.code == 0, done.err
    assert made(cluster) == {"baseline": 1, "k1": 1, "k2": 1, "k3": 1}
    assert [cluster.ops().count(op) for op in ("apply", "rollback", "start", "stop")] == [1, 1, 0, 0]
    assert as_found(cluster)
    assert {row["ended"] for row in jobs(done).values()} == {"measured"}
    assert all(row["queued"] == 7.0 and row["node"] == "n1" for row in jobs(done).values())
    assert {each["steps"] for each in done.json["hosts"]["b"]["rankings"][0]["ranking"]["settings"]} == {None, 1, 2, 3}
    assert cluster.ended == [done.json["run"]]  # its own jobs, and no others


def test_a_start_is_told_of_place_and_watchdog_and_of_a_node_only_where_it_must_be_that(invoke, cluster) -> None:
    sweep(invoke)
    (told,) = cluster.places["k2"].started
    assert (told["apart"], told["idle"], told["gpus"], told.get("nodelist")) == (True, 1800.0, 4, None)


def test_where_jobs_ran_on_two_nodes_both_measure_the_reference_and_ratios_are_to_it(invoke, cluster) -> None:
    cluster.node_of = lambda name: "n2" if name in ("k2", "k3") else "n1"
    done = sweep(invoke)
    assert done.code == 0, done.err
    assert made(cluster) == {"baseline": 1, "k1": 1, "k2": 1, "k3": 1, "baseline-on-n2": 1}
    assert cluster.places["baseline-on-n2"].started[0]["nodelist"] == "n2"
    spread = json.loads((Path(done.json["bundle"]) / "spread.json").read_text())
    assert {(row["host"], row["steps"]) for row in spread["settings"]} == {
        ("n1", None),
        ("n1", 1),
        ("n2", None),
        ("n2", 2),
        ("n2", 3),
    }


def test_settings_of_a_node_whose_reference_fails_are_in_no_ranking(invoke, cluster) -> None:
    cluster.node_of = lambda name: "n2" if name == "k3" else "n1"
    cluster.prepared = lambda place: place.load_faults.update({"on-n2": "server dies"})
    done = sweep(invoke)
    assert done.code == 1
    (failed,) = done.json["hosts"]["b"]["failed"]
    assert (failed["steps"], failed["what"]) == (
        3,
        "measured on n2 only, where the baseline could not be: not comparable",
    )
    assert "without it, nothing that was measured on n2 compares with other nodes" in done.err
    assert {each["steps"] for each in done.json["hosts"]["b"]["rankings"][0]["ranking"]["settings"]} == {None, 1, 2}


def test_a_job_on_a_node_with_other_gpus_is_ended_before_anything_is_sent(invoke, cluster) -> None:
    cluster.node_of = lambda name: "n2" if name == "k3" else "n1"
    cluster.gpus["n2"] = ["H100"]
    done = sweep(invoke, "--array", "1")
    assert done.code == 1
    assert "its node is not like the others" in jobs(done)["k3"]["ended"]
    assert "n2 has H100, n1 has H200" in jobs(done)["k3"]["ended"]
    assert cluster.places["k3"].begun == []
    assert as_found(cluster)


@pytest.mark.parametrize("words", [("--array", "2"), ("--array",)])
def test_no_more_jobs_at_a_time_than_the_command_or_the_inventory_says(invoke, own, cluster, words) -> None:
    if len(words) == 1:
        path = own / "inventory.yaml"
        path.write_text(path.read_text().replace("gpus: 4", "gpus: 4, array: 2"))
    done = sweep(invoke, *words)
    assert done.code == 0, done.err
    assert cluster.most <= 2
    assert "4 jobs of Slurm, each with 4 GPUs, 2 at a time, in partition h200" in done.err


def test_a_load_whose_node_failed_is_made_once_more_under_another_name(invoke, cluster) -> None:
    def prepared(place: Place) -> None:
        if place.name == "k2":
            place.load_faults["k2-c1"], place.lost = "server dies", "node_fail"
            start = place.op_load_start

            def second_time_well(id: str, **what: Any) -> Any:  # noqa: A002
                if len(place.started) > 1:
                    place.load_faults.clear()
                return start(id, **what)

            place.op_load_start = second_time_well

    cluster.prepared = prepared
    done = sweep(invoke)
    assert done.code == 0, done.err
    assert made(cluster)["k2"] == 2
    assert [load.id for load in cluster.places["k2"].begun] == ["k2-c1", "k2-c1-0-1"]
    rows = [row["ended"] for row in done.json["hosts"]["b"]["jobs"] if row["load"] == "k2"]
    assert rows == ["not, submitted anew", "measured"]


@pytest.mark.parametrize(("why", "starts"), [("node_fail", 2), ("timeout", 1), ("cancelled", 1), ("out_of_memory", 1)])
def test_a_load_that_keeps_failing_is_a_failed_setting_and_the_rest_goes_on(invoke, cluster, why: str, starts) -> None:
    def prepared(place: Place) -> None:
        if place.name == "k2":
            place.load_faults["k2-c1"], place.lost = "server dies", why

    cluster.prepared = prepared
    done = sweep(invoke)
    assert done.code == 1
    assert made(cluster) == {"baseline": 1, "k1": 1, "k2": starts, "k3": 1}
    assert [(each["steps"], why in each["what"]) for each in done.json["hosts"]["b"]["failed"]] == [(2, True)]
    assert as_found(cluster)


@pytest.mark.parametrize(("why", "apart"), [("out_of_memory", True), ("cancelled", False)])
def test_step_counts_of_one_load_are_tried_apart_but_not_when_somebody_cancelled_it(
    invoke, cluster, why: str, apart: bool
) -> None:
    def prepared(place: Place) -> None:
        if place.name == "k1-2":
            place.load_faults["k1-2-c1"], place.lost = "server dies", why

    cluster.prepared = prepared
    done = invoke("sweep", "--host", "b", "--array", "--steps", "1,2", *SMALL)
    expected = {"baseline": 1, "k1-2": 1, **({"k1": 1, "k2": 1} if apart else {})}
    assert made(cluster) == expected
    assert done.code == (0 if apart else 1)


def test_a_worker_whose_link_is_lost_gives_its_job_to_another_which_follows_it(invoke, cluster) -> None:
    def prepared(place: Place) -> None:
        if place.name == "k2":
            place.fail["load_poll"] = LinkLost("gone", where="b")

    cluster.prepared = prepared
    done = sweep(invoke, "--array", "2")
    assert done.code == 0, done.err
    assert made(cluster)["k2"] == 1  # not submitted twice
    assert jobs(done)["k2"]["ended"] == "measured"
    assert as_found(cluster)


def test_where_no_worker_is_left_the_jobs_are_ended_and_the_files_put_back(invoke, cluster) -> None:
    cluster.prepared = lambda place: place.fail.update({"load_poll": LinkLost("gone", where="b")})
    done = sweep(invoke, "--array", "2")
    assert done.code == 1
    assert done.json["error"]["what"] == "gone"
    assert cluster.given_up, "the workers have waited for the host, and nobody waits for it once more"
    assert cluster.ended == [done.json["run"]]
    assert as_found(cluster)


def test_a_run_that_is_robbed_of_the_lock_submits_nothing_more_and_puts_nothing_back(invoke, cluster) -> None:
    def prepared(place: Place) -> None:
        if place.name == "k1":
            cluster.locked_by = "of the thief"
            cluster.fail["end_tasks"] = cluster.fail["rollback"] = LockLost("the lock was taken over", where="b")

    cluster.prepared = prepared
    done = sweep(invoke, "--array", "1")
    assert done.code == 1
    assert "taken over" in done.json["error"]["what"]
    assert set(made(cluster)) <= {"baseline", "k1"}
    assert cluster.ops().count("rollback") == 0


def test_jobs_that_cannot_be_ended_need_a_person_and_the_files_are_left_to_him(invoke, cluster) -> None:
    cluster.fail["end_tasks"] = not_stopped()
    done = sweep(invoke)
    assert done.code == 3
    assert "not ended: k2" in done.json["error"]["what"]
    assert done.json["error"]["hint"].startswith("invoke rollback --host b")
    assert {row["ended"] for row in jobs(done).values()} == {"measured"}  # what was measured is kept all the same


def test_a_queue_that_would_refuse_the_jobs_is_said_before_anything_is_changed(invoke, cluster) -> None:
    cluster.fail["queue"] = refusal("start-failed", "sbatch: Invalid qos")
    done = sweep(invoke)
    assert done.code == 1
    assert "Invalid qos" in done.json["error"]["what"]
    assert "apply" not in cluster.ops()
    assert cluster.places == {}


def test_a_check_submits_nothing_and_changes_nothing(invoke, cluster) -> None:
    before = cluster.snapshot()
    done = sweep(invoke, "--array", "--check")
    assert done.code == 0, done.err
    assert done.err.count("would start:") == 4
    assert cluster.snapshot() == before
    assert cluster.places == {}


def test_a_run_that_is_taken_up_again_makes_only_what_is_missing(invoke, cluster) -> None:
    cluster.prepared = lambda place: place.load_faults.update({"k2-c1": "server dies"})
    first = sweep(invoke)
    assert first.code == 1
    for place in cluster.places.values():
        place.load_faults.clear()
    done = invoke("sweep", "--resume", "last", "--json")
    assert done.code == 0, done.err
    assert made(cluster) == {"baseline": 1, "k1": 1, "k2": 2, "k3": 1}
    assert {each["steps"] for each in done.json["hosts"]["b"]["rankings"][0]["ranking"]["settings"]} == {None, 1, 2, 3}
    assert {row["node"] for row in jobs(done).values()} == {"n1"}
    assert as_found(cluster)


def test_what_was_measured_on_a_node_that_failed_is_measured_again_on_another(invoke, cluster) -> None:
    nodes = iter(["n1", "n2"])
    cluster.node_of = lambda name: next(nodes) if name == "k2" else "n1"

    def prepared(place: Place) -> None:
        if place.name == "k2":
            place.load_faults["k2-c4"], place.lost = "server dies", "node_fail"
            start = place.op_load_start

            def second_time_well(id: str, **what: Any) -> Any:  # noqa: A002
                if len(place.started) > 1:
                    place.load_faults.clear()
                return start(id, **what)

            place.op_load_start = second_time_well

    cluster.prepared = prepared
    done = sweep(invoke, "--array", "--concurrency", "1,4")
    assert done.code == 0, done.err
    assert [load.id for load in cluster.places["k2"].begun] == ["k2-c1", "k2-c4", "k2-c1-0-1", "k2-c4-0-1"]
    loads = {each["load"] for each in done.json["hosts"]["b"]["measurements"] if each["steps"] == 2}
    assert loads == {"n2/k2/c1", "n2/k2/c4"}


def test_where_the_reference_dies_of_its_step_counts_the_first_of_them_is_the_reference_of_all_nodes(
    invoke, cluster
) -> None:
    def prepared(place: Place) -> None:
        if place.name == "k1-2-3":
            place.load_faults["k1-2-3-c1"], place.lost = "server dies", "out_of_memory"

    cluster.prepared = prepared
    cluster.node_of = lambda name: "n2" if name in ("k2", "k3") else "n1"
    done = invoke("sweep", "--host", "b", "--array", "--no-baseline", "--steps", "1,2,3", *SMALL)
    assert done.code == 0, done.err
    assert made(cluster) == {"k1-2-3": 1, "k1": 1, "k2": 1, "k3": 1, "k1-on-n2": 1}
    assert {each["steps"] for each in done.json["hosts"]["b"]["rankings"][0]["ranking"]["settings"]} == {1, 2, 3}
    assert done.json["hosts"]["b"]["failed"] == []


@pytest.mark.parametrize("error", [LockLost("taken over", where="b"), KeyboardInterrupt(), OSError("x")])
def test_a_keeper_of_the_lock_that_ends_lets_no_further_job_begin_and_says_why(error: BaseException) -> None:
    array, queue, clock = object.__new__(arrays.Array), JobQueue([Load(None, Variation())], ["1"]), Clock()
    array.queue = queue
    answers = iter([None, error])

    def look() -> None:
        if found := next(answers):
            raise found

    keeps = SimpleNamespace(begun=False, sleep=clock.sleep)
    context = SimpleNamespace(clock=clock, sleep=clock.sleep, client=SimpleNamespace(look=look))
    began = clock.now
    with pytest.raises(type(error)):
        array._keep_lock(context, keeps)
    assert clock.now - began < 15  # s, and two looks
    assert queue.take("1", lambda: None) is None
    assert len(queue.left) == 1


@pytest.mark.parametrize("at", ["wait", "load_poll"])
def test_a_run_that_is_robbed_while_it_only_waits_ends_at_once_and_names_the_thief(invoke, cluster, at) -> None:
    """As long as a job is in the queue, or a load runs, nothing is asked of the host that would need its lock."""

    def robbed(*_: Any) -> None:
        cluster.locked_by = "of the thief"
        cluster.fail["end_tasks"] = cluster.fail["rollback"] = LockLost("the lock was taken over", where="b")

    def prepared(place: Place) -> None:
        op = "op_poll" if at == "wait" else "op_load_poll"
        answers = getattr(place, op)

        def answer(**what: Any) -> Any:
            robbed()
            return answers(**what)

        setattr(place, op, answer)

    cluster.prepared = prepared
    done = sweep(invoke, "--array", "1")
    assert done.code == 1
    assert "taken over" in done.json["error"]["what"]
    assert made(cluster) == {"baseline": 1}
    calls = [op for op, _ in cluster.places["baseline"].calls]
    assert calls.count("poll" if at == "wait" else "load_poll") == 1
    assert cluster.ops().count("rollback") == 0


def test_what_ended_jobs_of_earlier_runs_left_is_removed_once_its_log_is_home(invoke, cluster) -> None:
    log = "/state/tasks/run-1/k1/server.log"
    cluster.files[log] = b"its last words"
    about = {"task": "k1", "log": log, "size": 14, "quiet": 2e6}
    cluster.kept = [{"run": "run-1", "due": True, **about}, {"run": "run-2", "due": False, **about}]
    done = sweep(invoke)
    assert done.code == 0, done.err
    assert (Path(done.json["bundle"]) / "k1-of-run-1.log").read_bytes() == b"its last words"
    assert [each["run"] for each in cluster.kept] == ["run-2"]
    assert cluster.ops().index("remove_tasks") < cluster.ops().index("end_tasks")


def test_logs_brings_home_what_ended_jobs_left_and_status_says_that_it_is_there(invoke, cluster) -> None:
    log = "/state/tasks/run-1/k1/server.log"
    cluster.files[log] = b"its last words"
    cluster.kept = [{"run": "run-1", "task": "k1", "log": log, "size": 14, "quiet": 9.0, "due": True}]
    assert "run run-1: k1 ended, and what they left is kept: invoke logs --host b" in invoke(
        "status", "--host", "b"
    ).out.replace("\n", " ")
    done = invoke("logs", "--host", "b", "--json")
    assert done.code == 0, done.err
    (found,) = done.json["hosts"]["b"]["tasks"]
    assert (found["run"], found["task"], found["bytes"]) == ("run-1", "k1", 14)
    assert Path(found["log"]).read_bytes() == b"its last words"
    assert len(cluster.kept) == 1  # who only looks removes nothing
