"""Plays one point: the command with its fault, the checks, the rollback by somebody else, the checks again."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from invariant import clear_end, original, whole
from kinds.files import STRANGER
from nursery import Done
from points import COMMANDS, Point
from setups import SETUPS, mend, missing
from stage import PROBE, Stage

__all__ = ["Result", "play"]

DEADLINE_S = 60.0
"""For the command with the fault in it. The driver's limits are such that 15 s are enough on a machine that is not busy."""

KILLED = frozenset({"controller.kill", "controller.power"})
TWICE = frozenset({"controller.int-twice"})
SLOW = frozenset({"lock.second-controller"})
"""Faults that take longer than an agent is patient here."""
LATE = frozenset({"held-lock"})
"""Setups in which no deployment could be made."""


@dataclass
class Result:
    """`seconds` from the fault to the end of the command; `code` its exit code. `wrong` is empty for a survivor."""

    point: Point
    wrong: list[str] = field(default_factory=list)
    skipped: str = ""
    seconds: float = 0.0
    code: int = 0
    said: str = ""


def play(stage: Stage, point: Point) -> Result:
    """A point that is lost is followed by a reset by force, so that the next one starts clean."""
    result = Result(point)
    reason = missing(point.setup)
    if reason:
        result.skipped = reason
        return result
    try:
        _play(stage, point, result)
    except Exception as error:  # noqa: BLE001 - the other points still have their turn
        result.wrong.append(f"the harness failed: {type(error).__name__}: {error}")
    if result.wrong:
        stage.reset()
    else:
        stage.clean()
    return result


def _play(stage: Stage, point: Point, result: Result) -> None:
    if point.setup in LATE:
        _make_ready(stage, point)
    with SETUPS[point.setup](stage, point.more):
        if point.setup not in LATE:
            _make_ready(stage, point)
        more = {"patience": 60} if point.kind in SLOW else {}
        done = stage.drive({"steps": point.steps, **more}, COMMANDS[point.command], DEADLINE_S)
        (stage.control / "gate.go").touch()  # an agent whose controller was killed goes on with what it was at
        _judge(stage, point, done, result)
        if point.setup == "small-disk":
            _under_fault(stage, point, result)
    stage.accept()
    _put_back(stage, point, result)


def _make_ready(stage: Stage, point: Point) -> None:
    if point.command != "rollback":
        return
    ready = stage.invoke("deploy-profiling", "--tokens", "32")
    if ready.code:
        raise AssertionError(f"the host could not be made ready: {ready.err[-500:]}")


def _judge(stage: Stage, point: Point, done: Done, result: Result) -> None:
    result.code, result.said = done.code, done.err[-1500:]
    fired = stage.control / "fired"
    if not fired.exists():
        result.wrong.append(f"its moment never came; the command ended with {done.code}: {done.err[-800:]}")
        return
    result.seconds = max(0.0, time.time() - float(fired.read_text().split()[0]))
    result.wrong += clear_end(done, point.kind in KILLED)
    complaint = stage.control / "complaint"
    if complaint.exists():
        result.wrong.append(complaint.read_text())
    result.wrong += whole(stage, _strange(stage, point))
    # The contract of exit codes: 1 and 130 say that the host is as it was, or rolled back.
    if done.code in (1, 130) and point.command != "rollback" and not result.wrong:
        # Who presses Ctrl-C again, or when all was done already, is told how to roll back instead.
        late = point.kind in TWICE or (done.code == 130 and point.moment == "task:end")
        helped = late and "invoke rollback" in done.err
        result.wrong += [f"exit {done.code}, yet: {what}" for what in _not_as_it_was(stage, point) if not helped]


def _not_as_it_was(stage: Stage, point: Point) -> list[str]:
    strange = _strange(stage, point)
    wrong = []
    for name, (digest, *_) in stage.original.items():
        file = stage.package / name
        now = stage.digest(file)
        if now != digest and not strange(name, now):
            wrong.append(f"{name} is patched")
    if (stage.package / PROBE).exists() and not strange(PROBE, None):
        wrong.append("the probe is there")
    servers = [line for pid, line in stage.ours().items() if "launch_server" in line]
    return wrong + [f"a server runs: {line[:120]}" for line in servers]


def _strange(stage: Stage, point: Point) -> Any:
    """For the files that the fault itself touches."""
    file = point.more.get("file")
    if point.setup != "stranger":
        return lambda name, digest: False
    before = stage.bytes_of(file) if file else b""
    theirs = {None, stage.sha256(before + STRANGER)}

    def strange(name: str, digest: str | None) -> bool:
        # An upgrade of a file that was patched already holds bytes that only it knows.
        return name == file and (digest in theirs or stage.ends_with(file, STRANGER))

    return strange


def _under_fault(stage: Stage, point: Point, result: Result) -> None:
    """A rollback while the disk is still full or read-only: done, or a clear refusal, and every file whole."""
    done = stage.rollback()
    result.wrong += [f"rollback under the fault: {what}" for what in clear_end(done, killed=False)]
    result.wrong += [f"after a rollback under the fault: {what}" for what in whole(stage, _strange(stage, point))]
    if point.kind == "disk.full-state" and done.code:
        result.wrong.append(f"a full state folder kept a rollback from happening: {done.code}: {done.err[-500:]}")


def _put_back(stage: Stage, point: Point, result: Result) -> None:
    done = stage.rollback()
    if point.setup == "stranger":
        if done.code not in (0, 3):
            result.wrong.append(f"rollback over a stranger's file ended with {done.code}: {done.err[-500:]}")
        result.wrong += mend(stage, point.more, done)
        done = stage.rollback()
    if point.kind == "controller.power" and done.code == 1 and "another run is at work" in done.err:
        # Nobody can tell a controller without power from one that thinks, for as long as its agent is patient.
        done = stage.rollback("--steal-lock") if "--steal-lock" in done.err else done
    if done.code or done.hung:
        result.wrong.append(f"the rollback from elsewhere ended with {done.code}: {done.err[-800:]}")
    stage.wake()
    result.wrong += original(stage)
    stage.settle()
