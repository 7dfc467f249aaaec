"""Jobs that run at the same time: their ports and nodes, what is said of them, and their end, on a host in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_host import FakeHost, make_context, make_host, said

from eaglelab.actions import ACTIONS
from eaglelab.actions.drive import drive
from eaglelab.actions.marks import identity
from eaglelab.actions.tasks import end_tasks, task_lines
from eaglelab.errors import AttentionError, HostError
from eaglelab.remote.hints import AgentFailure
from eaglelab.server.launching import cancelled, launching, lost
from eaglelab.server.readiness import ServerDied
from eaglelab.server.workload import LoadOptions, Round, as_load, choose_workload
from eaglelab.sweep.matrix import Variation
from eaglelab.sweep.nodes import Nodes
from eaglelab.sweep.plan import Load

SLURM = {"launcher": "slurm", "host": "0.0.0.0", "tp_size": 8, "slurm": {"partition": "gpu", "array": 4, "idle": 60}}
APART = {"apart": True, "idle": 60.0, "nodelist": "n9"}
TASK = {
    "run": "run-1",
    "task": "k2",
    "record": {"launcher": "slurm", "name": "eaglelab-1", "job": "42", "by": "bob@there"},
    "alive": True,
}


class Cluster(FakeHost):
    """A host in memory that starts servers as jobs with ports of their own, and knows of tasks."""

    queued: Any = None
    exit_of: Any = None
    there = True
    stubborn = False

    def __init__(self) -> None:
        super().__init__()
        self.tasks: list[dict[str, Any]] = []

    def op_start(self, launcher: Any = None, **what: Any) -> Any:
        self.told = launcher
        super().op_start(**what)
        assert self.record is not None
        self.record |= {"launcher": "slurm", "name": "eaglelab-1", "job": "42", "pid": None}
        return dict(self.record)

    def op_facts(self, launcher: Any = None, host: str = "", **about: Any) -> Any:
        return super().op_facts(**about)

    def op_status(self) -> Any:
        found = {**super().op_status(), "there": self.there, "queued": self.queued, "address": "10.0.0.9", "node": "n9"}
        ended = {"exit": self.exit_of} if self.exit_of and not self.alive else {}
        return {**found, **ended, "port": 30042, "gpus": ["H200"], "waited": 5.0, "tasks": self.tasks}

    def op_http(self, **what: Any) -> Any:
        self.asked = what["host"], what["port"]
        return super().op_http(**what)

    def op_end_tasks(self, run: str, grace: float, of: Any = None) -> Any:
        if self.stubborn:
            raise AgentFailure("not ended: k2", where="fake", hint="", code="not-stopped", details={})
        ended = [task["task"] for task in self.tasks if of in (None, task["run"])]
        self.tasks = [task for task in self.tasks if task["task"] not in ended]
        return {"stopped": ended}


@pytest.fixture
def fake() -> Cluster:
    return Cluster()


def context_of(fake: Cluster, folder: Path) -> Any:
    context = make_context(fake, folder, host=make_host(server=SLURM))
    context.start_options = APART
    return context


def perform(context: Any, *names: str) -> Any:
    results = [ACTIONS[name].run(context, ACTIONS[name].args()) for name in names]
    return results[-1]


def test_what_is_of_an_array_alone_is_no_part_of_a_setting() -> None:
    told = launching(make_host(server=SLURM))["launcher"]
    assert not {"array", "idle", "queue_timeout"} & set(told)
    assert launching(make_host(server=SLURM), more=APART)["launcher"] == {**told, **APART}


def test_a_start_is_told_of_its_place_and_requests_go_to_the_port_that_the_job_chose(
    fake: Cluster, tmp_path: Path
) -> None:
    fake.healths = [{"status": 200}]
    context = context_of(fake, tmp_path)
    perform(context, "doctor", "plan", "start")
    assert fake.told.items() >= APART.items()
    assert context.port == context.host.server.port  # it has not said yet which
    perform(context, "wait")
    assert fake.asked == ("10.0.0.9", 30042)
    assert (context.port, context.found.node, context.found.gpus, context.found.waited) == (30042, "n9", ("H200",), 5.0)


def test_a_job_that_is_bound_to_a_node_which_is_down_is_not_waited_for(fake: Cluster, tmp_path: Path) -> None:
    context = context_of(fake, tmp_path)
    perform(context, "doctor", "plan", "start")
    fake.queued = "pending (ReqNodeNotAvail,_UnavailableNodes:n9)"
    with pytest.raises(HostError, match="node n9 is not available any more"):
        perform(context, "wait")


def test_the_node_is_noted_and_one_that_is_unlike_the_others_is_refused(fake: Cluster, tmp_path: Path) -> None:
    fake.healths = [{"status": 200}]
    context = context_of(fake, tmp_path)
    perform(context, "doctor", "plan", "start", "wait")
    assert perform(context, "same_node")["node"] == "n9"
    assert context.bundle.read("node.json") == {"node": "n9", "gpus": ["H200"], "waited": 5.0, "job": "42"}
    context.nodes = Nodes(Load(None, Variation()))
    context.nodes.see("n1", ["H100"])
    with pytest.raises(HostError, match="n9 has H200, n1 has H100") as refused:
        perform(context, "same_node")
    assert "--constraint" in refused.value.hint


def test_a_server_that_is_no_job_has_no_node_to_compare(tmp_path: Path) -> None:
    context = make_context(FakeHost(), tmp_path)
    assert perform(context, "same_node") == {}


def test_why_slurm_ended_a_job_is_said_of_the_load_that_it_served(fake: Cluster, tmp_path: Path) -> None:
    context = context_of(fake, tmp_path)
    perform(context, "doctor", "plan", "start")
    fake.load_faults["l"] = "server dies"
    fake.exit_of = {"code": None, "signal": None, "why": "Slurm ended job 42: node_fail"}
    workload = choose_workload(LoadOptions(num_prompts=4, output_len=8), str, None)
    rounds = [Round([workload.body(at, f"mine-{at}", {}) for at in range(4)])]
    load = as_load(rounds, host="127.0.0.1", port=30000, key=None, max_concurrency=1)
    with pytest.raises(ServerDied, match="Slurm ended job 42: node_fail") as died:
        drive(context, "l", load["spec"], load["requests"], lambda *_: None)
    assert lost(died.value.what)


@pytest.mark.parametrize(
    ("what", "again", "by_somebody"),
    [
        ("Slurm ended job 7: node_fail", True, False),
        ("Slurm ended job 7: preempted", True, False),
        ("the server ended by itself with exit code 1: [Errno 98] Address already in use", True, False),
        ("Slurm ended job 7: cancelled", False, True),
        ("Slurm ended job 7: timeout", False, False),
        ("Slurm ended job 7: out_of_memory", False, False),
        ("the server died during load k2-c1: CUDA out of memory", False, False),
    ],
)
def test_which_ends_say_nothing_of_a_setting(what: str, again: bool, by_somebody: bool) -> None:
    assert (lost(what), cancelled(what)) == (again, by_somebody)


def test_two_jobs_are_never_taken_for_one_and_a_process_is_known_as_before() -> None:
    one, two = ({"pid": None, "boot": "b", "name": f"eaglelab-{number}"} for number in (1, 2))
    assert identity(one) != identity(two)
    assert identity({"pid": 7, "pid_start": 1, "boot": "b", "name": "x"}) == {"pid": 7, "pid_start": 1, "boot": "b"}


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"queued": "pending (Resources)"}, ", queued: pending (Resources)"),
        ({"node": "n9", "port": 30042}, " on n9, port 30042"),
        ({"unknown": "Slurm does not answer"}, "; nothing can be said of it: Slurm does not answer"),
        ({"alive": False, "exit": {"code": 7}}, ", ended (7)"),
        (
            {"alive": False, "exit": {"code": 0, "why": "Slurm ended job 42: timeout"}},
            ", ended (Slurm ended job 42: timeout)",
        ),
    ],
)
def test_each_job_has_a_line_that_says_how_it_is(more: dict[str, Any], told: str) -> None:
    assert list(task_lines({"tasks": [{**TASK, **more}]})) == [f"task k2 of run run-1: job 42 of Slurm{told}"]


def test_a_stop_by_hand_ends_them_and_says_whose_they_were(fake: Cluster, tmp_path: Path) -> None:
    fake.tasks = [dict(TASK)]
    context = context_of(fake, tmp_path)
    stop = ACTIONS["stop"]
    assert stop.run(context, stop.args())["stopped"] == []
    assert fake.tasks  # a playbook's own stop is about the host's server
    stop.preview(context, stop.args(tasks=True))
    assert fake.tasks
    assert stop.run(context, stop.args(tasks=True))["stopped"] == ["k2"]
    assert "would end task k2 of run run-1" in said(context)
    assert "ending task k2 of run run-1, started by bob@there" in said(context)


def test_a_rollback_ends_them_unless_it_keeps_what_was_found(fake: Cluster, tmp_path: Path) -> None:
    fake.tasks, fake.there = [dict(TASK)], False
    context = context_of(fake, tmp_path)
    rollback = ACTIONS["rollback"]
    rollback.run(context, rollback.args(keep_found=True))
    assert fake.tasks
    assert rollback.preview(context, rollback.args())["nothing"] is False
    assert rollback.run(context, rollback.args())["stopped"] == ["k2"]
    assert not fake.tasks


def test_jobs_that_do_not_end_need_a_person_and_the_hint_is_the_rollback(fake: Cluster, tmp_path: Path) -> None:
    fake.tasks, fake.stubborn = [dict(TASK)], True
    with pytest.raises(AttentionError, match="not ended: k2") as raised:
        end_tasks(context_of(fake, tmp_path), None, 0.0)
    assert raised.value.hint == "invoke rollback --host fake"


def test_an_agent_that_knows_of_no_places_is_not_asked_to_end_any(tmp_path: Path) -> None:
    assert end_tasks(make_context(FakeHost(), tmp_path), None, 0.0).stopped == []
