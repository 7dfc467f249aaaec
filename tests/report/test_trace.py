from __future__ import annotations

import gzip
import itertools
import json
import tracemalloc

import pytest
from bundles import BEGAN, record

from eaglelab.errors import InputError
from eaglelab.report.trace import Traced, trace_events, write_trace


def lines(*records):
    return [json.dumps(each).encode() for each in records]


def traced(*records):
    return list(trace_events(lines(*records), Traced()))


def of(events, kind, **fields):
    return [event for event in events if event["ph"] == kind and all(event[key] == fields[key] for key in fields)]


def written(tmp_path, *records, name="t.json"):
    path = tmp_path / name
    write_trace(lines(*records), path, {"report": "r"})
    return path


# What "Trace Event Format" asks of the events that are used here.
NEEDED = {
    "X": {"name": str, "ts": float, "dur": float, "pid": int, "tid": int, "cat": str},
    "C": {"name": str, "ts": float, "pid": int, "args": dict},
    "M": {"name": str, "pid": int, "args": dict},
}


def test_the_file_is_a_trace_as_the_format_wants_it(tmp_path):
    every = [record(rank=rank, world=2, number=number) for number in range(3) for rank in (0, 1)]
    trace = json.loads(written(tmp_path, *every).read_text())
    assert trace["displayTimeUnit"] in ("ms", "ns")
    assert trace["otherData"] == {"report": "r"}
    for event in trace["traceEvents"]:
        for field, kind in NEEDED[event["ph"]].items():
            assert isinstance(event[field], (int, float) if kind is float else kind), event
        assert event.get("ts", 0) >= 0
        assert event.get("dur", 0) >= 0
    for counter in of(trace["traceEvents"], "C"):
        assert all(isinstance(value, int | float) for value in counter["args"].values())


def test_each_rank_is_a_process_with_its_name_and_its_place():
    events = traced(record(rank=0, world=2), record(rank=1, world=2), record(rank=0, world=2, number=1))
    names = {event["pid"]: event["args"]["name"] for event in of(events, "M", name="process_name")}
    assert names == {1: "rank 0 of 2 (EAGLEWorkerV2, pid 4000)", 2: "rank 1 of 2 (EAGLEWorkerV2, pid 4001)"}
    order = {event["pid"]: event["args"]["sort_index"] for event in of(events, "M", name="process_sort_index")}
    assert order == {1: 0, 2: 1}


def test_a_restarted_server_is_another_process():
    events = traced(record(), record(pid=9, number=1))
    assert len(of(events, "M", name="process_name")) == 2


def test_a_cycle_holds_its_phases_in_order_and_is_as_long_as_they_are():
    events = traced(record(2, cycles=1))
    (cycle,) = of(events, "X", cat="cycle")
    phases = of(events, "X", cat="phase")
    assert [phase["name"] for phase in phases] == ["draft", "verify", "extend", "other"]
    assert [phase["dur"] for phase in phases] == pytest.approx([600, 15400, 1200, 400])
    assert cycle["dur"] == pytest.approx(17600)
    assert phases[0]["ts"] == cycle["ts"]
    for one, other in itertools.pairwise(phases):
        assert one["ts"] + one["dur"] == pytest.approx(other["ts"], abs=1e-3)
    assert phases[-1]["ts"] + phases[-1]["dur"] == pytest.approx(cycle["ts"] + cycle["dur"], abs=1e-3)
    assert cycle["args"] == {"steps": 2, "batch_size": 1, "tokens": 1}


def test_every_event_lies_within_the_one_that_holds_it_though_times_are_rounded():
    odd = record(2, cycles=50)
    odd["event_ms"] = {name: [0.1234567 + 0.00031 * n for n in range(50)] for name in odd["event_ms"]}
    events = traced(odd)
    cycles = of(events, "X", cat="cycle")
    for cycle in cycles:
        end = round(cycle["ts"] + cycle["dur"], 3)
        inside = [phase for phase in of(events, "X", cat="phase") if cycle["ts"] <= phase["ts"] < end]
        assert len(inside) == 4
        assert max(round(phase["ts"] + phase["dur"], 3) for phase in inside) <= end


def test_a_block_ends_when_it_was_written_and_a_gap_stays_a_gap():
    # 20 cycles of 17.6 ms are 352 ms; the second block was written 2 s after the first.
    events = traced(record(), record(number=2))
    first, second = of(events, "X", cat="block")
    assert (first["ts"], first["dur"]) == (0.0, pytest.approx(352_000))
    assert second["ts"] + second["dur"] == pytest.approx(2_352_000, abs=1)


def test_more_gpu_time_than_wall_time_follows_on_and_never_overlaps():
    events = traced(*(record(time=BEGAN + 0.1 * number) for number in range(4)))
    for one, other in itertools.pairwise(of(events, "X", cat="block")):
        assert other["ts"] == pytest.approx(one["ts"] + one["dur"], abs=1e-3)


def test_a_rank_that_began_before_the_first_block_begins_at_zero():
    events = traced(record(), record(rank=1, time=BEGAN + 9))
    assert of(events, "X", pid=2)[0]["ts"] == 0


def test_tokens_a_verify_are_a_counter_with_the_bonus_token():
    (counter,) = of(traced(record(2)), "C")
    assert counter["args"] == {"tokens per verify": 1.9}


def test_a_name_that_ends_with_gz_is_packed_and_gives_the_same_bytes_again(tmp_path):
    path = written(tmp_path, record(), name="t.json.gz")
    first = path.read_bytes()
    assert json.loads(gzip.decompress(first))["traceEvents"]
    assert written(tmp_path, record(), name="t.json.gz").read_bytes() == first


def test_what_is_no_record_is_passed_over_and_a_damaged_one_is_counted(tmp_path):
    found = [b"[2026-11-30 00:00:00] Decode batch", *lines(record()), b'{"schema": 1, "kind": "block"', b'{"a": 1}']
    done = write_trace(found, tmp_path / "t.json", {})
    assert (done.blocks, done.cycles, done.left_out) == (1, 20, 1)


@pytest.mark.parametrize("found", [[], [b"no record"], lines(record(cycles=0, kept_tokens=[]))])
def test_no_cycle_is_refused_and_leaves_no_file(tmp_path, found):
    with pytest.raises(InputError, match="no cycle for a trace"):
        write_trace(found, tmp_path / "t.json", {})
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_said(tmp_path):
    with pytest.raises(InputError, match="cannot be written"):
        write_trace(lines(record()), tmp_path / "no" / "t.json", {})


def test_memory_does_not_hold_the_trace(tmp_path):
    block = json.dumps(record()).encode()
    tracemalloc.start()
    write_trace((block for _ in range(200)), tmp_path / "t.json", {})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < (tmp_path / "t.json").stat().st_size / 3
