"""Runs the patched decode branch of a real worker file, with a probe that writes down what it is told.

The package around the worker is stubbed and the phases launch on the lab's simulated GPU, so what is seen is the order
of phases and marks: everything that the patch is about.
"""

from __future__ import annotations

import builtins
import importlib
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

from eaglelab.lab.model import read_model
from eaglelab.lab.standin.acceptance import Acceptance
from eaglelab.lab.standin.args import Release, ServerArgs, parse
from eaglelab.lab.standin.costs import Costs
from eaglelab.lab.standin.device import Gpu
from eaglelab.lab.standin.gpu import Clock
from eaglelab.lab.standin.request import Request
from eaglelab.lab.standin.stubs import STUBBED, Finder, Stub, StubObject
from eaglelab.lab.standin.worker import SpecWorker
from eaglelab.patching.plan import FilePlan

__all__ = ["complaints", "patched_package"]

PHASES = ("draft", "verify", "extend")
COUNTLESS = "0.4.1.post4"
"""The one release whose verify hands over no counts on the CPU."""
SAYS_IF_GRAPH = re.compile(rb"can_run_cuda_graph\s*=\s*\(?\s*self\.verify\(")
"""v1 from 0.4.6.post4 on says beside verify's result whether it ran as a CUDA graph; v2 says it within."""
CYCLE = ["enter", "begin", "draft", 1, "verify", 2, "extend", 3, "end"]
PROBE = '''
class Recorder:
    """Writes down every call in `calls`, where the phases write down theirs."""

    def __init__(self):
        self.calls = []

    def enter(self):
        self.calls.append("enter")

    def begin(self, worker, batch):
        assert batch.reqs
        self.calls.append("begin")

    def mark(self, index):
        self.calls.append(index)

    def end(self, result, graph):
        self.calls.append("end")
        self.result, self.graph = result, graph

    def verified(self, worker, correct):
        self.calls.append(correct)


probe = Recorder()
'''


@contextmanager
def patched_package(release: Path, plans: list[FilePlan], scratch: Path) -> Iterator[None]:
    """A copy of the release's files, patched and with the recording probe, importable while this lasts."""
    package = scratch / "sglang"
    shutil.copytree(release / "sglang", package)
    for plan in plans:
        (package / plan.path).write_bytes(plan.patched)
    (package / "srt/speculative/eaglelab_probe.py").write_text(PROBE, encoding="utf-8")
    finder, before = Finder(), set(sys.modules)
    sys.meta_path.insert(0, finder)
    sys.path.insert(0, str(scratch))
    try:
        yield
    finally:
        sys.path.remove(str(scratch))
        sys.meta_path.remove(finder)
        for name in set(sys.modules) - before:
            if name.partition(".")[0] in {"sglang", *STUBBED}:
                del sys.modules[name]
        shutil.rmtree(package)


def complaints(plan: FilePlan, version: str) -> list[str]:
    """What is wrong with the marks of one worker of the package that is importable; empty where all is right."""
    module_name = Path(plan.path).stem
    # multi-layer v1 of 0.5.9 to 0.5.12 names this in an annotation without importing it at run time
    with patch.object(builtins, "ModelRunner", StubObject, create=True):
        module = importlib.import_module(f"sglang.srt.speculative.{module_name}")
    probe_module = importlib.import_module("sglang.srt.speculative.eaglelab_probe")
    return [
        f"{scene}: {seen} instead of {wanted}"
        for scene, seen, wanted in _scenes(_Subject(module, module_name, plan, version, probe_module), plan)
        if seen != wanted
    ]


def _scenes(subject: _Subject, plan: FilePlan) -> Iterator[tuple[str, list[Any], list[Any]]]:
    yield "decode", subject.decode(), CYCLE
    yield "decode again", subject.decode(), CYCLE
    yield "counts in the result of verify", [subject.result_has_counts()], [subject.version != COUNTLESS]
    yield "graph or not", [subject.told_of_graph()], [SAYS_IF_GRAPH.search(plan.original) is not None]
    yield "prefill", subject.prefill(), ["enter"]
    if any(edit.place == "verified" for edit in plan.edits):
        yield "counts", subject.verified([1, 0]), [[1, 0]]
    if subject.can("_build_trivial_verify_input"):
        yield "no steps", subject.decode_without_steps(), [call for call in CYCLE if call != "draft"]
    if subject.drafts_ahead:
        yield "last pipeline stage", subject.decode_on_last_stage(), [*CYCLE[:-1], "draft", "end"]
    yield "switched off", subject.decode_switched_off(), list(PHASES)


