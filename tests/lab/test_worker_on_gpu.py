"""The real worker files of 0.5.9 on the simulated GPU."""

from __future__ import annotations

import importlib
from itertools import pairwise
from typing import Any

import pytest

from eaglelab.lab.standin.args import Release, ServerArgs, parse
from eaglelab.lab.standin.device import Gpu
from eaglelab.lab.standin.gpu import Event, cuda_namespace
from eaglelab.lab.standin.request import Request
from eaglelab.lab.standin.shape import bound_names
from eaglelab.lab.standin.stubs import Finder
from eaglelab.lab.standin.worker import SpecWorker

RELEASE = Release.of("0.5.9")


def arguments(steps: int) -> ServerArgs:
    spec = f"--speculative-algorithm EAGLE3 --speculative-num-steps {steps} --speculative-num-draft-tokens {steps + 1}"
    return parse(["--model", "m", *spec.split()])


def request(prompt: str = "p", tokens: int = 1000) -> Request:
    return Request("rid", prompt, 5, tokens, True, False, 0.0)


@pytest.fixture
def v1(stubbed: Finder, gpu: Gpu) -> SpecWorker:
    return SpecWorker("eagle_worker", "EAGLEWorker", gpu, arguments(2), RELEASE)


@pytest.fixture
def v2(stubbed: Finder, gpu: Gpu) -> SpecWorker:
    vars(importlib.import_module("torch.cuda")).update(cuda_namespace(gpu.stream))
    importlib.import_module("torch").cuda = importlib.import_module("torch.cuda")
    return SpecWorker("eagle_worker_v2", "EAGLEWorkerV2", gpu, arguments(2), RELEASE)


def marked(worker: SpecWorker, gpu: Gpu) -> tuple[list[Event], list[float]]:
    """Record an event and the host's clock around draft, verify and extend, as a profiler in the worker would."""
    events: list[Event] = []
    host: list[float] = []

    def mark() -> None:
        event = Event(gpu.stream, enable_timing=True)
        event.record()
        events.append(event)
        host.append(gpu.clock.now)

    parts = vars(worker.instance)
    drafter = parts.get("_draft_worker", worker.instance)
    for holder, name in (
        (drafter, "draft"),
        (worker.instance, "verify"),
        (drafter, "forward_draft_extend_after_decode" if drafter is worker.instance else "_draft_extend_for_decode"),
    ):
        original = vars(holder)[name]

        def wrapped(*args: Any, original: Any = original, first: bool = name == "draft", **kwargs: Any) -> Any:
            if first:
                mark()
            value = original(*args, **kwargs)
            mark()
            return value

        vars(holder)[name] = wrapped
    return events, host


def spans(events: list[Event]) -> list[float]:
    events[-1].synchronize()
    return [a.elapsed_time(b) for a, b in pairwise(events)]


def differences(host: list[float]) -> list[float]:
    return [(b - a) * 1e3 for a, b in pairwise(host)]


def test_v1_events_show_the_gpu_and_host_timers_do_not(v1: SpecWorker, gpu: Gpu) -> None:
    events, host = marked(v1, gpu)
    v1.decode([request()])
    assert spans(events) == pytest.approx([0.50, 15.80, 1.26])
    # the host sees a launch, then draft and verify together, then a launch
    assert differences(host) == pytest.approx([0.31, 0.50 - 0.31 + 15.80, 0.35])


def test_v1_drains_the_re_extend_at_the_start_of_the_next_draft(v1: SpecWorker, gpu: Gpu) -> None:
    v1.decode([request()])
    assert gpu.stream.free_at > gpu.clock.now
    events, host = marked(v1, gpu)
    v1.decode([request()])
    assert differences(host)[0] == pytest.approx(1.26 - 0.35 + 0.31)
    assert spans(events)[0] == pytest.approx(0.50)


def test_v1_cycles_take_what_the_model_says(v1: SpecWorker, gpu: Gpu) -> None:
    one = request()
    start = gpu.clock.now
    for _ in range(100):
        v1.decode([one])
        v1.after_cycle()
    assert (gpu.clock.now - start) * 1e3 / 100 == pytest.approx(gpu.costs.cycle(2), rel=1e-6)


def test_v1_hands_back_correct_drafts_without_the_bonus_token(v1: SpecWorker) -> None:
    one = request()
    results = [v1.decode([one]) for _ in range(400)]
    assert all(result.tokens == [result.correct[0] + 1] for result in results)
    assert sum(result.tokens[0] for result in results) / 400 == pytest.approx(1.745, rel=0.02)
    assert {result.correct[0] for result in results} == {0, 1, 2}


def test_v1_cuts_the_last_cycle_at_the_limit_and_skips_its_re_extend(v1: SpecWorker, gpu: Gpu) -> None:
    last = request(tokens=1)
    result = v1.decode([last])
    assert result.tokens == [1]
    assert gpu.stream.free_at == gpu.clock.now


def test_v2_does_not_block_inside_the_worker(v2: SpecWorker, gpu: Gpu) -> None:
    events, host = marked(v2, gpu)
    result = v2.decode([request()])
    assert differences(host) == pytest.approx([0.31, 0.30, 0.35])
    assert gpu.clock.now * 1e3 == pytest.approx(0.96)
    result.wait()
    assert gpu.clock.now * 1e3 == pytest.approx(0.50 + 15.80 + 1.26 + 0.05)
    assert spans(events) == pytest.approx([0.50, 15.80, 1.26])


def test_v2_cycles_leave_the_gpu_no_gap_but_the_copy(v2: SpecWorker, gpu: Gpu) -> None:
    one = request()
    v2.decode([one])
    first = gpu.stream.free_at
    for _ in range(50):
        v2.before_next()
        v2.decode([one])
    assert (gpu.stream.free_at - first) * 1e3 / 50 == pytest.approx(0.50 + 15.80 + 1.26 + 0.05)


def test_a_v2_result_read_in_the_worker_blocks_and_its_copy_does_not(v2: SpecWorker, gpu: Gpu) -> None:
    seen: list[Any] = []
    run = v2.run
    v2.run = lambda batch: seen.append(run(batch)) or seen[-1]
    result = v2.decode([request(), request("q")])
    (output,) = seen
    assert output.accept_lens.tolist() == [0, 0]
    assert not output.copy_done.query()
    result.wait()
    assert output.accept_lens.tolist() == result.tokens
    assert result.tokens == [drafts + 1 for drafts in result.correct]


@pytest.mark.parametrize("worker", ["v1", "v2"])
def test_prefill_runs_the_other_branch_and_waits_for_it(worker: str, gpu: Gpu, request: pytest.FixtureRequest) -> None:
    subject: SpecWorker = request.getfixturevalue(worker)
    one = Request("rid", "p", 100, 10, True, False, 0.0)
    subject.prefill([one])
    assert one.position == 1
    assert gpu.clock.now == gpu.stream.free_at
    assert gpu.clock.now * 1e3 == pytest.approx(12.0 + 100 * 0.05 + 1.26)


def test_the_entry_itself_says_what_it_unpacks() -> None:
    entry = "def entry(self, batch):\n    a, b, can_run_cuda_graph = (\n        self.verify(batch)\n    )\n    c: T = self.draft(batch)\n"
    assert bound_names(entry, "verify") == ("a", "b", "can_run_cuda_graph")
    assert bound_names(entry, "draft") == ("c",)
    assert bound_names(entry, "extend") == ()
