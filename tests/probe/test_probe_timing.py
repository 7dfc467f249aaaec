from __future__ import annotations

from types import SimpleNamespace

import pytest


class LateResult:
    """What verify of v2 returns, its counts not yet on the CPU."""

    accept_lens = SimpleNamespace(is_cpu=False)


def test_marks_become_phase_times_on_both_clocks(machine, records):
    m = machine(every=3)
    for _ in range(5):
        m.cycle()
    (block,) = records()
    event, host = block["event_ms"], block["host_ms"]
    assert block["cycles"] == block["decode_cycles"] == 3
    # The GPU idles while the host launches: each phase ends where its work ends.
    assert event["draft"] == [0.5] * 3
    assert event["verify"] == [15.8] * 3
    assert event["extend"] == [1.26] * 3
    assert event["other"] == [1.0] * 3
    assert event["total"] == [18.56] * 3
    # Host timers see launches, and give the draft's GPU time to verify.
    assert host["draft"] == [0.1] * 3
    assert host["verify"] == pytest.approx([16.2] * 3)
    assert host["extend"] == [0.1] * 3
    assert host["total"] == [18.56] * 3


def test_a_cycle_is_final_only_once_the_next_one_has_begun(machine, records):
    m = machine(every=2)
    m.cycle()
    m.cycle()
    assert records() == []
    m.cycle()
    m.cycle()
    assert [block["decode_cycles"] for block in records()] == [2]


def test_cycles_on_both_sides_of_a_prefill_are_dropped_but_counted(machine, records):
    m = machine(every=6)
    for _ in range(3):
        m.cycle([1])
    m.prefill()
    for _ in range(5):
        m.cycle([2])
    (block,) = records()
    assert block["dropped"]["before_prefill"] == 1
    assert block["dropped"]["after_prefill"] == 1
    assert (block["decode_cycles"], block["cycles"]) == (6, 4)
    assert block["kept_tokens"] == [2, 2, 3, 3]
    assert block["correct_hist"] == [0, 3, 3]
    assert block["tokens"] == 3 * 2 + 3 * 3
    assert max(block["event_ms"]["other"]) == 1.0


def test_the_first_cycles_are_warmup(machine, records):
    m = machine(every=12, warmup=10)
    for _ in range(14):
        m.cycle()
    (block,) = records()
    assert block["dropped"]["warmup"] == 10
    assert block["cycles"] == 2


def test_idle_batches_are_no_cycles_and_spoil_their_neighbours(machine, records):
    m = machine(every=6)
    for _ in range(3):
        m.cycle()
    m.probe.enter()
    m.probe.begin(m.worker, m.batch(1, idle=True))
    m.probe.mark(1)
    m.probe.end([])
    for _ in range(5):
        m.cycle()
    (block,) = records()
    assert block["dropped"]["idle"] == 2
    assert (block["decode_cycles"], block["cycles"]) == (6, 4)


def test_an_outlier_is_dropped_as_a_gap(machine, records):
    m = machine(every=12)
    for number in range(14):
        m.cycle(after=120.0 if number == 9 else 1.0)
    (block,) = records()
    assert block["dropped"]["gap"] == 1
    assert (block["decode_cycles"], block["cycles"]) == (12, 11)
    assert max(block["event_ms"]["total"]) == 18.56


def test_a_change_of_batch_size_gets_its_own_block_and_drops_the_first_cycle(machine, records):
    m = machine()
    for _ in range(4):
        m.cycle([1, 0])
    for _ in range(4):
        m.cycle([2])
    m.flush()
    first, second = records()
    assert (first["batch_size"], first["decode_cycles"], first["cycles"]) == (2, 4, 4)
    assert first["correct_hist"] == [4, 4, 0]
    assert first["kept_tokens"] == [3] * 4
    assert (second["batch_size"], second["decode_cycles"]) == (1, 4)
    assert second["dropped"]["batch_change"] == 1


def test_a_change_of_steps_gets_its_own_block_and_drops_the_first_cycle(machine, records):
    m = machine()
    for _ in range(4):
        m.cycle(steps=2)
    for _ in range(4):
        m.cycle(steps=5)
    m.flush()
    first, second = records()
    assert (first["steps"], first["cycles"]) == (2, 4)
    assert (second["steps"], second["decode_cycles"]) == (5, 4)
    assert second["dropped"]["steps_change"] == 1
    assert len(second["correct_hist"]) == 6


