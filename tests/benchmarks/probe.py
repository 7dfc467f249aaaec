"""What the probe costs a decode cycle, off and on: CPU time of a patched worker less that of the original.

The workers are those of the patch's test cases and their phases do nothing. Short rounds of original, off, on, and on with
blocks written follow each other in one process, and each is compared with the original's beside it, so that a machine that
changes its pace does not matter. In the first table an event costs nothing, so that what is left is the probe's own
Python. The second says where the time goes, call by call, with what torch and CUDA take for an event: assumed here, or
(--cuda) the real ones. Exit 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
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
ON_GOAL_US = 12.0
CYCLES = 100  # a round; also a block, as it is by default
NEVER = 10**9
SOME = 4
"""Cycles of which one is timed where they take 5 ms, as in the second table."""
RECORD_NS, QUERY_NS, ELAPSED_NS, STREAM_NS = 1200, 300, 1300, 2500
"""Assumed of torch and CUDA: cudaEventRecord; a query; elapsed_time, which queries both events first; current_stream()."""


class Event:
    """A CUDA event whose work is over as soon as it is recorded, for nothing."""

    def __init__(self, enable_timing: bool = True) -> None: ...

    def record(self, _stream: object = None) -> None: ...

    def query(self) -> bool:
        return True

    def elapsed_time(self, _end: Event) -> float:
        return 1.2500123


def spin(nanoseconds: int) -> None:
    end = time.perf_counter_ns() + nanoseconds
    while time.perf_counter_ns() < end:
        pass


class CostlyEvent(Event):
    """The same for what torch and CUDA take."""

    def record(self, stream: object = None) -> None:
        spin(RECORD_NS + (STREAM_NS if stream is None else 0))

    def query(self) -> bool:
        spin(QUERY_NS)
        return True

    def elapsed_time(self, _end: Event) -> float:
        spin(ELAPSED_NS)
        return 1.2500123


def fake_torch(event: type) -> Any:
    stream = SimpleNamespace()
    cuda = SimpleNamespace(Event=event, current_stream=lambda: stream, current_device=lambda: 0)
    raw = SimpleNamespace(_cuda_getCurrentRawStream=lambda _device: 7)
    return SimpleNamespace(cuda=cuda, _C=raw, distributed=SimpleNamespace(is_available=lambda: False))


def real_torch() -> Any:
    import torch

    torch.cuda.init()
    return torch


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
    torch = fake_torch(Event)

    def probe(every: int, timed: int) -> Any:
        return subject.module.Probe(every=every, timed=timed, directory=folder, torch=torch, out=lambda _text: None)

    variants = {"off": None, "on": probe(NEVER, 1), "writing": probe(CYCLES, 1), "some": probe(CYCLES, SOME)}
    costs: dict[str, list[float]] = {"original": [], **{name: [] for name in variants}}
    for _ in range(rounds):
        original = subject.round_us(subject.original)
        costs["original"].append(original)
        for name, variant in variants.items():
            costs[name].append(subject.round_us(subject.patched, variant) - original)
    costs["writing"] = [writing - on for writing, on in zip(costs["writing"], costs["on"], strict=True)]
    return costs


class Stopwatch:
    """Takes the time of every call of some of a probe's methods; the time of an inner one is not its caller's."""

    METHODS = ("enter", "begin", "mark", "end", "verified", "_account", "_write", "_append")

    def __init__(self, probe: Any) -> None:
        self.ns = dict.fromkeys(self.METHODS, 0)
        self._inner = [0]
        for name in self.METHODS:
            setattr(probe, name, self._timed(name, getattr(probe, name)))

    def _timed(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            self._inner.append(0)
            began = time.perf_counter_ns()
            result = method(*args)
            took = time.perf_counter_ns() - began
            self.ns[name] += took - self._inner.pop()
            self._inner[-1] += took
            return result

        return call


PARTS = {
    "enter": "a pass begins",
    "begin": "a cycle begins, E0",
    "mark": "E1, E2, E3",
    "end": "it ends: counts and result held",
    "verified": "the scheduler tells the counts",
    "_account": "events read, cycle by cycle",
    "_write": "added up, and the text for the log",
    "_append": "JSON, and the file",
}


def parts(subject: Subject, module: ModuleType, torch: Any, rounds: int, folder: str) -> dict[str, float]:
    """Microseconds a cycle by part of the probe, the median of rounds. A stopwatch costs its part some 0.1 us a call."""
    probe = module.Probe(every=CYCLES, directory=folder, torch=torch, out=lambda _text: None)
    subject.round_us(subject.patched, probe)
    watch = Stopwatch(probe)
    found: dict[str, list[float]] = {name: [] for name in PARTS}
    for _ in range(rounds):
        watch.ns.update(dict.fromkeys(PARTS, 0))
        subject.round_us(subject.patched, probe)
        for name in PARTS:
            found[name].append(watch.ns[name] / CYCLES / 1e3)
    return {name: statistics.median(values) for name, values in found.items()}


def print_parts(subjects: list[Subject], modules: list[ModuleType], torch: Any, rounds: int, folder: str) -> None:
    heads = [
        (f"{subject.title.replace(', batch of ', ' x ')}", module.VERSION) for subject in subjects for module in modules
    ]
    columns = [parts(subject, module, torch, rounds, folder) for subject in subjects for module in modules]
    for number, title in enumerate(("us a cycle", "probe")):
        print(f"{title:36s}" + "".join(f"{head[number]:>17s}" for head in heads))
    for name, title in PARTS.items():
        print(f"{title:36s}" + "".join(f"{column[name]:17.2f}" for column in columns))
    print(f"{'all':36s}" + "".join(f"{sum(column.values()):17.2f}" for column in columns))


def main(options: argparse.Namespace) -> int:
    rounds = options.rounds
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
        "some": f"on, one of {SOME} timed: more",
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
        modules = [load(file, f"probe_{number}") for number, file in enumerate(options.against)] + [module]
        torch = real_torch() if options.cuda else fake_torch(CostlyEvent)
        print(f"\nwhere it goes, {'on this GPU' if options.cuda else 'with assumed times of torch and CUDA'}")
        print_parts(subjects, modules, torch, max(1, rounds // 4), folder)
    # The inserted lines are as many in every worker, and one median alone is as coarse as the goal.
    off = statistics.median(value for values in every["off"] for value in values) * 1e3
    alone = [number for number, subject in enumerate(subjects) if len(subject.batch.reqs) == 1]
    on = max(sum(statistics.median(every[name][number]) for name in ("on", "writing")) for number in alone)
    some = max(statistics.median(every["some"][number]) for number in alone)
    print(
        f"the probe costs a cycle {off:.0f} ns off (goal: at most {OFF_GOAL_NS:.0f}) and, with blocks written, at most {on:.1f} us on "
        f"(goal: {ON_GOAL_US:.0f}), one request at a time; {some:.1f} us where one cycle of {SOME} is timed"
    )
    return 0 if off <= OFF_GOAL_NS and on <= ON_GOAL_US else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rounds", nargs="?", type=int, default=400)
    parser.add_argument("--cuda", action="store_true", help="with the torch and the GPU of this machine")
    parser.add_argument("--against", type=Path, nargs="*", default=[], help="files of other versions of the probe")
    sys.exit(main(parser.parse_args()))
