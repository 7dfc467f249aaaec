from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaglelab.profile.records import KEPT_PROBLEMS, Asked, RecordError, Records, parse_record, read_records

CASES = Path(__file__).parents[1] / "cases" / "profile"
START, BLOCK = (json.loads(line) for line in (CASES / "rank0.jsonl").read_text().splitlines())


def test_start_and_block_are_read_with_every_field():
    records = read_records((CASES / "rank0.jsonl").read_bytes().splitlines())
    assert records.problems == []
    (start,), (block,) = records.starts, records.blocks
    assert (start.identity.worker, start.identity.rank, start.identity.world) == ("EAGLEWorker", 0, 2)
    assert (start.identity.sglang, start.identity.probe, start.identity.pid) == ("0.5.9", "1.0.0", 100)
    assert (block.steps, block.batch_size, block.decode_cycles, block.cycles, block.tokens) == (2, 1, 5, 4, 9)
    assert block.correct_hist == (2, 2, 1)
    assert block.kept_tokens == (2, 1, 3, 2)
    assert block.dropped["after_prefill"] == 1
    assert block.event_ms["draft"] == (0.4, 0.6, 0.5, 0.5)
    assert block.host_ms["extend"] == (0.35, 0.35, 0.35, 0.35)
    assert block.graph is None


def test_graph_and_eager_cycles_are_read_where_the_worker_told_them():
    block = parse_record(json.dumps({**BLOCK, "graph": {"cuda_graph": 4, "eager": 1}}))
    assert block.graph == {"cuda_graph": 4, "eager": 1}


def test_what_the_requests_asked_for_is_read():
    asked = [
        {"wanted": 2, "active": 2, "cycles": 3, "why": None},
        {"wanted": None, "active": 2, "cycles": 2, "why": "requests differ"},
    ]
    records = read_records([json.dumps({**BLOCK, "steps_from_rid": asked}), json.dumps(BLOCK)])
    assert records.problems == []
    assert records.blocks[0].steps_from_rid == (Asked(2, 2, 3, None), Asked(None, 2, 2, "requests differ"))
    assert records.blocks[1].steps_from_rid is None


def test_asked_cycles_that_contradict_the_block_are_told_and_the_block_kept():
    asked = [{"wanted": 2, "active": 2, "cycles": 3, "why": None}]
    records = read_records([json.dumps({**BLOCK, "steps_from_rid": asked})])
    assert len(records.blocks) == 1
    assert str(records.problems[0]) == "line 1: steps_from_rid counts 3 cycles, the block 5; block kept"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"schema": 2}, "schema 2 is not known"),
        ({"kind": "pause"}, "kind 'pause' is not known"),
        ({"steps": -1}, "steps is -1"),
        ({"steps": True}, "steps is True"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"kept_tokens": [1]}, "kept_tokens has 1 values for 4 cycles"),
        ({"event_ms": {}}, "draft is missing"),
        ({"event_ms": {**BLOCK["event_ms"], "verify": [1.0]}}, r"event_ms.verify has 1 values for 4 cycles"),
        ({"host_ms": {**BLOCK["host_ms"], "draft": [1.0, 1.0, 1.0, float("nan")]}}, "not a finite number"),
        ({"host_ms": {**BLOCK["host_ms"], "draft": [1.0, 1.0, 1.0, 10**400]}}, "too large"),
        ({"correct_hist": "no"}, "correct_hist is missing or not a list"),
        ({"dropped": []}, "dropped is missing or not an object"),
        ({"class": None}, "class is None"),
        ({"graph": 5}, "graph is missing or not an object"),
        ({"graph": {"cuda_graph": 5}}, "graph.eager is None"),
        ({"steps_from_rid": None}, "steps_from_rid is missing or not a list"),
        ({"steps_from_rid": [2]}, "steps_from_rid has an entry 2"),
        ({"steps_from_rid": [{"wanted": "2", "active": 2, "cycles": 5}]}, "steps_from_rid.wanted is '2'"),
        ({"steps_from_rid": [{"wanted": 2, "active": 2}]}, "steps_from_rid.cycles is None"),
        ({"steps_from_rid": [{"wanted": 2, "active": 2, "cycles": 5, "why": 1}]}, "steps_from_rid.why is 1"),
    ],
)
def test_a_record_that_breaks_the_schema_is_refused_with_the_reason(change, reason):
    with pytest.raises(RecordError, match=reason):
        parse_record(json.dumps({**BLOCK, **change}))


def test_bad_lines_become_problems_and_the_others_are_still_read():
    lines = [json.dumps(START), "", '{"kind":"block","sch', "[]", b"\xff\xfe{", json.dumps(BLOCK)]
    records = read_records(lines)
    assert len(records.starts) == len(records.blocks) == 1
    assert [str(problem) for problem in records.problems] == [
        "line 3: not JSON (cut short?)",
        "line 4: not a JSON object",
        "line 5: not JSON (cut short?)",
    ]


def test_of_many_bad_lines_the_first_are_kept_and_the_rest_counted():
    records = read_records(["{"] * (KEPT_PROBLEMS + 3))
    assert (len(records.problems), records.more_problems) == (KEPT_PROBLEMS, 3)
    assert records.told()[-1] == "and 3 more lines like these"


def test_with_a_limit_the_newest_blocks_are_kept_and_the_rest_counted():
    records = Records(limit=2)
    for steps in (1, 2, 3):
        records.add(json.dumps(START), 1)
        records.add(json.dumps({**BLOCK, "steps": steps}), 1)
    assert ([block.steps for block in records.blocks], records.left_out, len(records.starts)) == ([2, 3], 1, 2)


def test_a_histogram_that_contradicts_the_cycles_is_told_and_the_block_kept():
    records = read_records([json.dumps({**BLOCK, "correct_hist": [2, 2, 2]})])
    assert len(records.blocks) == 1
    assert "counts 6 request-cycles, the cycles say 5" in str(records.problems[0])


def test_a_cycle_of_unknown_count_is_no_contradiction():
    block = {**BLOCK, "unknown": 1, "correct_hist": [2, 1, 1], "kept_tokens": [2, None, 3, 2]}
    records = read_records([json.dumps(block)])
    assert records.problems == []
    assert records.blocks[0].kept_tokens == (2, None, 3, 2)


@given(st.one_of(st.binary(max_size=200), st.text(max_size=200)))
def test_no_line_breaks_the_reader(line):
    records = read_records([line])
    assert len(records.problems) == (1 if line.strip() else 0)


@given(
    st.sampled_from(sorted(BLOCK)),
    st.recursive(st.none() | st.integers() | st.text(max_size=5), st.lists, max_leaves=4),
)
def test_no_field_value_breaks_the_reader(key, value):
    read_records([json.dumps({**BLOCK, key: value})])
