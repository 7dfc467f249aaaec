from __future__ import annotations

from types import SimpleNamespace

import pytest


def run_v2(m, values, lens, *, device_at_next_entry="cpu", done=lambda: True):
    """Cycles whose counts are on the GPU until the scheduler swaps them for a copy, right after the worker returns."""
    outputs = []
    for row in values:
        output = SimpleNamespace(
            accept_lens=lens(row, "cuda:0"), copy_done=None, logits="large", accept_length_per_req_cpu=None
        )
        m.cycle(output=output, batch=m.batch(len(row)))
        output.accept_lens = lens(row, device_at_next_entry)
        output.copy_done = SimpleNamespace(query=done)
        outputs.append(output)
    return outputs


@pytest.mark.parametrize(
    "output",
    [
        pytest.param(lambda correct: correct, id="0.4.1.post5"),
        pytest.param(lambda correct: SimpleNamespace(accept_length_per_req_cpu=correct), id="0.5.9"),
        pytest.param(lambda correct: SimpleNamespace(num_accepted_drafts_per_req_cpu=correct), id="0.5.11"),
        pytest.param(lambda correct: SimpleNamespace(num_correct_drafts_per_req_cpu=correct), id="0.5.12"),
    ],
)
def test_v1_counts_exclude_the_bonus_token(machine, records, output):
    m = machine(every=3)
    for correct in (0, 2, 1, 0, 0):
        m.cycle([correct], output=output([correct]))
    (block,) = records()
    assert block["correct_hist"] == [1, 1, 1]
    assert block["kept_tokens"] == [1, 3, 2]
    assert block["tokens"] == 6


def test_v2_counts_include_the_bonus_token(machine, records, lens):
    m = machine(every=3)
    run_v2(m, [[1, 3], [2, 2], [1, 1], [1, 1], [1, 1]], lens)
    (block,) = records()
    assert block["correct_hist"] == [3, 2, 1]
    assert block["kept_tokens"] == [4, 4, 2]
    assert block["tokens"] == 10
    assert block["unknown"] == 0


def test_v2_counts_wait_for_the_copy_without_blocking(machine, records, lens):
    ready = []
    m = machine(every=2)
    run_v2(m, [[2]] * 4, lens, done=lambda: bool(ready))
    assert records() == []
    ready.append(True)
    run_v2(m, [[2]] * 2, lens)
    assert records()[0]["kept_tokens"] == [2, 2]


def test_v2_counts_that_never_reach_the_cpu_are_unknown_and_the_times_stay(machine, records, lens):
    m = machine(every=3)
    run_v2(m, [[2]] * 5, lens, device_at_next_entry="cuda:0")
    (block,) = records()
    assert block["unknown"] == 3
    assert block["tokens"] == 0
    assert block["kept_tokens"] == [None] * 3
    assert block["event_ms"]["total"] == [18.56] * 3
    assert m.log[-1].splitlines()[-1] == "  Accept len:      unknown (this worker keeps no count on the CPU)"


def test_the_rest_of_a_v2_result_is_let_go_at_the_next_entry(machine, lens):
    m = machine()
    run_v2(m, [[2]], lens)
    (held,) = [cycle.output for cycle in m.probe._pending]
    assert held.logits == "large"
    m.probe.enter()
    assert [cycle.output for cycle in m.probe._pending] == [None]


def test_a_worker_that_returns_no_counts_is_unknown(machine, records):
    m = machine(every=2)
    for _ in range(4):
        m.cycle(output=SimpleNamespace())
    assert records()[0]["unknown"] == 2
    assert sum(records()[0]["correct_hist"]) == 0


def test_counts_that_do_not_match_the_batch_are_unknown(machine, records):
    m = machine(every=2)
    m.cycle(output=[1, 1], batch=m.batch(1))
    for _ in range(3):
        m.cycle(output=[-1])
    assert records()[0]["unknown"] == 2


def test_more_correct_drafts_than_steps_lengthen_the_histogram(machine, records):
    m = machine(every=1)
    for _ in range(3):
        m.cycle([4], steps=2)
    assert records()[0]["correct_hist"] == [0, 0, 0, 0, 1]
