from __future__ import annotations

import weakref
from types import SimpleNamespace

import pytest


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


@pytest.mark.parametrize("output", [None, SimpleNamespace()], ids=["0.4.1.post4", "no known name"])
def test_a_worker_that_hands_back_no_counts_is_unknown(machine, records, output):
    m = machine(every=2)
    for _ in range(4):
        m.cycle(output=output)
    (block,) = records()
    assert block["unknown"] == 2
    assert sum(block["correct_hist"]) == block["tokens"] == 0
    assert block["kept_tokens"] == [None, None]
    assert m.log[-1].splitlines()[-1] == "  Accept len:      unknown (this worker keeps no count on the CPU)"


@pytest.mark.parametrize("hook", [True, False], ids=["0.5.12", "0.5.9"])
def test_v2_counts_are_those_of_their_own_cycle(machine, records, overlap, hook):
    m = machine(every=4)
    scheduler = overlap(m, hook=hook)
    for correct in ([0, 2], [1, 1], [0, 0], [2, 2], [1, 0], [1, 0]):
        scheduler.cycle(correct)
    (block,) = records()
    assert block["kept_tokens"] == [4, 4, 2, 6]
    assert block["correct_hist"] == [3, 2, 3]
    assert (block["tokens"], block["unknown"]) == (16, 0)


def test_v2_counts_are_not_read_before_their_copy_is_done(machine, records, overlap):
    # Cycles of the warm-up need no times, so that only their counts can hold them back.
    m = machine(every=3, warmup=3)
    scheduler = overlap(m, hook=False)
    for _ in range(5):
        scheduler.cycle([2])
    assert m.busy_until > m.now
    assert records()[0]["correct_hist"] == [0, 0, 3]


def test_v2_counts_that_another_thread_copies_come_from_the_scheduler(machine, records, overlap):
    m = machine(every=3)
    scheduler = overlap(m, copies=False)
    for drafts in (0, 1, 2, 0, 0, 0):
        scheduler.cycle([drafts])
    assert records()[0]["kept_tokens"] == [1, 2, 3]


def test_v2_counts_that_nobody_reads_are_unknown_and_the_times_stay(machine, records, overlap):
    m = machine(every=4)
    scheduler = overlap(m, hook=False, copies=False)
    for _ in range(7):
        scheduler.cycle([2], draft=0.5)
    (block,) = records()
    assert block["unknown"] == 4
    assert block["kept_tokens"] == [None] * 4
    assert block["event_ms"]["draft"] == [0.5] * 4


def test_a_result_that_the_scheduler_drops_unread_costs_only_its_own_count(machine, records, overlap):
    m = machine(every=5)
    scheduler = overlap(m, copies=False)
    for number in range(8):
        scheduler.cycle([1])
        if number == 2:
            scheduler.lose()
    (block,) = records()
    assert block["unknown"] == 1
    assert block["kept_tokens"] == [2, 2, None, 2, 2]


def test_a_batch_that_shrinks_in_flight_keeps_each_cycle_with_its_counts(machine, records, overlap):
    m = machine()
    scheduler = overlap(m)
    for _ in range(3):
        scheduler.cycle([2, 0])
    # The second request was retracted, aborted or finished while the cycle before was still out.
    for _ in range(3):
        scheduler.cycle([1])
    scheduler.settle()
    m.flush()
    two, one = records()
    assert (two["batch_size"], two["tokens"], two["correct_hist"]) == (2, 12, [3, 0, 3])
    assert (one["batch_size"], one["tokens"], one["correct_hist"]) == (1, 6, [0, 3, 0])
    assert two["unknown"] == one["unknown"] == 0


def test_counts_of_cycles_that_are_not_measured_go_nowhere(machine, records, overlap):
    m = machine()
    scheduler = overlap(m, copies=False)
    scheduler.cycle([2])
    for _ in range(3):
        scheduler.cycle([1], rid="p=0/")
    for _ in range(2):
        scheduler.cycle([2])
    scheduler.settle()
    m.flush()
    (block,) = records()
    assert (block["decode_cycles"], block["skipped"], block["unknown"]) == (3, 3, 0)
    assert block["correct_hist"] == [0, 0, 3]


