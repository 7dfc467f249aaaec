"""What the probe takes of a host in which much else runs: microseconds inside its calls, per decode cycle.

In a loop the probe is in the CPU's caches, in a server it is not: on the host of an H200 its calls took three to five
times as long. Here other work runs between any two of them and throws it out. Events cost nothing, so this is the probe's own
Python. No goal: the figures depend on the caches of the machine; versions and variants are compared within one run.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import statistics
import sys
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from probe import PROBE, Event, Lengths, V2Result, fake_torch, load

WARM_UP, ROUNDS = 10, 5
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


def cycles_us(module: ModuleType, variant: str, other: Callable[[], None], cycles: int, overlaps: bool) -> float:
    """The median of a cycle's time inside the probe, in microseconds."""
    options = VARIANTS[variant] if _chooses(module) else {}
    made = module.Probe(every=10**9, torch=fake_torch(Event), out=lambda _text: None, **options)
    module.probe = made  # type: ignore[attr-defined]
    worker = SimpleNamespace(speculative_num_steps=3)
    rid = "p=0/k=3/x" if variant == "p=0/" else "k=3/x"
    batch = SimpleNamespace(reqs=[SimpleNamespace(rid=rid)], forward_mode=SimpleNamespace(is_idle=lambda: False))
    found, before = [], None
    for _ in range(cycles + WARM_UP):
        spent = 0

        def call(method: Callable[..., Any], *arguments: Any) -> None:
            nonlocal spent
            other()
            began = time.perf_counter_ns()
            method(*arguments)
            spent += time.perf_counter_ns() - began

        call(made.enter)
        call(made.begin, worker, batch)
        call(made.mark, 1)
        result: Any = V2Result(Lengths(1), Event()) if overlaps else [1]
        call(made.mark, 2)
        call(made.mark, 3)
        call(made.end, result, None if overlaps else True)
        if overlaps and before is not None:
            before.num_correct_drafts_per_req_cpu = correct = [1]
            call(made.verified, worker, correct)
        before = result
        found.append(spent / 1e3)
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
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cycles", nargs="?", type=int, default=50)
    parser.add_argument("--against", type=Path, nargs="*", default=[], help="files of other versions of the probe")
    sys.exit(main(parser.parse_args()))
