from __future__ import annotations

from pathlib import Path

import pytest

from eaglelab.diagnosis import diagnose, facts_of_log, facts_of_run
from eaglelab.profile.logfile import read_log
from eaglelab.runs.evidence import RunEvidence

BLOCK = """\
============================================================
[EAGLE3_PROF] (100 cycles, accepted 98)
  Draft steps    :    2.18 ms  ( 6.9%)
  Target verify  :   28.45 ms  (89.6%)
  Draft re-extend:    1.12 ms  ( 3.5%)
  TOTAL          :   31.74 ms
  Accept len     :    0.98
  Eff tok/s      :    31.0
============================================================
"""
START = (
    "[2026-10-22 10:27:00 TP0] server_args=ServerArgs(model_path='/m/t', speculative_algorithm='EAGLE3', "
    "speculative_num_steps={steps}, speculative_eagle_topk=1, speculative_num_draft_tokens={tokens}, tp_size={tp}, "
    "disable_overlap_schedule=False, cuda_graph_max_bs=2)\n"
)
DECODE = (
    "[2026-10-22 10:28:{second:02d} TP0] Decode batch. #running-req: {batch}, #token: 108, token usage: 0.00, "
    "accept len: {length}, accept rate: 0.54, cuda graph: {graph}, gen throughput (token/s): 60.0, #queue-req: 0, \n"
)


def lines(batch: int, length: float, graph: bool) -> str:
    return "".join(DECODE.format(second=second, batch=batch, length=length, graph=graph) for second in range(30))


def codes(tmp_path: Path, text: str) -> dict[str, str]:
    log = tmp_path / "server.log"
    log.write_text(text, encoding="utf-8")
    return {each.code: each.sentence for each in diagnose(facts_of_log(read_log(log)))}


def test_a_hand_made_block_is_told_that_it_left_out_the_bonus_token(tmp_path: Path) -> None:
    found = codes(tmp_path, BLOCK)
    assert "0.98, leaves out the bonus token" in found["accept-length-without-bonus"]
    assert "broken-draft" not in found, "with the bonus it is 1.98"
    assert "phases-by-host-timers" in found


def test_decode_lines_of_a_broken_draft_without_a_graph_are_both_told(tmp_path: Path) -> None:
    found = codes(tmp_path, START.format(steps=3, tokens=4, tp=1) + lines(8, 1.0, False))
    assert {"broken-draft", "graph-above-ceiling"} <= found.keys()
    assert "8 is above the largest captured batch, 2" in found["graph-above-ceiling"]


def test_decode_lines_in_order_give_only_what_the_accept_rate_means(tmp_path: Path) -> None:
    text = "sglang version 0.5.9\n" + START.format(steps=3, tokens=4, tp=1) + lines(1, 2.6, True)
    found = codes(tmp_path, text)
    assert found.keys() == {"definitions-differ"}
    assert "accept length / draft tokens" in found["definitions-differ"]


def test_a_chain_that_was_cut_is_seen_in_the_arguments(tmp_path: Path) -> None:
    found = codes(tmp_path, START.format(steps=2, tokens=2, tp=1))
    assert "Only 2 draft tokens are verified of a chain of 2 steps" in found["chain-cut-short"]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (
            "[2026-10-22 10:29:00 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 1",
            "requests-thrown-back",
        ),
        (
            "[2026-10-22 10:29:00 TP0] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
            "memory-ran-out",
        ),
        ("[2026-10-22 10:29:00 TP0] Setup Custom allreduce failed with no P2P access", "own-all-reduce-off"),
        (
            "[2026-10-22 10:29:00] Overriding the draft model's max_position_embeddings to 131072.",
            "draft-positions-raised",
        ),
        (
            "[2026-10-22 10:29:00] speculative_num_draft_tokens is adjusted to speculative_num_steps + 1",
            "draft-tokens-adjusted",
        ),
        ("[2026-10-22 10:29:00 TP0] Capture cuda graph failed: CUDA error", "graph-capture-failed"),
        ("[2026-10-22 10:29:00] speculative_adaptive disabled: it needs topk=1", "several-step-counts-refused"),
        (
            "[2026-10-22 10:29:00] context_length (9) is greater than the derived context_length",
            "context-length-stretched",
        ),
        ("[2026-10-22 10:29:00] Cuda graph is disabled because of a memory limit", "graph-disabled"),
    ],
)
def test_lines_that_explain_a_slow_server_become_diagnoses_with_their_place(
    tmp_path: Path, line: str, code: str
) -> None:
    log = tmp_path / "server.log"
    log.write_text(START.format(steps=2, tokens=3, tp=4) + f"{line}\n", encoding="utf-8")
    found = {each.code: each for each in diagnose(facts_of_log(read_log(log)))}
    assert any("line 2 of the log" in line for line in found[code].evidence)


def test_what_an_earlier_server_in_the_log_warned_of_is_not_held_against_the_last(tmp_path: Path) -> None:
    start = START.format(steps=2, tokens=3, tp=1)
    assert "requests-thrown-back" not in codes(
        tmp_path, f"{start}[2026-10-22 10:29:00 TP0] KV cache pool is full. Retract requests.\n{start}"
    )


def test_the_log_of_a_run_adds_what_it_warns_of(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("[2026-10-22 10:29:00 TP0] KV cache pool is full. Retract requests.\n", encoding="utf-8")
    run = RunEvidence("r", "sim", "sweep", tmp_path, finished=True)
    assert "requests-thrown-back" in {each.code for each in diagnose(facts_of_run(run, read_log(log)))}


def test_an_empty_log_says_nothing(tmp_path: Path) -> None:
    assert codes(tmp_path, "") == {}