def test_a_step_count_changed_within_the_cycle_counts_from_the_draft_on(machine, records):
    m = machine(every=1)
    m.probe.enter()
    m.probe.begin(m.worker, m.batch(1))
    m.worker.speculative_num_steps = 7
    m.launch(1.0)
    m.probe.mark(1)
    m.worker.speculative_num_steps = 3
    m.probe.mark(2)
    m.probe.mark(3)
    m.probe.end([7])
    m.flush()
    assert [block["steps"] for block in records()] == [7]


def test_a_partial_block_is_written_when_prefill_follows_a_pause(machine, records):
    m = machine()
    for _ in range(5):
        m.cycle()
    m.idle(0.2)
    m.prefill()
    assert records() == []
    for _ in range(5):
        m.cycle()
    m.flush()
    (block,) = records()
    assert block["decode_cycles"] == 10
    assert block["dropped"]["before_prefill"] == 2
    m.flush()
    assert len(records()) == 1


@pytest.mark.parametrize("stall_ms", [170.0, 900.0])
def test_a_last_cycle_that_stalled_does_not_put_off_the_writing_that_a_prompt_asks_for(machine, records, stall_ms):
    m = machine()
    for _ in range(29):
        m.cycle()
    m.cycle(after=stall_ms)
    m.cycle()
    m.idle(0.3)
    m.prefill()
    assert sum(block["decode_cycles"] for block in records()) == 31


def test_a_model_with_very_slow_cycles_is_not_flushed_cycle_by_cycle(machine, records):
    m = machine(every=4)
    for _ in range(7):
        m.cycle(verify=300.0, after=260.0)
    (first, *_) = records()
    # Only the first one, before any length is known, may be taken for a pause.
    assert first["decode_cycles"] == 1
    assert [block["decode_cycles"] for block in records()[1:]] == [4]


def test_a_gpu_that_falls_behind_costs_cycles_and_never_a_wait(machine, records, module):
    m = machine(every=1000)
    for _ in range(module.RING + 3):
        m.probe.enter()
        m.probe.begin(m.worker, m.batch(1))
        for mark in (1, 2, 3):
            m.launch(500.0)
            m.probe.mark(mark)
        m.probe.end([1])
    assert m.now < 100.1
    m.flush()
    (block,) = records()
    assert block["dropped"]["ring"] == 3
    assert block["decode_cycles"] == module.RING + 3
    assert block["cycles"] == module.RING - 1
    assert block["event_ms"]["draft"] == [500.0] * (module.RING - 1)


def test_a_worker_that_raises_loses_only_its_own_cycle(machine, records):
    m = machine()
    for _ in range(3):
        m.cycle()
    m.probe.enter()
    m.probe.begin(m.worker, m.batch(1))
    m.launch(0.5)
    m.probe.mark(1)
    for _ in range(3):
        m.cycle()
    m.flush()
    (block,) = records()
    assert block["decode_cycles"] == 6
    assert len(m.log) == 2  # the canary, the block, and no word of an error
    assert max(block["event_ms"]["total"]) == 18.56


def test_the_cycle_before_one_that_raised_in_draft_is_dropped(machine, records):
    m = machine()
    for _ in range(3):
        m.cycle()
    m.probe.enter()
    m.probe.begin(m.worker, m.batch(1))
    m.idle(0.05)
    for _ in range(3):
        m.cycle()
    m.flush()
    (block,) = records()
    assert (block["decode_cycles"], block["dropped"]["gap"]) == (6, 1)
    assert max(block["event_ms"]["total"]) == 18.56


def test_without_a_mark_after_extend_the_phase_ends_at_the_return(machine, records):
    m = machine(every=1)
    m.probe.enter()
    m.probe.begin(m.worker, m.batch(1))
    m.launch(0.5)
    m.probe.mark(1)
    m.launch(15.8)
    m.probe.mark(2)
    m.probe.end([1])
    m.now += 0.1
    m.cycle()
    m.cycle()
    assert records()[0]["event_ms"]["extend"] == [0.0]


def test_requests_named_off_are_skipped_wholly(machine, records):
    m = machine()
    for _ in range(3):
        m.cycle()
    m.prefill()
    for _ in range(4):
        m.cycle(batch=m.batch(1, rid="p=0/7-"))
    m.prefill()
    for _ in range(3):
        m.cycle()
    m.flush()
    (block,) = records()
    assert block["skipped"] == 4
    assert block["decode_cycles"] == 6
    assert block["cycles"] == 3
    assert block["tokens"] == 12


