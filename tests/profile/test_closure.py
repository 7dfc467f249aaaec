from __future__ import annotations

import json
from pathlib import Path

import pytest

from eaglelab.profile.closure import check_closure, full_load
from eaglelab.profile.records import read_records
from eaglelab.profile.samples import RequestSample
from eaglelab.profile.summary import summarise

CASES = Path(__file__).parents[1] / "cases" / "profile"
BLOCK = json.loads((CASES / "rank0.jsonl").read_text().splitlines()[1])


def setting_of(**change):
    return summarise(read_records([json.dumps({**BLOCK, **change})])).settings[0]


def streamed(start_s, chunks, gap_s=0.1, ttft_s=0.5, **more):
    """A request of one token at first and `chunks` after that, `gap_s` apart."""
    gaps = (gap_s,) * len(chunks)
    return RequestSample(
        1 + sum(chunks), ttft_s, ttft_s + sum(gaps), gaps, chunk_tokens=(1, *chunks), start_s=start_s, **more
    )


def test_one_request_at_a_time_needs_no_start_times():
    seen = full_load([RequestSample(101, 0.5, 1.5), RequestSample(51, 0.5, 1.0)], 1)
    assert (seen.tokens, seen.seconds, seen.tok_s) == (150, 1.5, 100.0)


def test_only_the_time_with_all_requests_running_counts():
    # The first decodes from 0.5 to 2.5 s, the second from 1.5 to 3.5 s: both from 1.5 to 2.5 s.
    both = [streamed(0.0, [2] * 10 + [4] * 10), streamed(1.0, [3] * 10 + [6] * 10)]
    seen = full_load(both, 2)
    assert seen.seconds == pytest.approx(1.0)
    assert seen.tokens == pytest.approx(40 + 30)
    alone = full_load(both, 1)
    assert alone.seconds == pytest.approx(2.0)
    assert alone.tokens == pytest.approx(20 + 60)


def test_rounds_that_each_count_from_zero_do_not_run_together():
    rounds = [streamed(0.0, [2] * 10, round=number) for number in (0, 0, 1, 1)]
    seen = full_load(rounds, 2)
    assert (seen.tokens, seen.seconds) == pytest.approx((80, 2.0))
    assert full_load(rounds, 4) is None


def test_a_chunk_that_straddles_the_edge_counts_by_the_share_of_its_gap():
    seen = full_load([streamed(0.0, [10], gap_s=1.0), streamed(0.25, [8], gap_s=1.0)], 2)
    assert seen.seconds == pytest.approx(0.75)
    assert seen.tokens == pytest.approx(0.75 * 18)


def test_chunks_read_in_the_same_moment_lose_no_token():
    late = RequestSample(31, 0.5, 2.5, (0.0, 1.0, 0.0, 0.0, 1.0, 0.0), chunk_tokens=(1, 4, 6, 5, 5, 7, 3), start_s=0.0)
    seen = full_load([late], 1)
    assert (seen.tokens, seen.seconds) == pytest.approx((30, 2.0))
    half = full_load([late, RequestSample(11, 0.5, 1.5, start_s=0.0)], 2)
    assert half.tokens == pytest.approx(4 + 6 + 5 + 5 + 10)


def test_a_wait_for_anothers_prefill_is_no_time_in_which_tokens_came_to_be():
    # The second one's prefill ends at 1.0 s and held the first one up, whose next chunk comes a cycle later.
    first = RequestSample(25, 0.5, 1.3, (0.1, 0.1, 0.1, 0.3, 0.1, 0.1), chunk_tokens=(1, 4, 4, 4, 4, 4, 4), start_s=0.0)
    second = streamed(0.7, [2, 2, 2], ttft_s=0.3)
    seen = full_load([first, second], 2)
    assert (seen.tokens, seen.seconds) == pytest.approx((3 * 4 + 3 * 2, 0.3))


