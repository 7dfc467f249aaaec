"""What ended jobs left on a host: brought home by `logs`, removed only once their logs are in a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_host import FakeHost, make_context, refusal, said

from eaglelab.actions import ACTIONS
from eaglelab.actions.ended import clear_ended, ended_lines, log_of
from eaglelab.actions.serve import STOP, StopArguments
from eaglelab.errors import LockLost
from eaglelab.remote.hints import AgentFailure
from eaglelab.remote.pipe import LinkLost


class Keeping(FakeHost):
    """A host in memory that keeps what ended tasks left."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[dict[str, Any]] = []

    def left(self, run: str, task: str, *, due: bool, log: bytes = b"its last words\n") -> None:
        path = f"/state/tasks/{run}/{task}/server.log"
        if log:
            self.files[path] = log
        self.kept.append({"run": run, "task": task, "log": path, "size": len(log), "quiet": 1.0, "due": due})

    def op_status(self) -> Any:
        ended = [[each["run"], each["task"]] for each in self.kept]
        return {**super().op_status(), "tasks": [], "ended": ended}

    def op_end_tasks(self, run: str, grace: float, of: Any = None) -> Any:
        return {"stopped": [], "kept": len(self.kept)}

    def op_ended_tasks(self, run: str) -> Any:
        return {"ended": list(self.kept)}

    def op_remove_tasks(self, run: str, tasks: Any) -> Any:
        self.kept = [each for each in self.kept if [each["run"], each["task"]] not in tasks]
        return {"removed": tasks}

    @property
    def names(self) -> list[str]:
        return [f"{each['run']}/{each['task']}" for each in self.kept]


@pytest.fixture
def host() -> Keeping:
    made = Keeping()
    made.left("run-1", "k1", due=True)
    made.left("run-1", "k2", due=True, log=b"")
    made.left("run-2", "k1", due=False)
    return made


def test_what_is_due_is_removed_once_its_log_is_in_the_bundle(host: Keeping, tmp_path: Path) -> None:
    context = make_context(host, tmp_path)
    clear_ended(context)
    assert host.names == ["run-2/k1"]
    assert (context.bundle.folder / "k1-of-run-1.log").read_bytes() == b"its last words\n"
    assert not (context.bundle.folder / "k2-of-run-1.log").exists()  # it has said nothing
    assert "removed there: what 2 ended jobs of earlier runs (run-1) left; the logs are in the bundle" in said(context)


@pytest.mark.parametrize("error", [refusal("no-such-file", "no such file"), LinkLost("gone", where="fake")])
def test_what_could_not_be_brought_home_is_kept_and_that_is_no_failure(
    host: Keeping, tmp_path: Path, error: Exception
) -> None:
    host.fail["tail"] = error
    context = make_context(host, tmp_path)
    clear_ended(context)
    assert host.names == ["run-1/k1", "run-2/k1"]  # the other one had no log
    assert "k1 of run run-1 is kept on:" in said(context)


def test_a_host_that_does_not_answer_keeps_all_and_the_command_goes_well(host: Keeping, tmp_path: Path) -> None:
    host.fail["ended_tasks"] = AgentFailure("Slurm does not answer", where="f", hint="", code="no-engine", details={})
    context = make_context(host, tmp_path)
    clear_ended(context)
    assert "what ended jobs left there is kept on: Slurm does not answer" in said(context)
    assert len(host.names) == 3


@pytest.mark.parametrize("op", ["ended_tasks", "tail", "remove_tasks"])
def test_a_lock_that_was_taken_over_meanwhile_is_said(host: Keeping, tmp_path: Path, op: str) -> None:
    host.fail[op] = LockLost("taken over", where="fake")
    with pytest.raises(LockLost):
        clear_ended(make_context(host, tmp_path))
    assert len(host.names) == 3


def test_rollback_and_stop_remove_what_is_due_and_a_rescue_does_not(host: Keeping, tmp_path: Path) -> None:
    context = make_context(host, tmp_path)
    rollback = ACTIONS["rollback"]
    rollback.run(context, rollback.args(keep_found=True))
    STOP.run(context, StopArguments())
    assert len(host.names) == 3
    STOP.run(context, StopArguments(tasks=True))
    assert host.names == ["run-2/k1"]
    host.left("run-0", "k1", due=True)
    found = rollback.run(context, rollback.args())
    assert found["nothing"]
    assert host.names == ["run-2/k1"]
    assert host.ops().index("rollback") < len(host.ops()) - 1 - host.ops()[::-1].index("remove_tasks")


def test_a_host_that_keeps_nothing_is_asked_nothing_more(tmp_path: Path) -> None:
    host = Keeping()
    STOP.run(make_context(host, tmp_path), StopArguments(tasks=True))
    assert "ended_tasks" not in host.ops()


def test_tasks_of_two_runs_with_one_name_have_logs_of_their_own() -> None:
    assert len({log_of({"run": run, "task": "k1"}) for run in ("run-1", "run-2")}) == 2


def test_what_is_kept_is_said_by_run() -> None:
    status = {"ended": [["run-1", "k1"], ["run-1", "k2"], ["run-2", "k1"]]}
    assert list(ended_lines(status)) == [
        "run run-1: k1, k2 ended, and what they left is kept",
        "run run-2: k1 ended, and what they left is kept",
    ]
    assert list(ended_lines({})) == []