class _RecordingGpu(Gpu):
    """Writes down the phases that are launched; those of one name in a row (a draft loop) are one."""

    def __init__(self, calls: list[Any]) -> None:
        model = read_model().as_settings()
        acceptance = Acceptance(seed=1, survival=(0.5,))
        super().__init__(Clock(1.0), Costs.of(model), acceptance)
        self.calls = calls

    def run(self, ms: float, launch: str = "") -> None:
        if launch in PHASES and self.calls[-1:] != [launch]:
            self.calls.append(launch)


class _Subject:
    """One worker of a release, and what its probe and phases have written down since the last look."""

    def __init__(self, module: ModuleType, name: str, plan: FilePlan, version: str, probe_module: ModuleType) -> None:
        self.version, self._module, self._probe_module = version, module, probe_module
        self._probe = probe_module.probe
        self._gpu = _RecordingGpu(self._probe.calls)
        self._worker = SpecWorker(name, plan.worker_class, self._gpu, _arguments(), Release.of(version))
        self._instance = self._worker.instance
        self.drafts_ahead = b"next_verify_chain" in plan.original and self.can("_build_trivial_verify_input")
        if any(edit.place == "verify-done" for edit in plan.edits):
            self._verify_for_real()

    def can(self, method: str) -> bool:
        return method in vars(type(self._instance))

    def decode(self) -> list[Any]:
        self._probe.calls.clear()
        self._worker.decode([_request()])
        return list(self._probe.calls)

    def prefill(self) -> list[Any]:
        self._probe.calls.clear()
        self._worker.prefill([_request()])
        return [call for call in self._probe.calls if call not in PHASES]

    def verified(self, correct: list[int]) -> list[Any]:
        self._probe.calls.clear()
        self._instance.on_verify_complete_cpu(correct)
        return list(self._probe.calls)

    def result_has_counts(self) -> bool:
        """Whether `end` was given what holds the counts, in the one form or the other."""
        result = self._probe.result
        names = ("accept_lens", "num_correct_drafts_per_req_cpu")
        return isinstance(result, list) or any(name in getattr(result, "__dict__", ()) for name in names)

    def told_of_graph(self) -> bool:
        return self._probe.graph is True

    def decode_without_steps(self) -> list[Any]:
        self._instance.speculative_num_steps = 0
        try:
            return self.decode()
        finally:
            self._instance.speculative_num_steps = 2

    def decode_on_last_stage(self) -> list[Any]:
        """From 0.5.21 on the last pipeline stage drafts the next cycle at the end of this one."""
        drafter, draft, verify = self._instance.draft_worker, self._worker._draft, self._instance.verify

        def drafting(batch: Any, with_topology: bool = False) -> Any:
            return (draft(batch), Stub(), Stub()) if with_topology else draft(batch)

        def verifying(*args: Any, **kwargs: Any) -> Any:
            output = verify(*args, **kwargs)
            output.new_seq_lens = StubObject(to=lambda _device: StubObject(sum=lambda: 1))
            return output

        stage = {"get_parallel": lambda: StubObject(pp_size=2)}
        with (
            patch.dict(vars(self._module), stage),
            patch.dict(vars(drafter), {"draft": drafting}),
            patch.dict(vars(self._instance), {"verify": verifying}),
        ):
            return self.decode()

    def decode_switched_off(self) -> list[Any]:
        with patch.object(self._probe_module, "probe", None):
            return self.decode()

    def _verify_for_real(self) -> None:
        """0.5.3.post2 and .post3 re-extend inside verify: its own code has to run, down to the two forward passes."""
        parts = vars(self._instance)
        del parts["verify"]
        verify_input = StubObject(
            is_verify_input=lambda: True,
            prepare_for_v2_verify=lambda *_: (Stub(), True),
            sample=lambda *_: (Stub(), Stub(), Stub()),
        )

        def forward(launch: str) -> Any:
            def run(*_args: Any, **_kwargs: Any) -> StubObject:
                self._gpu.run(0.0, launch)
                return StubObject()

            return run

        def draft(batch: Any) -> StubObject:
            self._gpu.run(0.0, "draft")
            vars(batch)["seq_lens"] = _Lengths()
            return verify_input

        parts.update(
            draft=draft,
            target_worker=StubObject(forward_batch_generation=forward("verify")),
            model_runner=StubObject(model=StubObject(forward=forward("extend"))),
            move_accepted_tokens_to_target_kvcache=Stub(),
            forward_draft_extend=forward("extend"),
        )
        vars(self._module)["fast_topk"] = lambda *_args, **_kwargs: (Stub(), Stub())


class _Lengths(Stub):
    """The sequence lengths of a batch of one, as a tensor that has a length itself."""

    def __len__(self) -> int:
        return 1


def _arguments() -> ServerArgs:
    flags = "--model m --speculative-algorithm EAGLE3 --speculative-num-steps 2 --speculative-num-draft-tokens 3"
    return parse(flags.split())


def _request() -> Request:
    return Request("rid", "p", 5, 1000, ignore_eos=True, stream=False, arrived=0.0)
