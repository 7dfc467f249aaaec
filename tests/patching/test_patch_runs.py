"""The patched skeletons run: marks in order when on, one attribute test when off, and no probe file is no error."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from unittest.mock import MagicMock

import pytest

CASES = sorted(path.parent for path in (Path(__file__).parents[1] / "cases" / "patching").glob("*/after.py"))
PHASES = {
    "draft": "draft",
    "forward_draft_decode": "draft",
    "verify": "verify",
    "forward_draft_extend_after_decode": "extend",
    "forward_extend_after_decode": "extend",
    "_draft_extend_for_decode": "extend",
}
SAY_IF_GRAPH = ("h-0.4.8", "l-0.5.9", "m-0.5.12", "F-0.5.12")
"""Verify of these says beside its result whether it ran as a CUDA graph."""
INSIDE_VERIFY = "A-0.5.3.post2-extend-inside-verify"
ORDER = ["enter", "begin", "draft", 1, "verify", 2, "extend", 3, "end"]


class Recorder:
    def __init__(self) -> None:
        self.calls: list[object] = []

    def enter(self) -> None:
        self.calls.append("enter")

    def begin(self, worker, batch) -> None:
        self.calls.append("begin")

    def mark(self, index: int) -> None:
        self.calls.append(index)

    def end(self, output, graph) -> None:
        self.calls.append("end")
        self.output, self.graph = output, graph


class ProbeModule(ModuleType):
    """Counts how often `probe` is looked at."""

    def __init__(self, probe: Recorder | None) -> None:
        super().__init__("sglang.srt.speculative.eaglelab_probe")
        self.looked = 0
        self._probe = probe

    @property
    def probe(self) -> Recorder | None:
        self.looked += 1
        return self._probe


@pytest.fixture
def install(monkeypatch):
    def put(module: ModuleType | None) -> None:
        for name in ("sglang", "sglang.srt", "sglang.srt.speculative"):
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
        if module is not None:
            sys.modules["sglang.srt.speculative"].eaglelab_probe = module

    return put


def run(case: Path, calls: list[object], *, decode: bool) -> None:
    """One pass of the worker in `case`; its phases append to `calls`."""
    namespace: dict[str, object] = {"__name__": "worker"}
    exec(compile((case / "after.py").read_bytes(), "worker.py", "exec"), namespace)
    original = next(
        value
        for value in namespace.values()
        if isinstance(value, type) and any(name.startswith("forward_batch_") for name in vars(value))
    )

    def phase(name: str):
        def call(*args, **kwargs):
            if not calls or calls[-1] != PHASES[name]:  # the first releases draft step by step
                calls.append(PHASES[name])
            return (MagicMock(),) * TUPLES.get((case.name, PHASES[name]), 0) or MagicMock()

        return call

    own_verify = case.name == INSIDE_VERIFY and decode  # its marks stand between the two forward passes of verify
    methods = {name: staticmethod(phase(name)) for name in PHASES if not (name == "verify" and own_verify)}
    drafter = type("Drafter", (MagicMock,), methods)()
    worker = type(
        original.__name__,
        (original,),
        {
            **methods,
            "draft_worker": drafter,
            "speculative_num_steps": 2,
            "pp_size": 1,
            "server_args": MagicMock(speculative_num_steps=2),
            "__getattr__": lambda self, name: self.__dict__.setdefault(name, MagicMock()),
        },
    )()
    if own_verify:
        worker.target_worker.forward_batch_generation = phase("verify")
        worker.draft_model_runner.model.forward = phase("_draft_extend_for_decode")
    batch = MagicMock(is_extend_in_batch=False)
    batch.spec_info.is_verify_input.return_value = False
    batch.spec_info.verified_id.shape = (1,)
    batch.forward_mode.is_decode.return_value = decode
    batch.forward_mode.is_extend.return_value = not decode
    batch.forward_mode.is_idle.return_value = False
    entry = next(name for name in vars(original) if name.startswith("forward_batch_"))
    getattr(worker, entry)(batch)


# How many values the phase of a skeleton returns, where it is not one.
TUPLES = {
    ("a-0.4.1.post4-draft-loop-and-nameless-verify", "verify"): 5,
    ("b-0.4.1.post5-counts-as-a-name", "verify"): 6,
    ("c-0.4.2.post2-annotated-draft", "verify"): 6,
    ("e-0.4.4.post2-docstring-and-idle-branch", "draft"): 2,
    ("e-0.4.4.post2-docstring-and-idle-branch", "verify"): 3,
    ("h-0.4.8-decode-in-else", "verify"): 4,
    ("l-0.5.9-three-contexts-in-one-with", "verify"): 4,
    ("m-0.5.12-tracing-between-phases-and-adaptive-hook", "verify"): 3,
    ("F-0.5.12-frozen-straight-line", "verify"): 3,
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_marks_come_in_order_around_the_phases(case, install):
    recorder = Recorder()
    install(ProbeModule(recorder))
    run(case, recorder.calls, decode=True)
    assert recorder.calls == ORDER
    assert (recorder.output is None) is case.name.startswith("a-0.4.1.post4")
    assert (recorder.graph is not None) is case.name.startswith(SAY_IF_GRAPH)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_prefill_only_enters(case, install):
    recorder = Recorder()
    install(ProbeModule(recorder))
    run(case, recorder.calls, decode=False)
    assert recorder.calls == ["enter"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_switched_off_it_costs_one_attribute_test_a_cycle(case, install):
    module = ProbeModule(None)
    install(module)
    calls: list[object] = []
    run(case, calls, decode=True)
    assert calls[:2] == ["draft", "verify"]
    assert module.looked == (2 if case.name == INSIDE_VERIFY else 1)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_worker_whose_probe_file_is_gone_still_runs(case, install):
    install(None)
    calls: list[object] = []
    run(case, calls, decode=True)
    assert calls[:2] == ["draft", "verify"]
