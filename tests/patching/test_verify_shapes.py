"""The small example patch: where its line goes, what it prints, and that it never gets in the way."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from eaglelab.patching.plan import plan_file
from eaglelab.patching.spec import load_patch

FOLDER = Path(__file__).parents[2] / "patches" / "verify-shapes"
CASES = Path(__file__).parents[1] / "cases" / "patching"
SPEC = load_patch(FOLDER)


class Lengths:
    """A tensor of lengths; reading it on the GPU would wait, so here it raises."""

    def __init__(self, values: list[int], device: str) -> None:
        self._values, self.device, self.shape = values, device, (len(values),)

    def max(self) -> int:
        if self.device != "cpu":
            raise RuntimeError("this waits for the GPU")
        return max(self._values)


class EAGLEWorker:
    speculative_num_draft_tokens = 3


@pytest.fixture
def module():
    spec = importlib.util.spec_from_file_location("eaglelab_shapes", FOLDER / "eaglelab_shapes.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def torch_of(rank: int, world: int) -> SimpleNamespace:
    distributed = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: world > 1,
        get_rank=lambda: rank,
        get_world_size=lambda: world,
    )
    return SimpleNamespace(distributed=distributed)


def batch_of(**fields) -> SimpleNamespace:
    return SimpleNamespace(**{"seq_lens": Lengths([70, 900], "cuda:0"), **fields})


@pytest.mark.parametrize("case", sorted(CASES.glob("[A-Za-z]*-0.*/before.py")), ids=lambda case: case.parent.name)
def test_it_goes_where_the_profile_marks_the_end_of_draft(case, patch):
    source = case.read_bytes()
    [shapes] = [edit.line for edit in plan_file(source, SPEC, path="worker.py").edits if edit.place == "shapes"]
    [mark] = [edit.line for edit in plan_file(source, patch, path="worker.py").edits if edit.place == "after-draft"]
    assert shapes == mark


def test_it_names_class_and_rank_once_and_then_prints_a_line_a_verify(module):
    out: list[str] = []
    shapes = module.Shapes(out=out.append, torch=torch_of(0, 8))
    batch = batch_of(seq_lens_sum=970, seq_lens_cpu=Lengths([70, 900], "cpu"))
    shapes.verify(EAGLEWorker(), batch)
    shapes.verify(EAGLEWorker(), batch)
    line = "EAGLE3_SHAPES batch_size=2 draft_tokens=3 context_sum=970 context_max=900"
    assert out == ["EAGLE3_SHAPES active: class=EAGLEWorker rank=0/8", line, line]
    assert re.fullmatch(SPEC.canary, out[0]).groupdict() == {"class": "EAGLEWorker", "rank": "0", "world": "8"}


def test_what_only_the_gpu_knows_is_left_out(module):
    out: list[str] = []
    shapes = module.Shapes(out=out.append, torch=torch_of(0, 1))
    shapes.verify(EAGLEWorker(), batch_of(seq_lens_sum=None, seq_lens_cpu=Lengths([70, 900], "cuda:0")))
    assert out[1:] == ["EAGLE3_SHAPES batch_size=2 draft_tokens=3 context_sum=- context_max=-"]


def test_the_first_releases_keep_the_draft_tokens_in_their_arguments(module):
    out: list[str] = []
    worker = SimpleNamespace(server_args=SimpleNamespace(speculative_num_draft_tokens=64))
    module.Shapes(out=out.append, torch=torch_of(0, 1)).verify(worker, batch_of())
    assert "draft_tokens=64" in out[1]


def test_other_ranks_only_say_that_they_run(module):
    out: list[str] = []
    shapes = module.Shapes(out=out.append, torch=torch_of(3, 8))
    shapes.verify(EAGLEWorker(), batch_of())
    shapes.verify(EAGLEWorker(), batch_of())
    assert out == ["EAGLE3_SHAPES active: class=EAGLEWorker rank=3/8"]


def test_an_error_switches_it_off_and_says_so_once(module):
    out: list[str] = []
    shapes = module.Shapes(out=out.append, torch=torch_of(0, 1))
    shapes.verify(EAGLEWorker(), SimpleNamespace())
    shapes.verify(EAGLEWorker(), batch_of())
    assert out[1:] == ["EAGLE3_SHAPES off: AttributeError: 'types.SimpleNamespace' object has no attribute 'seq_lens'"]


@pytest.mark.parametrize(
    ("environ", "on"), [({}, False), ({"EAGLE3_SHAPES": "0"}, False), ({"EAGLE3_SHAPES": "1"}, True)]
)
def test_the_gate_decides(module, environ, on):
    assert (module.from_environment(environ) is not None) is on
    assert SPEC.gate == "EAGLE3_SHAPES"
    assert not SPEC.records