def test_one_request_named_off_takes_its_whole_batch_out_while_it_is_in(machine, records):
    m = machine()

    def cycles(count, *rids):
        for _ in range(count):
            batch = m.batch(len(rids))
            for req, rid in zip(batch.reqs, rids, strict=True):
                req.rid = rid
            m.cycle([1] * len(rids), batch=batch)

    cycles(2, "a")
    cycles(3, "p=0/x", "a")
    cycles(2, "a")
    cycles(4, "a", "b")
    cycles(5, "a", "p=0/x")
    cycles(2, "a", "b")
    m.flush()
    one, two = records()
    assert (one["batch_size"], one["decode_cycles"], two["batch_size"], two["decode_cycles"]) == (1, 4, 2, 6)
    assert one["skipped"] + two["skipped"] == 8


def test_sync_waits_at_every_mark(machine, records):
    m = machine(every=1, sync=True)
    for _ in range(3):
        m.cycle()
    assert m.synchronised == 12
    assert records()[0]["host_ms"]["draft"] == [0.5]


def test_without_sync_the_probe_never_waits(machine, overlap):
    m = machine()
    scheduler = overlap(m)
    for _ in range(20):
        m.cycle()
    for _ in range(20):
        scheduler.cycle([1])
    assert m.synchronised == 0


def test_v2_phases_are_those_of_the_gpu_and_host_times_are_launches(machine, records, overlap):
    m = machine(every=4)
    scheduler = overlap(m)
    for _ in range(7):
        scheduler.cycle([1])
    (block,) = records()
    assert block["event_ms"]["draft"] == [0.5] * 4
    assert block["event_ms"]["verify"] == [15.8] * 4
    assert block["event_ms"]["extend"] == [1.26] * 4
    assert block["event_ms"]["other"] == [0.0] * 4
    assert block["host_ms"]["verify"] == [0.1] * 4


def test_step_counts_that_alternate_are_never_mixed(machine, records):
    # Phase times say which step count a cycle ran with; so do its counts.
    m = machine(every=12)
    for _ in range(3):
        for steps in (1, 1, 3, 3, 3):
            m.cycle([steps], steps=steps, draft=float(steps))
    one, three = records()
    assert (one["steps"], one["decode_cycles"], three["steps"], three["decode_cycles"]) == (1, 6, 3, 6)
    assert (one["correct_hist"], three["correct_hist"]) == ([0, 6], [0, 0, 0, 6])
    assert set(one["event_ms"]["draft"]) == {1.0}
    assert set(three["event_ms"]["draft"]) == {3.0}
    assert one["dropped"]["steps_change"] == 2
    assert three["dropped"]["steps_change"] == 2


def test_the_cycle_in_which_a_block_is_written_is_not_timed(machine, records):
    m = machine(every=5, timed=1)
    for _ in range(12):
        m.cycle()
    first, second = records()
    assert first["dropped"]["write"] == 0
    assert (second["dropped"]["write"], second["cycles"]) == (1, 4)


def test_an_outlier_is_measured_against_its_own_batch_size_and_steps(machine, records):
    m = machine(every=40)
    for _ in range(10):
        m.cycle([1])
    for _ in range(10):
        m.cycle([1] * 8, verify=200.0)
    for _ in range(10):
        m.cycle([1])
    m.flush()
    assert [block["dropped"]["gap"] for block in records()] == [0, 0]


def test_a_lasting_change_of_pace_is_no_gap_for_long(machine, records):
    m = machine(every=40)
    for number in range(42):
        m.cycle(verify=2.0 if number < 16 else 40.0)
    (block,) = records()
    assert block["dropped"]["gap"] == 8
    assert block["cycles"] == 32


def test_a_cycle_that_was_accounted_for_before_the_next_began_leaves_nothing_to_its_slot(machine, records, module):
    m = machine(every=1000, timed=1)
    # All of another step count than the one before, and not counted until their results go: then all at once, the last too.
    results = [LateResult() for _ in range(module.RING)]
    for number in range(module.RING):
        m.cycle(output=results[number], steps=1 + number % 2)
    results.clear()
    for _ in range(
        module.RING + 1
    ):  # the GPU falls behind; the slot of the last one above is that of the last of a full ring
        m.cycle(steps=2, overlap=True)
    m.flush()
    assert len(m.log) == 2  # the canary, the block, and no word of an error
    (block,) = [block for block in records() if block["steps"] == 2]
    assert block["decode_cycles"] == module.RING // 2 + module.RING + 1
    assert block["event_ms"]["total"] == pytest.approx([17.56] * module.RING)
