"""A cluster in memory: a host that knows of tasks, and in each place a server of its own that is a job on a node."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fake_host import Clock, FakeHost, refusal

from eaglelab.context import Context
from eaglelab.errors import LockLost
from eaglelab.interruption import Interruption
from eaglelab.remote.hints import AgentFailure
from eaglelab.remote.pipe import LinkLost

__all__ = ["Desk", "FakeCluster", "Place"]

QUEUE = {"nodes": {"idle": 2}, "waiting": 0, "starts_in": 0.0}


class Place(FakeHost):
    """What one job is, with its server. `node` is chosen by its cluster when it starts; `lost`: Slurm's word for its end."""

    def __init__(self, cluster: FakeCluster, name: str) -> None:
        super().__init__()
        self.cluster, self.name = cluster, name
        self.facts = dict(cluster.facts)
        self.node, self.lost, self.number = "", "", 0
        self.started: list[dict[str, Any]] = []

    def op_start(self, launcher: Any, log: str, **what: Any) -> Any:  # type: ignore[override]
        self.started.append(launcher)
        with self.cluster.turn:
            self.node = launcher.get("nodelist") or self.cluster.node_of(self.name)
            self.cluster.number += 1
            number = self.number = self.cluster.number
        super().op_start(log=log, **what)
        assert self.record is not None
        self.record |= {"launcher": "slurm", "name": f"eaglelab-{number}", "job": str(number), "pid": None}
        self.cluster.most = max(self.cluster.most, sum(place.alive for place in self.cluster.places.values()))
        return dict(self.record)

    def op_status(self) -> Any:
        found = {**super().op_status(), "there": self.alive, "address": "10.0.0.9", "port": 30000 + self.number}
        if self.lost and not self.alive:
            found["exit"] = {"code": None, "signal": None, "why": f"Slurm ended job 1: {self.lost}"}
        return {**found, "node": self.node, "gpus": self.cluster.gpus.get(self.node, ["H200"]), "waited": 7.0}

    def _see(self, load: Any) -> None:
        super()._see(load)
        record = self.record or {}
        if self.proved and self.canary not in self.files[record["log"]][record["log_offset"] :]:
            self.files[record["log"]] += self.canary


class FakeCluster(FakeHost):
    """`node_of`: on which node a load's job runs; `gpus` of a node where they are not the usual ones."""

    def __init__(self) -> None:
        super().__init__()
        self.session = self.locked_by = "s1"
        self.turn = threading.Lock()
        self.places: dict[str, Place] = {}
        self.number = self.most = 0
        self.gpus: dict[str, list[str]] = {}
        self.node_of: Callable[[str], str] = lambda _: "n1"
        self.prepared: Callable[[Place], None] = lambda _: None
        self.ended: list[str | None] = []
        self.kept: list[dict[str, Any]] = []
        self.desks: list[Desk] = []

    def place(self, name: str) -> Place:
        with self.turn:
            if name not in self.places:
                self.places[name] = Place(self, name)
                self.prepared(self.places[name])
            return self.places[name]

    def op_facts(self, launcher: Any = None, host: str = "", **about: Any) -> Any:
        return super().op_facts(**about)

    def op_queue(self, options: Any) -> Any:
        return QUEUE

    def op_status(self) -> Any:
        return {**super().op_status(), "tasks": [], "ended": [[each["run"], each["task"]] for each in self.kept]}

    def op_ended_tasks(self, run: str) -> Any:
        return {"ended": [each for each in self.kept if each["run"] != run]}

    def op_remove_tasks(self, run: str, tasks: Any) -> Any:
        self.kept = [each for each in self.kept if [each["run"], each["task"]] not in tasks]
        return {"removed": tasks}

    def op_end_tasks(self, run: str, grace: float, of: Any = None) -> Any:
        self.ended.append(of)
        left = [name for name, place in self.places.items() if place.alive]
        for name in left:
            self.places[name].op_stop(run, grace)
        return {"stopped": left, "kept": len(self.kept)}

    @contextmanager
    def connected(self, _: Any, host: Any, bundle: Any, say: Any, options: Any, **how: Any) -> Iterator[Context]:
        """In place of the way to the cluster: of the run itself, or (with `stop` and without a lock) of one worker."""
        clock, stop = Clock(), how.get("stop") or Interruption()
        client: Any = Desk(self) if how.get("stop") and not how["lock"] and not options.check else self

        def sleep(seconds: float) -> None:
            stop.check()
            clock.sleep(seconds)

        yield Context(host=host, client=client, bundle=bundle, say=say, options=options, clock=clock, sleep=sleep)


class Desk:
    """The agent of a worker: it works in the place that it entered last. `broken` is raised at its next call."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster, self.at = cluster, cluster.place("nowhere")
        self.broken: BaseException | None = None
        self.session = cluster.session
        self.cluster.desks.append(self)

    def enter(self, run: str, task: str, session: str) -> str:
        self.session = session
        self.look()
        self.at = self.cluster.place(task)
        return f"/state/tasks/{run}/{task}"

    def look(self) -> None:
        if self.session != self.cluster.locked_by:
            raise LockLost("the lock of this host was taken over", where="b")

    def call(self, op: str, data: bytes = b"", **args: Any) -> dict[str, Any]:
        return self.call_bytes(op, data, **args)[0]

    def call_bytes(self, op: str, data: bytes = b"", **args: Any) -> Any:
        self.look()
        if op in ("backup", "apply", "rollback", "end_tasks"):
            raise refusal("not-locked", f"{op} is not for a place of its own")
        if self.broken is not None:
            raise self.broken
        if op in self.at.fail:
            self.broken = self.at.fail.pop(op)
            raise self.broken
        return self.at.call_bytes(op, data, **args)

    @property
    def given_up(self) -> bool:
        return isinstance(self.broken, LinkLost)

    def doing(self, text: str) -> None: ...

    def close(self) -> None: ...


def not_stopped() -> AgentFailure:
    return AgentFailure("not ended: k2 of run r", where="b", hint="", code="not-stopped", details={})
