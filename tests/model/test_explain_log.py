from __future__ import annotations

from pathlib import Path

import pytest

from eaglelab.model.from_log import Reference, explain_log
from eaglelab.profile.blocks import parse_blocks
from eaglelab.profile.decode_groups import DecodeGroup
from eaglelab.profile.log_report import LogReport
from eaglelab.profile.stats import describe

PROFILE_CASES = Path(__file__).parents[1] / "cases/profile"


def log(
    lines: list[str] | None = None, *, decode: tuple[DecodeGroup, ...] = (), starts: tuple[dict[str, str], ...] = ()
) -> LogReport:
    blocks = tuple(parse_blocks(lines or []))
    return LogReport(0, None, None, starts, (), blocks, len(blocks), decode, 0, 0, None, ())


def group(start: int, running: int, tok_s: float, accept_length: float | None, lines: int = 10) -> DecodeGroup:
    return DecodeGroup(
        start,
        running,
        lines,
        describe([tok_s] * lines),
        None if accept_length is None else describe([accept_length] * lines),
        0,
    )


OLD = (PROFILE_CASES / "old-block.log").read_text(encoding="utf-8").splitlines()


def test_the_block_of_old_is_explained_as_what_it_was() -> None:
    (explained,) = explain_log(log(OLD), reference=Reference(60.0, "10 steps"))
    assert explained.sentences[:3] == (
        "The printed accept length 0.98 leaves out the bonus token that every verify yields: it is 1.98 tokens a verify, "
        "and 62.4 tok/s instead of the printed 31.0.",
        "By host timers verify takes 28.45 of 31.74 ms (89.6 %) and draft 2.18 ms (6.9 %). Host timers charge the draft's "
        "GPU time to verify: the draft's share is at least 6.9 %, verify's at most 89.6 %, and that the draft is no "
        "bottleneck does not follow. Measure with the probe's CUDA events.",
        "Against 60.0 tok/s (10 steps) that is 4.0 % more: no regression.",
    )
    (point,) = explained.points
    assert point.steps is None
    assert point.tok_s == pytest.approx(62.38, abs=0.01)
    assert point.measured_accept_length == pytest.approx(1.98)
    assert explained.clock == "host"


def test_its_levers_are_those_that_host_timers_allow() -> None:
    (explained,) = explain_log(log(OLD))
    by_code = {lever.code: lever for lever in explained.levers}
    assert set(by_code) == {"free_draft", "zero_overhead"}
    assert by_code["free_draft"].bound == "at least"
    assert by_code["free_draft"].tok_s == pytest.approx(1000 * 1.98 / (31.74 - 2.18))


def test_its_levers_grow_with_what_the_log_says_of_steps() -> None:
    (explained,) = explain_log(log(OLD, starts=({"speculative_num_steps": "10"},)))
    assert explained.points[0].steps == 10
    assert {lever.code for lever in explained.levers} == {"free_draft", "perfect_draft", "zero_overhead"}


def test_a_drop_against_the_reference_is_a_regression() -> None:
    (explained,) = explain_log(log(OLD), reference=Reference(71.0, "5 steps"))
    assert "12.1 % less: a regression." in explained.sentences[2]


def test_a_baseline_in_the_same_log_gives_the_break_even() -> None:
    (explained,) = explain_log(log(OLD, decode=(group(1, 1, 89.0, None),)))
    assert explained.off
    assert explained.break_even == pytest.approx(31.74 * 89 / 1000)
    assert (
        "A plain step takes 11.24 ms: a cycle must yield 2.82 tokens to break even, so it does not pay: turn speculation off."
        in explained.sentences
    )


def test_the_probes_own_block_is_explained_with_both_clocks() -> None:
    lines = (PROFILE_CASES / "probe-block.log").read_text(encoding="utf-8").splitlines()
    (explained,) = explain_log(log(lines))
    assert explained.clock == "events"
    assert any("By GPU time verify is the largest part" in sentence for sentence in explained.sentences)
    assert "free_extend" in {lever.code for lever in explained.levers}