def test_without_chunk_sizes_tokens_are_spread_over_the_request():
    samples = [RequestSample(21, 0.5, 2.5, start_s=0.0), RequestSample(41, 0.5, 2.5, start_s=1.0)]
    assert full_load(samples, 2).tokens == pytest.approx(10 + 20)


def test_a_concurrency_that_never_was_gives_nothing():
    assert full_load([streamed(0.0, [2]), streamed(9.0, [2])], 2) is None
    assert full_load([RequestSample(21, 0.5, 2.5)] * 2, 2) is None
    assert full_load([RequestSample(1, 0.5, 0.5)], 1) is None


def test_a_cycle_that_adds_up_is_said_with_its_figures():
    # By the probe: 1.8 tokens / 18.75 ms = 96.0 tok/s.
    finding = check_closure(setting_of(), [RequestSample(97, 0.5, 1.5)])
    assert (finding.code, finding.severity) == ("closure", "ok")
    assert finding.numbers["probe_tok_s"] == pytest.approx(96.0)
    assert finding.numbers["clients_tok_s"] == pytest.approx(96.0)
    assert (
        "1 x 1.800 tokens / 18.750 ms = 96.0 tok/s by the probe, 96.0 tok/s by the clients (+0.0 %)" in finding.sentence
    )


@pytest.mark.parametrize(("tokens", "severity"), [(92, "alarm"), (93, "ok"), (102, "ok"), (103, "alarm")])
def test_more_than_five_per_cent_apart_is_an_alarm(tokens, severity):
    finding = check_closure(setting_of(), [RequestSample(tokens, 0.5, 1.5)])
    assert finding.severity == severity
    assert ("does not add up" in finding.sentence) == (severity == "alarm")


@pytest.mark.parametrize(("tokens", "severity"), [(86, "alarm"), (87, "ok")])
def test_a_mean_of_few_timed_cycles_may_be_off_by_chance(tokens, severity):
    """17.6, 18.9, 19.8, 18.7 ms: three standard errors of their mean are 7.2 % of it, so 12.2 % are allowed in all."""
    sampled = {**BLOCK["dropped"], "after_prefill": 0, "untimed": 1}
    finding = check_closure(setting_of(dropped=sampled), [RequestSample(tokens, 0.5, 1.5)])
    assert finding.severity == severity
    assert finding.numbers["tolerance"] == pytest.approx(0.1223, abs=1e-4)


def test_a_single_timed_cycle_closes_nothing():
    times = {
        "event_ms": {p: v[:1] for p, v in BLOCK["event_ms"].items()},
        "host_ms": {p: v[:1] for p, v in BLOCK["host_ms"].items()},
    }
    sampled = {**BLOCK["dropped"], "after_prefill": 0, "untimed": 4}
    setting = setting_of(cycles=1, kept_tokens=[2], dropped=sampled, **times)
    finding = check_closure(setting, [RequestSample(97, 0.5, 1.5)])
    assert (finding.severity, "one cycle of 5 was timed" in finding.sentence) == ("note", True)


def test_several_requests_running_are_compared_with_their_own_batch_size():
    setting = setting_of(batch_size=2, correct_hist=[4, 4, 2])
    samples = [streamed(0.0, [2] * 20, gap_s=1 / 48), streamed(0.0, [2] * 20, gap_s=1 / 48)]
    finding = check_closure(setting, samples)
    assert finding.severity == "ok"
    assert finding.numbers["clients_tok_s"] == pytest.approx(2 * 96)
    assert finding.numbers["batch"] == 2


def test_what_cannot_be_compared_is_a_note():
    assert check_closure(setting_of(), []).sentence.startswith("Closure could not be checked: the clients' tokens")
    none = {phase: [] for phase in BLOCK["event_ms"]}
    empty = setting_of(cycles=0, kept_tokens=[], event_ms=none, host_ms=none)
    assert check_closure(empty, [RequestSample(97, 0.5, 1.5)]).severity == "note"
