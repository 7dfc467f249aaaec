"""What the probe takes of a host in which much else runs: microseconds inside its calls, per decode cycle.

In a loop the probe is in the CPU's caches, in a server it is not: on the host of an H200 its calls took three to five
times as long. Here other work runs between any two of them and throws it out. Events cost nothing, so this is the probe's own
Python. No goal: the figures depend on the caches of the machine; versions and variants are compared within one run.

The first table has the median cycle; the second the mean of short requests, measured and not in turn as `cost` of gpu.validate
sends them: what happens in some cycles only (one is timed, the next one begins, a block is written) is in the mean alone.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from probe import PROBE, Event, Lengths, V2Result, fake_torch, load

WARM_UP, ROUNDS = 10, 5
REQUEST, PACE_S = 9, 6e-3
"""Cycles of a short request, and how long one takes: by that the probe decides how many it times."""
_THROWN = 8
"""Quads of requests that do not count: until a block is written, all cycles are timed."""
VARIANTS: dict[str, dict[str, Any]] = {"every cycle timed": {"timed": 1}, "none timed": {"timed": 10**6}, "p=0/": {}}


class OtherWork:
    """Some milliseconds of interpreter, C code and memory."""

    def __init__(self) -> None:
        self._data = {f"key{number}": [number * 1.5, str(number), {"a": number}] for number in range(400)}
        self._memory = memoryview(bytearray(6 << 20))
        self._objects = [object() for _ in range(20_000)]

    def __call__(self) -> None:
        json.loads(json.dumps(self._data))
        sum(self._memory[::64])
        for _ in range(30):
            re.findall(r"(\d+)-(\w+)", "12-ab 34-cd " * 5)
        sorted(range(3000), key=lambda number: -number)
        hash((Decimal("1.1") ** 5, *self._objects[::3]))


def _chooses(module: ModuleType) -> bool:
    """Whether this version can leave cycles untimed; 1.3 and before cannot."""
    return "timed" in inspect.signature(module.Probe).parameters


def _batch(rid: str) -> Any:
    return SimpleNamespace(reqs=[SimpleNamespace(rid=rid)], forward_mode=SimpleNamespace(is_idle=lambda: False))


class Cycle:
    """Takes a probe through one decode cycle, other work between any two calls; returns the microseconds inside the probe."""

    def __init__(self, made: Any, other: Callable[[], None], overlaps: bool) -> None:
        self._made, self._other, self._overlaps = made, other, overlaps
        self._worker, self._before, self._spent = SimpleNamespace(speculative_num_steps=3), None, 0

    def __call__(self, batch: Any) -> float:
        self._spent, made = 0, self._made
        self._call(made.enter)
        self._call(made.begin, self._worker, batch)
        self._call(made.mark, 1)
        result: Any = V2Result(Lengths(1), Event()) if self._overlaps else [1]
        self._call(made.mark, 2)
        self._call(made.mark, 3)
        self._call(made.end, result, None if self._overlaps else True)
        if self._overlaps and self._before is not None:
            self._before.num_correct_drafts_per_req_cpu = correct = [1]
            self._call(made.verified, self._worker, correct)
        self._before = result
        return self._spent / 1e3

    def _call(self, method: Callable[..., Any], *arguments: Any) -> None:
        self._other()
        began = time.perf_counter_ns()
        method(*arguments)
        self._spent += time.perf_counter_ns() - began


def requests_us(module: ModuleType, other: Callable[[], None], quads: int, overlaps: bool) -> tuple[float, float]:
    """The mean of a cycle's time inside the probe in measured and in unmeasured requests, on off off on, in microseconds."""
    now, torch = [0.0], fake_torch(Event)
    with tempfile.TemporaryDirectory() as folder:
        made = module.Probe(torch=torch, out=lambda _text: None, clock=lambda: now[0], directory=folder)
        module.probe = made  # type: ignore[attr-defined]
        cycle, spent = Cycle(made, other, overlaps), {True: 0.0, False: 0.0}
        for number in range(-4 * _THROWN, 4 * quads):
            if number == 0:
                spent = {True: 0.0, False: 0.0}
            measured = number % 4 in (0, 3)
            batch = _batch(f"p={measured:d}/k=3/{number}")
            made.enter()  # its prefill
            now[0] += 5 * PACE_S
            for _ in range(REQUEST):
                spent[measured] += cycle(batch)
                now[0] += PACE_S
    assert module.probe is made, "the probe switched itself off"
    return spent[True] / (2 * quads * REQUEST), spent[False] / (2 * quads * REQUEST)


def cycles_us(module: ModuleType, variant: str, other: Callable[[], None], cycles: int, overlaps: bool) -> float:
    """The median of a cycle's time inside the probe, in microseconds."""
    options = VARIANTS[variant] if _chooses(module) else {}
    made = module.Probe(every=10**9, torch=fake_torch(Event), out=lambda _text: None, **options)
    module.probe = made  # type: ignore[attr-defined]
    batch = _batch("p=0/k=3/x" if variant == "p=0/" else "k=3/x")
    cycle, found = Cycle(made, other, overlaps), []
    for _ in range(cycles + WARM_UP):
        found.append(cycle(batch))
        made._first = max(made._first, made._next - 3)  # nothing gathers: reading is another matter
    assert module.probe is made, "the probe switched itself off"
    return statistics.median(found[WARM_UP:])


def main(options: argparse.Namespace) -> int:
    other = OtherWork()
    modules = [load(file, f"cold_{number}") for number, file in enumerate([*options.against, PROBE])]
    subjects = [
        (module, variant) for module in modules for variant in VARIANTS if _chooses(module) or variant != "none timed"
    ]
    print(
        f"microseconds inside the probe, a decode cycle, other work between its calls; medians, the least of {ROUNDS}"
    )
    for overlaps in (False, True):
        rounds = [[cycles_us(*each, other, options.cycles, overlaps) for each in subjects] for _ in range(ROUNDS)]
        for (module, variant), found in zip(subjects, zip(*rounds, strict=True), strict=True):
            print(f"{'v2' if overlaps else 'v1'}  {module.VERSION:8s} {variant:18s} {min(found):7.1f}", flush=True)
    print(f"the same in requests of {REQUEST} cycles: mean of an unmeasured cycle, and what measuring adds; medians")
    for overlaps in (False, True):
        turns = [[requests_us(module, other, options.cycles // 2, overlaps) for module in modules] for _ in range(3)]
        for module, means in zip(modules, zip(*turns, strict=True), strict=True):
            cost = statistics.median(on - off for on, off in means)
            off = statistics.median(off for _, off in means)
            print(f"{'v2' if overlaps else 'v1'}  {module.VERSION:8s} {off:5.1f} {cost:+7.1f}", flush=True)
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cycles", nargs="?", type=int, default=50)
    parser.add_argument("--against", type=Path, nargs="*", default=[], help="files of other versions of the probe")
    sys.exit(main(parser.parse_args()))
