from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaglelab.profile.blocks import parse_blocks

CASES = Path(__file__).parents[1] / "cases" / "profile"
OLD = (CASES / "old-block.log").read_text().splitlines()
OURS = (CASES / "probe-block.log").read_text().splitlines()


def only(lines):
    (block,) = parse_blocks(lines)
    return block


def test_the_old_block_is_shown_as_printed_and_corrected():
    block = only(OLD)
    assert not block.ours
    assert (block.printed_accept_length, block.printed_tok_s) == (0.98, 31.0)
    assert block.accept_length == pytest.approx(1.98)
    assert block.tok_s == pytest.approx(62.38, abs=0.01)
    assert (block.text.counts["cycles"], block.text.counts["accepted"]) == (400, 394)
    assert block.accept_length_basis == "printed + 1: the block does not say that the bonus token is included"
    assert block.to_json()["corrected"]["accept_length"] == 1.98
    assert block.to_json()["corrected"]["tok_s"] == 62.4


def test_the_old_block_is_flagged_for_its_host_timers():
    warning, bonus = only(OLD).notes
    assert "the draft's GPU time is charged to verify" in warning
    assert "lacks the bonus token" in bonus


def test_shares_are_recomputed_from_the_times():
    block = only(OLD)
    assert block.shares == pytest.approx({"draft": 6.868, "verify": 89.634, "extend": 3.529, "other": 0}, abs=1e-3)
    assert block.text.shares == {"draft": 6.9, "verify": 89.6, "extend": 3.5}


def test_the_probes_own_block_stands_as_printed():
    block = only(OURS)
    assert block.ours
    assert block.accept_length == block.printed_accept_length == 1.75
    assert block.tok_s == block.printed_tok_s == 94.3
    assert block.notes == []
    assert block.text.counts == {"cycles": 100, "timed": 97, "steps": 2, "batch_size": 1, "rank": 0}
    assert block.text.host_ms == {"draft": 0.31, "verify": 16.2, "extend": 0.35, "other": 1.7}
    assert block.printed_ms["total"] == 18.56


@pytest.mark.parametrize(
    "change",
    [
        lambda line: f"[2025-03-14 08:30:05 TP0] {line}",
        lambda line: f"17-{line}",
        lambda line: f"sglang.log:17:{line}",
        lambda line: line.replace(" ms", "ms"),
        lambda line: line.replace(":", " ="),
        lambda line: line.replace(": ", ":"),
        lambda line: f"\x1b[32m{line}\x1b[0m",
        lambda line: line.lower().replace("eagle3_prof", "EAGLE3_PROF"),
        lambda line: line + "\r\n",
    ],
    ids=["logger", "grep -n", "grep -Hn", "unit attached", "equals", "tight colon", "colour", "lower case", "crlf"],
)
def test_the_old_block_is_read_in_other_spellings(change):
    block = only([change(line) for line in OLD])
    assert block.printed_ms == {"draft": 2.18, "verify": 28.45, "extend": 1.12, "other": 0.0, "total": 31.74}
    assert block.accept_length == pytest.approx(1.98)


def test_the_order_of_the_lines_does_not_matter():
    assert only([OLD[0], *reversed(OLD[1:])]).to_json() == only(OLD).to_json()


def test_a_block_on_one_line_is_read():
    assert only([" ".join(OLD)]).to_json() == only(OLD).to_json()


@pytest.mark.parametrize(
    "counts", ["cycles=400 accepted=394", "accepted: 394 cycles: 400", "(400 cycles, 394 accepted)"]
)
def test_a_count_stands_after_its_own_sign_or_before_its_word(counts):
    block = only([f"[t] EAGLE3_PROF {counts} total=31.74ms"])
    assert (block.text.counts["cycles"], block.text.counts["accepted"]) == (400, 394)
    assert block.total_ms == 31.74
    assert block.accept_length == pytest.approx(1.985)


def test_without_an_accept_length_the_counts_of_the_header_give_it():
    block = only([line for line in OLD if "Accept" not in line])
    assert block.printed_accept_length is None
    assert block.accept_length == pytest.approx(1.985)
    assert block.accept_length_basis.startswith("accepted / cycles + 1")


def test_without_counts_or_accept_length_there_is_none():
    block = only(["EAGLE3_PROF", "  Draft steps: 2.18 ms"])
    assert block.accept_length is None
    assert block.tok_s is None
    assert block.accept_length_basis == "not printed"


def test_an_old_block_that_already_counts_the_bonus_token_is_not_counted_up_again():
    block = only([line.replace("Accept len: 0.98", "Accept len: 1.98") for line in OLD])
    assert block.accept_length == 1.98
    assert "the bonus token is in it" in block.accept_length_basis


def test_a_probe_block_cut_off_before_its_accept_length_claims_none():
    block = only(OURS[:4])
    assert block.ours
    assert block.accept_length is None


def test_without_a_total_the_phases_are_added_up():
    block = only([line for line in OLD if "TOTAL" not in line])
    assert block.total_ms == pytest.approx(31.75)


def test_phases_that_do_not_add_up_are_told():
    block = only([line.replace("31.74", "41.74") for line in OLD])
    assert "the phases add up to 31.750 ms, TOTAL says 41.740 ms" in block.notes


def test_sglangs_own_lines_between_those_of_a_block_are_not_taken_for_it():
    decode = "[2025-03-14 08:30:05 TP0] Decode batch. #running-req: 1, accept len: 2.90, gen throughput (token/s): 9.0"
    block = only([*OLD[:3], decode, "Avail mem=10 GB, total: 79, other: 3", *OLD[3:]])
    assert block.to_json()["printed"] == only(OLD).to_json()["printed"]


def test_interleaved_blocks_of_two_ranks_are_told_apart_by_their_tags():
    ranks = [[f"[TP{rank}] {line.replace('28.45', f'28.4{rank}')}" for line in OLD] for rank in (0, 1)]
    blocks = parse_blocks(line for pair in zip(*ranks, strict=True) for line in pair)
    assert [(block.text.counts["rank"], block.printed_ms["verify"]) for block in blocks] == [(0, 28.40), (1, 28.41)]


def test_interleaved_blocks_without_tags_are_told():
    block = only([OLD[0], *(line for line in OLD[1:] for _ in range(2))])
    assert any("printed twice" in text for text in block.notes)
    assert block.printed_ms["verify"] == 28.45


def test_several_blocks_come_in_the_order_of_the_log():
    blocks = parse_blocks([*OLD, *OURS, *OLD])
    assert [(block.text.line, block.ours) for block in blocks] == [(1, False), (9, True), (17, False)]


def test_a_line_long_after_the_block_does_not_belong_to_it():
    block = only([*OLD[:7], *["something else"] * 25, "Eff tok/s: 5.0"])
    assert block.printed_tok_s is None


@pytest.mark.parametrize(
    "line",
    ["EAGLE3_PROFILE=1", "EAGLE3_PROF probe 1.0.0 active: class=EAGLEWorker rank=0/1", "EAGLE3_PROF probe is off: x"],
)
def test_lines_that_only_mention_the_profiler_are_no_block(line):
    assert parse_blocks([line, "Draft steps: 1 ms"]) == []


@given(
    st.lists(
        st.one_of(st.text(max_size=60), st.sampled_from([*OLD, *OURS, "EAGLE3_PROF", "TOTAL: 0.00 ms"])), max_size=20
    )
)
def test_no_text_breaks_the_reader(lines):
    for block in parse_blocks(lines):
        block.to_json()
