from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaglelab.profile.decode_lines import Canary, decode_figures, parse_canary, parse_decode_line

CASES = Path(__file__).parents[1] / "cases" / "profile"
LINES = [json.loads(line) for line in (CASES / "decode_lines.jsonl").read_text(encoding="utf-8").splitlines()]


def test_there_is_a_line_of_every_known_shape():
    assert len(LINES) == 18


@pytest.mark.parametrize("case", LINES, ids=[case["release"] for case in LINES])
def test_a_real_decode_line_gives_exactly_what_it_says(case):
    parsed = parse_decode_line(case["line"])
    assert {name: value for name, value in asdict(parsed).items() if value is not None} == case["says"]
    assert parsed.speculative == ("accept_length" in case["says"])


@pytest.mark.parametrize("case", LINES, ids=[case["release"] for case in LINES])
def test_the_quick_way_to_the_two_figures_gives_what_the_whole_parser_gives(case):
    parsed = parse_decode_line(case["line"])
    assert decode_figures(case["line"].encode()) == (parsed.throughput, parsed.accept_length)


def test_colour_does_not_hide_a_value():
    line = "\x1b[32m[2026-07-16 08:00:43 TP0] Decode batch, #running-req: 1, accept len: \x1b[1m1.50\x1b[0m, x: 1"
    assert parse_decode_line(line).accept_length == 1.5


def test_a_decode_line_inside_json_is_read():
    line = '{"message": "Decode batch, #running-req: 3, gen throughput (token/s): 58.50"}'
    assert parse_decode_line(line).throughput == 58.5
    assert parse_decode_line(line).running_requests == 3


def test_a_block_accept_len_is_not_the_accept_len():
    line = (
        "Decode batch, #running-req: 1, block accept len: 3.00, gen throughput (token/s): 9.00, fwd occupancy: 93.00%"
    )
    assert parse_decode_line(line).accept_length is None


def test_moe_and_attention_ranks_are_not_taken_for_the_data_parallel_rank():
    parsed = parse_decode_line("[2026-09-24 01:50:43 DP1 PP0 ATTN_CP0 MOE_DP5 TP2 EP0] Decode batch, #running-req: 1")
    assert (parsed.dp_rank, parsed.tp_rank) == (1, 2)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[2026-07-16 08:00:43] Prefill batch, #new-seq: 1, #running-req: 0, input throughput (token/s): 5.0",
        "Decode batches only: above this the caller keeps the general kernel",
    ],
)
def test_other_lines_are_no_decode_lines(line):
    assert parse_decode_line(line) is None


def test_the_canary_is_read_whatever_stands_before_it():
    line = "[TP0] EAGLE3_PROF probe 1.0.0 active: class=EAGLEWorkerV2 rank=3/8 sglang=0.5.12.post1 clock=cuda-events\n"
    assert parse_canary(line) == Canary("1.0.0", "EAGLEWorkerV2", 3, 8, "0.5.12.post1", "cuda-events")


def test_other_lines_are_no_canary():
    assert parse_canary("EAGLE3_PROF (400 cycles, 394 accepted)") is None


@given(st.text())
def test_no_text_breaks_the_parser(text):
    parse_decode_line(text)
    parse_decode_line(f"Decode batch, #running-req: {text}, gen throughput (token/s): {text}")
    parse_canary(f"EAGLE3_PROF probe {text}")