def test_decode_lines_of_several_starts_are_step_counts_of_one_curve() -> None:
    starts = ({"speculative_num_steps": "2"}, {"speculative_num_steps": "10"}, {})
    decode = (group(1, 1, 94.0, 1.745), group(2, 1, 60.0, 1.989), group(3, 1, 89.0, None), group(1, 2, 170.0, 1.75))
    one, two = explain_log(log(decode=decode, starts=starts))
    assert one.clock == "clients"
    assert one.best_measured == 2
    assert one.baseline_tok_s == 89.0
    assert one.break_even == pytest.approx(1.745 * 89 / 94)
    assert [point.steps for point in two.points] == [2]
    assert two.points[0].measured_cycle_ms == pytest.approx(2 * 1000 * 1.75 / 170)


def test_step_counts_that_change_at_run_time_are_not_taken_for_one() -> None:
    starts = ({"speculative_num_steps": "5", "speculative_adaptive": "True"},)
    (explained,) = explain_log(log(decode=(group(1, 1, 94.0, 1.745),), starts=starts))
    assert explained.points[0].steps is None
    assert any("does not name the step count" in note for note in explained.notes)


@pytest.mark.parametrize("steps", ["0", "101", "999999999999999", "\u0665", "None"])
def test_a_step_count_that_no_server_runs_is_no_step_count(steps: str) -> None:
    header = [f"EAGLE3_PROF (400 cycles, 394 accepted, steps={steps})", *OLD[1:]]
    (block,) = explain_log(log(header))
    (decoded,) = explain_log(log(decode=(group(1, 1, 94.0, 1.745),), starts=({"speculative_num_steps": steps},)))
    assert block.points[0].steps is None or steps == "\u0665"
    assert decoded.points[0].steps is None or steps == "\u0665"


def probed(steps: int, batch: int, cycles: int, total: float, length: float) -> list[str]:
    return [
        f"EAGLE3_PROF ({cycles} cycles, 0 accepted, {cycles} timed, steps={steps} bs={batch}, gpu time by cuda events)",
        f"Draft steps: {total / 10} ms",
        f"Target verify: {total * 0.8} ms",
        f"Draft re-extend: {total / 10} ms",
        "Other overhead: 0.0 ms",
        f"TOTAL: {total} ms",
        f"Accept len: {length} (bonus token included)",
    ]


def test_blocks_of_one_setting_are_pooled_by_their_cycles() -> None:
    (explained,) = explain_log(log([*probed(2, 1, 300, 18.0, 1.8), *probed(2, 1, 100, 20.0, 1.6)]))
    two = explained.point(2)
    assert two is not None
    assert two.measured_cycle_ms == pytest.approx(18.5)
    assert two.measured_accept_length == pytest.approx(1.75)


def test_batch_sizes_that_requests_only_pass_through_are_left_out() -> None:
    lines = [*probed(2, 4, 300, 18.0, 1.8), *probed(2, 3, 20, 20.0, 1.2), *probed(2, 1, 12, 20.0, 2.9)]
    assert [found.batch for found in explain_log(log(lines))] == [4]
    assert [found.batch for found in explain_log(log(lines[7:]))] == [1, 3]


def test_a_reference_is_for_its_own_batch_size_only() -> None:
    lines = probed(2, 4, 300, 18.0, 1.8)
    (other,) = explain_log(log(lines), reference=Reference(60.0, "10 steps"))
    (same,) = explain_log(log(lines), reference=Reference(600.0, "2 steps", batch=4))
    assert not any("Against" in sentence for sentence in other.sentences)
    assert "Against 600.0 tok/s (2 steps) that is 33.3 % less: a regression." in same.sentences


def test_a_block_of_no_request_explains_nothing() -> None:
    assert explain_log(log([f"{OLD[0]} bs=0", *OLD[1:]])) == ()


def test_a_log_without_speculation_explains_nothing() -> None:
    assert explain_log(log(decode=(group(1, 1, 89.0, None),))) == ()
    assert explain_log(log()) == ()
