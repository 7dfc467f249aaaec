"""Runs an Invoke command in which one fault happens at one moment: driver.py POINT.json COMMAND...

Test-only hooks sit around a task of the runner, a question to the agent, and the answer; nothing of the product knows
of them. Waits that exist for slow hosts are cut short, so that a point takes seconds (`_hurry`).
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gate import PATIENCE_S, Gate, impatient
from kinds import ANSWER_LOST, FIRE
from kinds.moment import Moment, Scene

from eaglelab.actions import wait
from eaglelab.commands import hosts
from eaglelab.remote import client, greeting
from eaglelab.remote.client import AgentClient
from eaglelab.remote.payload import agent_source
from eaglelab.remote.talk import Talk
from eaglelab.runner import Runner
from eaglelab.server.readiness import Budgets

SILENCE_S = 2.0
REQUEST_S = 3.0


class Trap:
    """Waits for the moments of a point, in order, and fires what belongs to each."""

    def __init__(self, point: dict[str, Any]) -> None:
        self.scene = Scene(**point["stage"])
        self.steps = [(Moment.parse(step["moment"]), step) for step in point["steps"]]
        self.asked: dict[str, int] = {}
        self.now = ("", 0)
        self.trace = Path(point["trace"]) if point.get("trace") else None
        self.gate: Gate | None = None
        self._lock = threading.Lock()
        self._agent = impatient(agent_source(), point.get("patience", PATIENCE_S))
        _replace(greeting, "agent_source", lambda: self._agent)
        if self.steps and self.steps[0][0].inside:
            self._arm(self.steps[0][0])

    def _arm(self, moment: Moment) -> None:
        self.gate = Gate(self.scene.control, moment.name, moment.nth, moment.call)
        source = self.gate.source(self._agent)
        _replace(greeting, "agent_source", lambda: source)
        threading.Thread(target=self._watch, args=(self.gate,), daemon=True).start()

    def _watch(self, gate: Gate) -> None:
        while gate.pid is None:
            time.sleep(0.005)
        self.scene.agent = gate.pid
        self._fire()
        gate.let_go()

    def at(self, kind: str, name: str, nth: int = 1, when: str = "before") -> str | None:
        """Fires if this is the moment; the kind of what was fired."""
        if self.trace is not None:
            with self.trace.open("a") as file:
                file.write(f"{kind}:{name}#{nth}:{when}\n")
        if not self.steps or not self.steps[0][0].is_now(kind, name, nth, when):
            return None
        return self._fire()

    def _fire(self) -> str:
        with self._lock:
            _, step = self.steps.pop(0)
        if self.steps and self.steps[0][0].inside:
            self._arm(self.steps[0][0])
        self.scene.fired(step["kind"])
        FIRE[step["kind"]](self.scene, step)
        return str(step["kind"])


def _hurry() -> None:
    """Waits that are right for a slow host behind a slow link, cut to what this machine needs."""
    _replace(hosts, "_LOCK_TRIES", 4)
    _replace(hosts, "_LOCK_PAUSE_S", 0.2)
    short = partial(Budgets, not_started=1, warming=2, unreachable=4, dying=0.5, ending=1)
    _replace(wait, "Budgets", short)
    patience = {"attempts": 4, "start_silence": 4.0}
    defaults = AgentClient.__init__.__kwdefaults__ or {}
    if not patience.keys() <= defaults.keys():
        raise AssertionError(f"the client's limits have other names now: {', '.join(defaults)}")
    defaults.update(patience)


def _replace(owner: Any, name: str, new: Any) -> None:
    """For what must be there to be replaced."""
    getattr(owner, name)
    setattr(owner, name, new)


def _hook(trap: Trap) -> None:
    perform, ask, frame, run, start = Runner._task, Talk.ask, Talk._frame, Runner.run, greeting.start_agent

    def task(runner: Runner, entry: Any) -> None:
        trap.at("task", entry.action)
        perform(runner, entry)

    def started(*arguments: Any) -> Any:
        trap.at("task", "connect")
        return start(*arguments)

    def whole(runner: Runner, book: Any) -> Any:
        found = run(runner, book)
        trap.at("task", "end")
        return found

    def asked(talk: Talk, op: str, args: dict[str, Any], data: bytes, silence: float, news: Any) -> Any:
        nth = trap.asked[op] = trap.asked.get(op, 0) + 1
        trap.now = (op, nth)
        trap.at("op", op, nth, "before")
        if "timeout" in args:
            args = {**args, "timeout": min(args["timeout"], REQUEST_S)}
        trusted = SILENCE_S if op != "generate" else REQUEST_S + 1
        return ask(talk, op, args, data, min(silence, trusted), news)

    def answered(talk: Talk, silence: float) -> Any:
        message, raw = frame(talk, silence)
        if "beat" in message:
            return message, raw
        fired = trap.at("op", *trap.now, "after")
        # An answer that the fault has swallowed is not read, though it lies here already.
        return answered(talk, silence) if fired in ANSWER_LOST else (message, raw)

    for owner, name, new in (
        (client, "start_agent", started),
        (Runner, "_task", task),
        (Runner, "run", whole),
        (Talk, "ask", asked),
        (Talk, "_frame", answered),
    ):
        _replace(owner, name, new)


def main(file: str, words: Sequence[str]) -> None:
    """Ends the process, as the command does."""
    point = json.loads(Path(file).read_text())
    _hurry()
    _hook(Trap(point))
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - where the project's tasks.py lies
    from invoke.collection import Collection
    from invoke.program import Program

    tasks = importlib.import_module("tasks")
    Program(namespace=Collection.from_module(tasks)).run(["invoke", *words])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
