"""What the scheduler makes of a v2 result, by release: read by profilers, so it has to be as in SGLang."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from labkit import importable, released

from eaglelab.lab.standin.args import Release, parse
from eaglelab.lab.standin.device import Gpu
from eaglelab.lab.standin.gpu import cuda_namespace
from eaglelab.lab.standin.request import Request
from eaglelab.lab.standin.worker import SpecWorker

FLAGS = "--model m --speculative-algorithm EAGLE3 --speculative-num-steps 2 --speculative-num-draft-tokens 3"


@pytest.mark.parametrize(
    ("version", "name", "told"),
    [
        ("0.5.9", "accept_length_per_req_cpu", None),
        ("0.5.12", "num_correct_drafts_per_req_cpu", {}),
        ("0.5.16", "num_correct_drafts_per_req_cpu", {"batch_size": 1}),
    ],
)
def test_the_list_that_the_worker_is_told_is_the_one_on_its_result(
    gpu: Gpu, version: str, name: str, told: dict[str, int] | None
) -> None:
    with importable(released(version)):
        cuda = importlib.import_module("torch.cuda")
        vars(cuda).update(cuda_namespace(gpu.stream))
        importlib.import_module("torch").cuda = cuda
        worker = SpecWorker("eagle_worker_v2", "EAGLEWorkerV2", gpu, parse(FLAGS.split()), Release.of(version))
        outputs: list[Any] = []
        calls: list[tuple[list[int], dict[str, int]]] = []
        entry = worker.run
        worker.run = lambda batch: outputs.append(entry(batch)) or outputs[-1]
        vars(worker.instance)["on_verify_complete_cpu"] = lambda correct, **size: calls.append((correct, size))
        result = worker.decode([Request("rid", "p", 5, 1000, True, False, 0.0)])
        (output,) = outputs
        assert calls == []
        assert not isinstance(vars(output).get(name), list)
        assert output.accept_lens.is_cpu
        result.wait()
    assert vars(output)[name] == result.correct
    assert [size for _, size in calls] == ([] if told is None else [told])
    assert all(correct is vars(output)[name] for correct, _ in calls)
