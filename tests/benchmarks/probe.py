"""What the probe costs a decode cycle, off and on: CPU time of a patched worker less that of the original.

The workers are those of the patch's test cases, their phases do nothing, and the work behind an event is over at once:
what is left is the probe's own Python. What CUDA takes for an event is not in it. Short rounds of original, off, on, and on
with blocks written follow each other in one process, and each is compared with the original's beside it, so that a machine
that changes its pace does not matter. Prints a table, then one line with the result; exit 1 where a goal is missed.
usage: probe.py [ROUNDS]
"""

from __future__ import annotations

import importlib.util
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PROBE = ROOT / "patches" / "eagle3-profile" / "eaglelab_probe.py"
CASES = ROOT / "tests" / "cases" / "patching"
OFF_GOAL_NS = 100.0
ON_GOAL_US = 25.0
CYCLES = 100  # a round; also a block, as it is by default
NEVER = 10**9


class Event:
    """A CUDA event whose work is over as soon as it is recorded."""

    def __init__(self, enable_timing: bool = True) -> None: ...

    def record(self) -> None: ...

    def query(self) -> bool:
        return True

    def elapsed_time(self, _end: Event) -> float:
        return 4.6875


class Lengths:
    """Accepted lengths in a CPU copy."""

    is_cpu = True

    def __init__(self, size: int) -> None:
        self.values = [2] * size

    def tolist(self) -> list[int]:
        return list(self.values)


class V2Result:
    """Counts under way to the CPU, and the list that the scheduler makes of them."""

    accept_length_per_req_cpu = num_accepted_drafts_per_req_cpu = None
    can_run_cuda_graph = True

    def __init__(self, lengths: Lengths, done: Event) -> None:
        self.accept_lens, self.copy_done = lengths, done
        self.num_correct_drafts_per_req_cpu: list[int] | None = None


def nothing(*_args: Any, **_kwargs: Any) -> nullcontext[None]:
    return nullcontext()


def v1_worker(original: type, size: int) -> Any:
    """0.5.9: the counts are a list on the CPU when verify returns."""
    correct = [1] * size
    output = SimpleNamespace(accept_length_per_req_cpu=correct, verified_id=SimpleNamespace(shape=(size,)))
    attributes = {
        "speculative_num_steps": 2,
        "server_args": SimpleNamespace(enable_dp_attention=False),
        "draft_model_runner": SimpleNamespace(tp_group=None),
        "draft_tp_context": nothing,
        "draft": nothing,
        "verify": lambda _batch, _spec_info=None: (None, output, None, True),
        "forward_draft_extend_after_decode": nothing,
    }
    return type(original.__name__, (original,), {})(), attributes


def v2_worker(original: type, size: int) -> Any:
    """0.5.12: the counts come one cycle later."""
    lengths, done = Lengths(size), Event()
    drafter = SimpleNamespace(
        draft=nothing,
        draft_tp_context=nothing,
        draft_runner=SimpleNamespace(tp_group=None),
        _draft_extend_for_decode=nothing,
    )
    attributes = {
        "speculative_num_steps": 2,
        "plan_stream": None,
        "draft_worker": drafter,
        "verify": lambda _batch: V2Result(lengths, done),
    }
    return type(original.__name__, (original,), {})(), attributes


