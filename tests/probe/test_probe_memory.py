"""What a server that runs for weeks needs: memory, events and files of the probe do not grow with the cycles.

The same `drive` can be run for longer by hand: 10 million cycles take some minutes.
"""

from __future__ import annotations

import gc
import itertools
import os
import sys
from pathlib import Path
from types import SimpleNamespace

CYCLES = 200_000
DECODE = SimpleNamespace(is_idle=lambda: False)


class Event:
    """A CUDA event whose work is over as soon as it is recorded."""

    made = 0

    def __init__(self, enable_timing):
        Event.made += 1

    def record(self, _stream):
        pass

    def query(self):
        return True

    def elapsed_time(self, _end):
        return 4.6875


class Result:
    """What verify of v2 returns, once the scheduler has copied and read it."""

    accept_length_per_req_cpu = num_accepted_drafts_per_req_cpu = copy_done = None
    can_run_cuda_graph = True

    def __init__(self, correct):
        self.num_correct_drafts_per_req_cpu = None
        self.correct = correct
        self.accept_lens = SimpleNamespace(is_cpu=True, tolist=lambda: [drafts + 1 for drafts in correct])


class Controller:
    candidate_steps = (1, 2, 5)

    def __init__(self, worker):
        self.worker = worker

    def activate_step_by_batch(self, _size):
        pass

    def on_verify_complete(self, _correct, _size):
        pass

    def _activate(self, steps):
        self.worker.speculative_num_steps = steps


def made_probe(module, folder, out):
    cuda = SimpleNamespace(Event=Event, current_stream=lambda: None)
    torch = SimpleNamespace(cuda=cuda, distributed=SimpleNamespace(is_available=lambda: False))
    return module.Probe(directory=str(folder), torch=torch, out=out, chooser=module.StepChooser(out=out))


def drive(probe, worker, numbers, cycles):
    """Decodes `cycles` cycles: requests that come and go, v1 and v2, step counts asked for that exist and do not."""
    controller, before = worker.adaptive_controller, None
    for number in itertools.islice(numbers, cycles):
        request, size = number // 20, 1 + number // 20 % 3
        if number % 20 == 0:
            prefix = ("", "k=5/", "p=0/k=1/", "k=7/", "p=1/k=2/")[request % 5]
            reqs = [SimpleNamespace(rid=f"{prefix}{request}-{index}") for index in range(size)]
            batch = SimpleNamespace(reqs=reqs, forward_mode=DECODE)
            probe.enter()
        probe.enter()
        probe.begin(worker, batch)
        controller.activate_step_by_batch(size)
        for index in (1, 2, 3):
            probe.mark(index)
        correct = [number % 3 % (worker.speculative_num_steps + 1)] * size
        v2 = request % 2
        result = Result(correct) if v2 else correct
        probe.end(result, None if v2 else True)
        if v2 and isinstance(before, Result) and number % 7:  # else the scheduler drops it unread
            before.num_correct_drafts_per_req_cpu = before.correct
            probe.verified(worker, before.correct)
        before = result
    probe._harvest()
    probe._write()


def test_memory_events_and_files_stay_flat(module, tmp_path):
    # What is written goes nowhere; that it is written is counted.
    (tmp_path / f"rank0.{os.getpid()}.jsonl").symlink_to(os.devnull)
    opened, files = 0, {file.name for file in Path("/proc/self/fd").iterdir()}

    def opening(path, *how):
        nonlocal opened
        opened += 1
        return os.open(path, *how)

    module.os = SimpleNamespace(**{**vars(os), "open": opening})
    module.probe = probe = made_probe(module, tmp_path, lambda _text: None)
    worker = SimpleNamespace(speculative_num_steps=2)
    worker.adaptive_controller = Controller(worker)
    numbers = itertools.count()
    events = Event.made

    def blocks_after(cycles):
        drive(probe, worker, numbers, cycles)
        gc.collect()
        return sys.getallocatedblocks()

    before = blocks_after(CYCLES // 10)
    after = blocks_after(CYCLES)
    assert module.probe is probe, "it switched itself off"
    assert after - before < 200
    assert Event.made - events == 4 * module.RING
    assert {file.name for file in Path("/proc/self/fd").iterdir()} <= files
    assert opened > CYCLES // 200  # one write in 100 measured cycles, and every fifth request is not measured