def test_a_list_that_belongs_to_no_cycle_is_ignored(machine, records, overlap):
    m = machine(every=2)
    scheduler = overlap(m, hook=False)
    for _ in range(5):
        scheduler.cycle([2])
        m.probe.verified(m.worker, [0])  # right in length, but no cycle's own
    assert records()[0]["kept_tokens"] == [3, 3]


def test_counts_that_do_not_match_the_batch_are_unknown(machine, records, overlap):
    m = machine(every=2)
    m.cycle(output=[1, 1], batch=m.batch(1))
    for _ in range(3):
        m.cycle(output=[-1])
    assert records()[0]["unknown"] == 2


def test_a_v2_list_of_another_length_is_unknown(machine, records, overlap):
    m = machine()
    scheduler = overlap(m, copies=False)
    for _ in range(3):
        scheduler.cycle([1])
    scheduler.pending[1].append(1)
    scheduler.cycle([1])
    scheduler.settle()
    m.flush()
    (block,) = records()
    assert (block["decode_cycles"], block["unknown"], block["tokens"]) == (4, 1, 6)


def test_a_v2_result_is_let_go_once_it_is_read_or_the_next_pass_begins(machine, overlap):
    m = machine()
    scheduler = overlap(m, hook=False)
    scheduler.cycle([2])
    result = weakref.ref(scheduler.pending[0])
    scheduler.lose()
    assert result() is not None
    m.probe.enter()
    assert result() is None

    scheduler = overlap(m)
    scheduler.cycle([2])
    result = weakref.ref(scheduler.pending[0])
    scheduler.settle()
    assert result() is None


def test_the_last_cycle_before_a_pause_is_counted_without_the_hook(machine, records, overlap):
    m = machine()
    scheduler = overlap(m, hook=False)
    for drafts in (0, 1, 2):
        scheduler.cycle([drafts])
    scheduler.settle()
    m.flush()
    (block,) = records()
    assert (block["unknown"], block["correct_hist"]) == (0, [1, 1, 1])


def test_v2_without_overlap_is_told_within_the_turn(machine, records, overlap):
    m = machine(every=3)
    scheduler = overlap(m)
    for drafts in (0, 1, 2, 0, 0):
        scheduler.cycle([drafts])
        scheduler.settle()
    assert records()[0]["kept_tokens"] == [1, 2, 3]


def test_more_correct_drafts_than_steps_lengthen_the_histogram(machine, records):
    m = machine(every=1)
    for _ in range(3):
        m.cycle([4], steps=2)
    assert records()[0]["correct_hist"] == [0, 0, 0, 0, 1]


def test_survival_follows_from_the_histogram(machine, records):
    m = machine(every=10)
    for drafts in (0, 0, 1, 1, 1, 2, 3, 3, 3, 3, 0, 0):
        m.cycle([drafts], steps=3)
    (block,) = records()
    hist = block["correct_hist"]
    assert [sum(hist[k:]) / sum(hist) for k in (1, 2, 3)] == [0.8, 0.5, 0.4]
    assert block["tokens"] == 10 + sum(hist[1:]) + sum(hist[2:]) + sum(hist[3:])


def test_v1_says_beside_its_result_whether_a_graph_ran(machine, records):
    m = machine(every=3)
    for graph in (True, False, True, True, True):
        m.cycle(graph=graph)
    assert records()[0]["graph"] == {"cuda_graph": 2, "eager": 1}


def test_v2_says_in_its_result_whether_a_graph_ran(machine, records, overlap):
    m = machine(every=3)
    scheduler = overlap(m)
    for graph in (True, False, False, True, True, True):
        scheduler.cycle([1], graph=graph)
    assert records()[0]["graph"] == {"cuda_graph": 1, "eager": 2}


def test_a_worker_that_does_not_say_leaves_the_field_out(machine, records):
    m = machine(every=2)
    for _ in range(4):
        m.cycle()
    assert "graph" not in records()[0]