def load(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Subject:
    """One worker in its original and its patched form, decoding a batch of `size` requests."""

    def __init__(self, case: str, make: Callable[[type, int], Any], size: int, module: ModuleType) -> None:
        (folder,) = CASES.glob(case)
        self.title = f"{folder.name.split('-')[1]} {'v2' if make is v2_worker else 'v1'}, batch of {size}"
        self.overlaps = make is v2_worker
        self.module = module
        mode = SimpleNamespace(is_extend=lambda: False, is_idle=lambda: False, is_decode=lambda: True)
        reqs = [SimpleNamespace(rid=f"{number:032x}") for number in range(size)]
        spec_info = SimpleNamespace(verified_id=SimpleNamespace(shape=(size,)))
        self.batch = SimpleNamespace(forward_mode=mode, is_extend_in_batch=False, reqs=reqs, spec_info=spec_info)
        self.original, self.patched = (self._worker(folder / file, make, size) for file in ("before.py", "after.py"))

    @staticmethod
    def _worker(path: Path, make: Callable[[type, int], Any], size: int) -> Any:
        module = load(path, "worker")
        (original,) = [value for name, value in vars(module).items() if name.startswith("EAGLEWorker")]
        worker, attributes = make(original, size)
        vars(worker).update(attributes)
        return worker

    def round_us(self, worker: Any, probe: Any = None) -> float:
        """CPU microseconds a cycle."""
        self.module.probe = probe
        step, batch, overlaps = worker.forward_batch_generation, self.batch, self.overlaps
        hook = getattr(worker, "on_verify_complete_cpu", nothing)
        before: Any = None
        began = time.process_time_ns()
        for _ in range(CYCLES):
            result = step(batch)
            if overlaps and before is not None:
                before.num_correct_drafts_per_req_cpu = correct = [length - 1 for length in before.accept_lens.values]
                hook(correct)
            before = result
        took = time.process_time_ns() - began
        assert self.module.probe is probe, "the probe switched itself off"
        return took / CYCLES / 1e3


def measure(subject: Subject, rounds: int, folder: str) -> dict[str, list[float]]:
    """Microseconds a cycle by variant, round by round: of the original, then what the others take more."""
    torch = SimpleNamespace(cuda=SimpleNamespace(Event=Event), distributed=SimpleNamespace(is_available=lambda: False))

    def probe(every: int) -> Any:
        return subject.module.Probe(every=every, directory=folder, torch=torch, out=lambda _text: None)

    variants = {"off": None, "on": probe(NEVER), "writing": probe(CYCLES)}
    costs: dict[str, list[float]] = {"original": [], **{name: [] for name in variants}}
    for _ in range(rounds):
        original = subject.round_us(subject.original)
        costs["original"].append(original)
        for name, variant in variants.items():
            costs[name].append(subject.round_us(subject.patched, variant) - original)
    costs["writing"] = [writing - on for writing, on in zip(costs["writing"], costs["on"], strict=True)]
    return costs


def main(rounds: int) -> int:
    names = ("sglang", "sglang.srt", "sglang.srt.speculative")
    sys.modules.update({name: ModuleType(name) for name in names})
    module = load(PROBE, "eaglelab_probe")
    vars(sys.modules[names[-1]])["eaglelab_probe"] = module
    subjects = [
        Subject("l-0.5.9-*", v1_worker, 1, module),
        Subject("E-0.5.12-*", v2_worker, 1, module),
        Subject("E-0.5.12-*", v2_worker, 32, module),
    ]
    titles = {
        "original": "original",
        "off": "off: more",
        "on": "on: more",
        "writing": f"blocks of {CYCLES}: more, /{CYCLES}",
    }
    python = ".".join(map(str, sys.version_info[:3]))
    print(f"CPU microseconds a decode cycle, {rounds} rounds of {CYCLES} cycles each, Python {python}")
    print(f"{'worker':22s} {'probe':26s} {'min':>8s} {'25 %':>8s} {'median':>8s} {'75 %':>8s} {'max':>8s}")
    every: dict[str, list[list[float]]] = {name: [] for name in titles}
    with tempfile.TemporaryDirectory(prefix="eaglelab-bench-") as folder:
        for subject in subjects:
            for name, values in measure(subject, rounds, folder).items():
                every[name].append(values)
                spread = [min(values), *statistics.quantiles(values, n=4), max(values)]
                print(f"{subject.title:22s} {titles[name]:26s} " + " ".join(f"{value:8.3f}" for value in spread))
    # The inserted lines are as many in every worker, and one median alone is as coarse as the goal.
    off = statistics.median(value for values in every["off"] for value in values) * 1e3
    on, writing = (max(statistics.median(values) for values in every[name]) for name in ("on", "writing"))
    print(
        f"the probe costs a cycle {off:.0f} ns off (goal: at most {OFF_GOAL_NS:.0f}) and at most {on:.1f} us on "
        f"(goal: {ON_GOAL_US:.0f}), and writing its blocks {writing:.1f} us more"
    )
    return 0 if off <= OFF_GOAL_NS and on <= ON_GOAL_US else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 400))
