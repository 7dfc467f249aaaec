"""A machine with one GPU on a fake clock, and a worker that calls the probe as a patched one does."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

PROBE = Path(__file__).parents[2] / "patches" / "eagle3-profile" / "eaglelab_probe.py"


THE_LIST = object()
"""Verify hands back the bare list of correct drafts."""


class EAGLEWorker:
    speculative_num_steps = 2


class Machine:
    """Host and GPU time in seconds. Launching costs the host 0.1 ms; the GPU works its queue off in order."""

    def __init__(self, module: ModuleType, **settings: object) -> None:
        self.now = 100.0
        self.busy_until = 0.0
        self.synchronised = 0
        self.events = 0
        self.log: list[str] = []
        self.worker = EAGLEWorker()
        self.stream = object()
        cuda = SimpleNamespace(
            Event=lambda enable_timing: Event(self, enable_timing),
            synchronize=self.synchronize,
            current_stream=lambda: self.stream,
        )
        distributed = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: False)
        self.torch = SimpleNamespace(cuda=cuda, distributed=distributed)
        self.probe = module.Probe(
            torch=self.torch,
            clock=lambda: self.now,
            now=lambda: 1_800_000_000 + self.now,
            out=self.log.append,
            **settings,
        )
        module.probe = self.probe

    def launch(self, ms: float) -> None:
        self.busy_until = max(self.busy_until, self.now) + ms / 1e3
        self.now += 1e-4

    def synchronize(self) -> None:
        self.synchronised += 1
        self.now = max(self.now, self.busy_until)

    def idle(self, seconds: float) -> None:
        self.now = max(self.now, self.busy_until) + seconds

    def prefill(self, ms: float = 30.0) -> None:
        self.probe.enter()
        self.launch(ms)
        self.now = max(self.now, self.busy_until)

    def batch(self, size: int, rid: str = "r", idle: bool = False) -> SimpleNamespace:
        reqs = [SimpleNamespace(rid=f"{rid}{number}") for number in range(size)]
        return SimpleNamespace(reqs=reqs, forward_mode=SimpleNamespace(is_idle=lambda: idle))

    def cycle(
        self,
        correct=(1,),
        *,
        steps=2,
        draft=0.5,
        verify=15.8,
        extend=1.26,
        output=THE_LIST,
        batch=None,
        after=1.0,
        graph=None,
        overlap=False,
    ):
        """One v1 cycle: the host waits for verify, and the GPU then idles `after` ms once extend is done.

        With `overlap` the host waits for nothing, as in a v2 worker.
        """
        self.worker.speculative_num_steps = steps
        self.probe.enter()
        self.probe.begin(self.worker, batch or self.batch(len(correct)))
        self.launch(draft)
        self.probe.mark(1)
        self.launch(verify)
        if not overlap:
            self.now = max(self.now, self.busy_until)
        self.probe.mark(2)
        self.launch(extend)
        self.probe.mark(3)
        self.probe.end(list(correct) if output is THE_LIST else output, *([] if graph is None else [graph]))
        if not overlap:
            self.now = max(self.now, self.busy_until) + after / 1e3

    def flush(self) -> None:
        """What a controller does: wait, then send a one-token request."""
        self.idle(0.3)
        self.prefill()


class Event:
    def __init__(self, machine: Machine, enable_timing: bool) -> None:
        assert enable_timing
        self.machine = machine
        machine.events += 1
        self.done_at: float | None = None

    def record(self, stream: object) -> None:
        assert stream is self.machine.stream
        self.done_at = max(self.machine.busy_until, self.machine.now)

    def query(self) -> bool:
        return self.done_at is not None and self.done_at <= self.machine.now + 1e-9

    def elapsed_time(self, end: Event) -> float:
        assert self.query(), "read before it was done: on a GPU this raises"
        assert end.query(), "read before it was done: on a GPU this raises"
        return (end.done_at - self.done_at) * 1e3


class Lens:
    """An int tensor: on the GPU reading it would wait, and its CPU copy holds zeros until the copy is done."""

    def __init__(self, values: list[int], copied: Event | None = None) -> None:
        self.values, self.copied = values, copied
        self.is_cpu = copied is not None

    def tolist(self) -> list[int]:
        assert self.copied, "reading a GPU tensor waits for the GPU"
        return self.values if self.copied.query() else [0] * len(self.values)


class Result:
    """What verify of v2 returns; the scheduler adds the copy, and later the list."""

    accept_length_per_req_cpu = num_accepted_drafts_per_req_cpu = num_correct_drafts_per_req_cpu = copy_done = None

    def __init__(self, correct: list[int], graph: bool | None) -> None:
        self.accept_lens = Lens([drafts + 1 for drafts in correct])
        if graph is not None:
            self.can_run_cuda_graph = graph


class Overlap:
    """A scheduler that launches a v2 cycle before it reads the one before.

    `hook`: it tells the worker what it read (from 0.5.12 on). `copies`: `accept_lens` is the CPU copy once the worker has
    returned; if not, another thread swaps it later (0.5.23 under confidential computing).
    """

    def __init__(self, machine: Machine, hook: bool = True, copies: bool = True) -> None:
        self.machine, self.hook, self.copies = machine, hook, copies
        self.pending: tuple[Result, list[int], Event] | None = None

    def cycle(self, correct: list[int], rid: str = "r", graph: bool | None = None, **options: object) -> None:
        m = self.machine
        result = Result(correct, graph)
        m.cycle(output=result, batch=m.batch(len(correct), rid=rid), overlap=True, **options)
        copied = Event(m, enable_timing=True)
        copied.record(m.stream)
        result.copy_done = copied
        if self.copies:
            result.accept_lens = Lens(result.accept_lens.values, copied)
        self.settle()
        self.pending = result, list(correct), copied

    def settle(self) -> None:
        """Read the cycle before: wait for it, keep its list on the result, tell the worker."""
        if self.pending is not None:
            m, (result, correct, copied), self.pending = self.machine, self.pending, None
            m.now = max(m.now, copied.done_at)
            result.num_correct_drafts_per_req_cpu = correct
            if self.hook:
                m.probe.verified(m.worker, correct)

    def lose(self) -> None:
        """The scheduler drops a result that it never read."""
        self.pending = None


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.delenv("EAGLE3_PROFILE", raising=False)
    spec = importlib.util.spec_from_file_location("eaglelab_probe", PROBE)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.fixture
def machine(module: ModuleType, tmp_path: Path):
    """Makes a machine whose probe writes below tmp_path; no warm-up unless asked for."""

    def make(**settings: object) -> Machine:
        return Machine(module, **{"warmup": 0, "directory": str(tmp_path / "records"), **settings})

    return make


@pytest.fixture
def records(tmp_path: Path):
    def read(kind: str = "block") -> list[dict]:
        lines = [line for path in sorted((tmp_path / "records").glob("*")) for line in path.read_text().splitlines()]
        return [record for record in map(json.loads, lines) if record["kind"] == kind]

    return read


@pytest.fixture
def overlap() -> type[Overlap]:
    return Overlap
