"""The fault points, as data: a kind of fault, a command, and the moment in it.

Every table below is kind -> moments, in the words of `kinds.moment.Moment`. One fault a point.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["COMMANDS", "Point", "all_points", "sample"]

COMMANDS = {
    "deploy": ("deploy-profiling", "--tokens", "32"),
    "bench": (
        *("bench", "--steps", "1,2", "--no-baseline", "--num-prompts", "1", "--repeats", "1"),
        *("--output-len", "32", "--warmup", "0"),
    ),
    "rollback": ("rollback",),
}

TASKS = (
    "doctor plan backup patch check_server stop start wait generate prove fetch_logs report end".split()  # noqa: SIM905
)
BOUNDARIES = tuple(f"task:{name}" for name in TASKS)
BENCH_BOUNDARIES = tuple(name.replace("generate", "measure") for name in BOUNDARIES)
OPS = tuple(
    """
    lock facts list read sed read#5 backup apply status stop start poll poll#2 http http#2 loaded generate generate#2
    status#2 tail tail#2 list#4 tail#3
    """.split()  # noqa: SIM905
)
CHANGES = ("lock", "backup", "apply", "stop", "start")
LONG = ("poll#2", "generate", "tail#2")
INSIDE = (
    *(f"op:backup/{call}" for call in ("makedirs#1", "open#2", "rename#1", "rename#3", "rename#5", "write#1")),
    *(f"op:apply/{call}" for call in ("write#1", "open#2", "rename#1", "rename#2", "rename#4", "rename#5", "fsync#9")),
    *(f"op:start/{call}" for call in ("fork#1", "rename#1", "write#2")),
)
UNDOING = ("op:stop/kill#1", "op:stop/unlink#1", "op:rollback/rename#1", "op:rollback/rename#3", "op:rollback/unlink#2")
WORKER = "srt/speculative/eagle_worker.py"
WORKER_2 = "srt/speculative/eagle_worker_v2.py"
PROBE = "srt/speculative/eaglelab_probe.py"


@dataclass(frozen=True)
class Point:
    """`setup` names what the harness arranges before the command (setups.py); `more` is for the fault and the setup."""

    kind: str
    moment: str
    command: str = "deploy"
    setup: str = ""
    more: dict[str, Any] = field(default_factory=dict)
    then: tuple[str, str] | None = None
    """A second step: moment and kind."""

    @property
    def name(self) -> str:
        extra = "".join(f",{key}={value}" for key, value in self.more.items())
        second = f"+{self.then[0]}" if self.then else ""
        return f"{self.kind}@{self.command}:{self.moment}{second}{extra}"

    @property
    def steps(self) -> list[dict[str, Any]]:
        first = {"moment": self.moment, "kind": self.kind, **self.more}
        return [first, *([{"moment": self.then[0], "kind": self.then[1]}] if self.then else [])]


def _ops(names: Sequence[str], *whens: str) -> tuple[str, ...]:
    return tuple(f"op:{name}:{when}" for name in names for when in whens)


DEPLOY: dict[str, tuple[str, ...]] = {
    "link.killed": (*BOUNDARIES[:-1], *_ops(OPS, "during"), *_ops((*CHANGES, *LONG), "after"), *INSIDE[1::2]),
    "link.frozen": (*_ops(CHANGES, "during", "after"), *_ops(LONG, "during")),
    "link.short-freeze": _ops((*CHANGES, *LONG), "during"),
    "link.late-thaw": (*_ops((*CHANGES[1:], "generate"), "during"), "op:apply/rename#2", "op:backup/rename#3"),
    "link.cut": (*_ops((*CHANGES, *LONG), "during"), "op:apply/rename#3", "op:start/rename#1"),
    "link.silent": (*_ops((*CHANGES, *LONG), "after"), "op:apply/rename#3"),
    "link.refused": BOUNDARIES[2:-1:2],
    "link.away": ("task:connect", *BOUNDARIES[1:-1:2], *_ops(("apply", "start", "generate"), "during")),
    "agent.killed": (*_ops(OPS[::2], "during"), *_ops(CHANGES, "after"), *INSIDE),
    "agent.stopped": (*_ops((*CHANGES, "generate"), "during"), "op:apply/rename#2"),
    "agent.short-stop": _ops((*CHANGES, *LONG), "during"),
    "controller.int": ("task:connect", *BOUNDARIES, *_ops((*CHANGES, *LONG), "during"), *INSIDE[::3]),
    "controller.term": BOUNDARIES[::2],
    "controller.hup": ("task:patch", "task:wait", "op:generate:during"),
    "controller.kill": ("task:connect", *BOUNDARIES, *_ops(CHANGES, "during"), *INSIDE[::2], "op:generate:during"),
    "controller.power": ("task:plan", "task:patch", "op:apply/rename#2", "op:start:during", "op:generate:during"),
    "server.killed": (
        *_ops(("poll#2", "http", "http#2", "loaded", "generate", "generate#2", "tail"), "before"),
        "task:fetch_logs",
        "op:generate:after",
    ),
    "server.keeper-killed": ("op:poll:before", "task:generate", "task:prove", "task:fetch_logs"),
    "server.record-gone": ("op:poll#2:before", "task:generate", "task:prove"),
    "log.rotated": ("op:poll#2:before", "task:generate", "task:prove", "task:fetch_logs", "op:tail#2:during"),
    "log.truncated": ("op:poll#2:before", "task:generate", "task:prove", "task:fetch_logs", "op:tail#2:during"),
    "log.gone": ("task:generate", "task:prove", "op:tail#2:during"),
}

OTHERS: dict[str, dict[str, tuple[str, ...]]] = {
    "bench": {
        "link.killed": (*BENCH_BOUNDARIES[::2], "op:stop#2:after", "op:load_poll#2:during", "op:start#2:after"),
        "controller.int": (*BENCH_BOUNDARIES[1::2], "op:start#2:during", "op:load_poll#3:during"),
        "controller.kill": (*BENCH_BOUNDARIES, "op:stop#2:during", "op:start#2/rename#1"),
        "agent.killed": ("op:load_start#2:during", "op:start#2:during", "op:stop#2:during"),
        "link.away": ("task:measure", "op:stop#2:before"),
    },
    "rollback": {
        "link.killed": ("task:rollback", "task:end", *_ops(("lock", "stop", "rollback"), "during", "after"), *UNDOING),
        "link.away": _ops(("lock", "stop", "rollback"), "during"),
        "link.frozen": _ops(("stop", "rollback"), "during"),
        "link.refused": _ops(("stop", "rollback"), "after"),
        "controller.int": (
            "task:connect",
            "task:rollback",
            "task:end",
            *_ops(("stop", "rollback"), "during"),
            "op:rollback/rename#2",
        ),
        "controller.kill": ("task:rollback", "task:end", *UNDOING),
        "agent.killed": UNDOING,
        "agent.stopped": ("op:rollback/rename#2",),
        "controller.power": ("op:rollback/rename#2",),
    },
}

DISK: dict[str, tuple[str, ...]] = {
    "full": ("task:plan", "task:backup", "task:patch", "task:start", "task:wait", "task:generate"),
    "read-only": ("task:plan", "task:backup", "task:patch", "task:start", "task:generate"),
}
DISK_INSIDE = {
    "state": ("op:backup/rename#2", "op:backup/rename#5", "op:apply/rename#2", "op:start/rename#1"),
    "package": ("op:apply/rename#2", "op:apply/rename#4"),
    "log": (),
}

PHASES = ("spawn", "init", "weights", "memory", "graphs", "draft", "serve", "warm-up")
SICK: dict[str, tuple[str, ...]] = {
    "exit": PHASES,
    "kill": ("spawn", "weights", "graphs", "warm-up"),
    "oom": ("weights", "memory", "graphs"),
    "segv": ("init", "draft"),
    "hang": ("init", "weights", "serve", "warm-up"),
    "zombie": ("weights", "graphs", "serve"),
}
SICK_SERVING = tuple(
    """
    health-503 health-hang generate-500 generate-hang dies-generating exits-generating stalls-generating
    breaks-generating daemon deaf deaf-daemon
    """.split()  # noqa: SIM905
)


def _disks() -> Iterator[Point]:
    for how, moments in DISK.items():
        for where in ("state", "package", "log"):
            inside = DISK_INSIDE[where] if how == "full" else ()
            for moment in (*(moments if where != "log" else moments[3:]), *inside):
                yield Point(f"disk.{how}-{where}", moment, setup="small-disk", more={"where": where})
            yield Point(f"disk.{how}-{where}", "task:rollback", "rollback", setup="small-disk", more={"where": where})


def _files() -> Iterator[Point]:
    for file in (WORKER, WORKER_2):
        for moment in ("task:plan", "task:backup", "task:patch", "op:apply/rename#2"):
            yield Point("file.immutable", moment, setup="lift-immutable", more={"file": file})
            yield Point("file.replaced", moment, setup="stranger", more={"file": file})
        yield Point("file.replaced", "task:start", setup="stranger", more={"file": file})
        yield Point("file.gone", "task:backup", setup="stranger", more={"file": file})
        yield Point("file.gone", "task:patch", setup="stranger", more={"file": file})
    for file in (WORKER, PROBE):
        yield Point("file.immutable", "task:rollback", "rollback", setup="lift-immutable", more={"file": file})
        yield Point("file.replaced", "op:rollback/rename#1", "rollback", setup="stranger", more={"file": file})


def _locks() -> Iterator[Point]:
    for moment in ("task:doctor", "task:patch", "op:apply/rename#2", "op:generate:during", "task:report"):
        for other in ("rollback", "deploy"):
            yield Point("lock.second-controller", moment, more={"other": other})
    yield Point("lock.second-controller", "op:rollback/rename#2", "rollback", more={"other": "deploy"})
    yield Point("lock.second-controller", "op:stop:during", "rollback", more={"other": "rollback"})
    for moment in ("task:backup", "task:patch", "task:start", "task:wait", "task:generate", "task:fetch_logs"):
        yield Point("controller.asleep", moment)
    for moment in ("task:backup", "task:patch", "task:start", "task:generate"):
        yield Point("controller.asleep", moment, more={"other": "rollback"})
    for text in ("dead", "garbage", "empty", "bystander"):
        yield Point("lock.stale", "task:doctor", setup="stale-lock", more={"text": text})
    for command in ("deploy", "rollback"):
        yield Point("lock.held", "op:lock:before", command, setup="held-lock")
    for what in ("reused-pid", "other-boot", "reused-session"):
        yield Point("record.stale", "task:doctor", setup="stale-record", more={"what": what})


def _sick() -> Iterator[Point]:
    for how, phases in SICK.items():
        for at in phases:
            yield Point("server.sick", "task:wait", setup="sick", more={"how": how, "at": at})
    for how in SICK_SERVING:
        yield Point("server.sick", "task:wait", setup="sick", more={"how": how})
    for how in ("daemon", "deaf", "deaf-daemon"):
        yield Point("server.sick", "task:rollback", "rollback", setup="sick", more={"how": how})


def _twice() -> Iterator[Point]:
    for first in ("task:start", "op:generate:during", "op:apply/rename#2"):
        for second in ("op:stop:during", "op:rollback:during", "op:rollback/rename#2"):
            yield Point("controller.int-twice", first, then=(second, "controller.int"))


def all_points() -> list[Point]:
    """Every point, in a fixed order."""
    points = [Point(kind, moment) for kind, moments in DEPLOY.items() for moment in moments]
    for command, kinds in OTHERS.items():
        setup = "deployed" if command == "rollback" else ""
        points += [Point(kind, moment, command, setup) for kind, moments in kinds.items() for moment in moments]
    return [*points, *_twice(), *_disks(), *_files(), *_locks(), *_sick()]


def sample(points: Sequence[Point], seed: int, each: int) -> list[Point]:
    """`each` points of every kind, chosen by `seed`: the same ones wherever and however often it is asked."""
    chosen: list[Point] = []
    for kind in dict.fromkeys(point.kind for point in points):
        of_kind = [point for point in points if point.kind == kind]
        chance = random.Random(int(hashlib.sha256(f"{seed} {kind}".encode()).hexdigest(), 16))
        chosen += chance.sample(of_kind, min(each, len(of_kind)))
    return chosen
