"""What a cycle asks of CUDA: between two writes nothing but its four event records."""

from __future__ import annotations

from types import SimpleNamespace

import pytest


class Counted:
    """Counts what is asked of the events of a probe's ring."""

    def __init__(self, probe):
        self.calls = {"record": 0, "query": 0, "elapsed_time": 0}
        for cycle in probe._ring:
            for event in cycle.events:
                for name in self.calls:
                    setattr(event, name, self._counting(name, getattr(event, name)))
            cycle.records = [event.record for event in cycle.events]

    def _counting(self, name, method):
        def call(*args):
            self.calls[name] += 1
            return method(*args)

        return call

    def taken(self):
        """Since the last time."""
        calls, self.calls = self.calls, dict.fromkeys(self.calls, 0)
        return tuple(calls.values())


@pytest.mark.parametrize("v2", [False, True], ids=["v1", "v2"])
def test_between_two_writes_a_cycle_asks_cuda_for_four_records_and_no_more(machine, overlap, v2):
    m = machine(every=50)
    cycle = overlap(m).cycle if v2 else m.cycle
    cycle([1])
    counted = Counted(m.probe)
    for _ in range(49):
        cycle([1])
    assert counted.taken() == (4 * 49, 0, 0)


def test_a_write_reads_four_times_a_cycle_and_queries_no_more_than_the_newest(machine, records):
    m = machine(every=50)
    m.cycle()
    counted = Counted(m.probe)
    for _ in range(50):
        m.cycle()
    recorded, queried, read = counted.taken()
    assert (recorded, read) == (4 * 50, 4 * 50)
    assert queried <= 4 + 2 * read  # the fake's elapsed_time asks both of its events, as torch's does
    assert [block["cycles"] for block in records()] == [50]


def test_blocks_longer_than_the_ring_are_read_in_parts_and_written_whole(machine, records, module):
    m = machine(every=300)
    for number in range(303):
        m.cycle([number % 3])
    (block,) = records()
    assert block["decode_cycles"] == 300
    # The cycles in which a part was read are not timed.
    assert (block["dropped"]["ring"], block["dropped"]["write"]) == (0, 300 // module.GATHER)
    assert block["correct_hist"] == [100, 100, 100]


def test_events_follow_the_worker_to_another_stream(machine):
    m = machine()
    handles = {id(m.stream): 7}
    m.torch._C = SimpleNamespace(_cuda_getCurrentRawStream=lambda _device: handles[id(m.stream)])
    m.torch.cuda.current_device = lambda: 0
    asked = []
    m.torch.cuda.current_stream = lambda: asked.append(m.stream) or m.stream
    for _ in range(5):
        m.cycle()
    assert len(asked) == 1  # torch makes a new object each time
    m.stream = object()
    handles[id(m.stream)] = 9
    for _ in range(5):
        m.cycle()  # the fake's events refuse a stream that is not the current one
    assert len(asked) == 2
