from __future__ import annotations

import json

import pytest

from eaglelab.profile.bench import BENCH_DEFINITIONS, BenchResult, RequestSample, summarise_bench

THREE = (
    RequestSample(tokens=101, ttft_s=0.1, e2e_s=1.1, itl_s=(0.02, 0.04), verifies=50),
    RequestSample(tokens=101, ttft_s=0.2, e2e_s=1.2, verifies=50),
    RequestSample(tokens=201, ttft_s=0.1, e2e_s=2.1),
)


def test_each_request_counts_once_in_the_rate():
    summary = summarise_bench(BenchResult(2, 1, THREE))
    rates = [101 / 1.1, 101 / 1.2, 201 / 2.1]
    assert summary.tok_s.count == 3
    assert summary.tok_s.mean == pytest.approx(sum(rates) / 3)
    assert summary.tok_s.half_width == pytest.approx(4.3027 * summary.tok_s.stdev / 3**0.5)


def test_decode_figures_leave_the_prefill_out():
    summary = summarise_bench(BenchResult(2, 1, THREE))
    assert summary.tpot_ms.median == pytest.approx(10.0)
    assert summary.decode_tok_s.mean == pytest.approx(100.0)
    assert summary.ttft_ms.median == pytest.approx(100.0)
    assert summary.ttft_ms.p95 == pytest.approx(190.0)
    assert summary.itl_ms.median == pytest.approx(30.0)


def test_accept_length_is_pooled_over_the_requests_whose_verifies_are_known():
    assert summarise_bench(BenchResult(2, 1, THREE)).accept_length == pytest.approx(200 / 100)


def test_without_speculation_there_is_no_accept_length():
    summary = summarise_bench(BenchResult(None, 1, THREE[2:]))
    assert summary.accept_length is None
    assert summary.steps is None


def test_the_rate_in_all_needs_the_wall_time():
    assert summarise_bench(BenchResult(2, 3, THREE, wall_s=2.1)).tok_s_in_all == pytest.approx(403 / 2.1)
    assert summarise_bench(BenchResult(2, 3, THREE)).tok_s_in_all is None


def test_a_request_without_output_is_counted_and_left_out_of_the_figures():
    summary = summarise_bench(BenchResult(2, 1, [RequestSample(0, 0.0, 0.5), RequestSample(1, 0.1, 0.1)]))
    assert summary.requests == 2
    assert summary.tok_s.count == 1
    assert summary.tpot_ms is None


def test_no_request_gives_no_figure():
    summary = summarise_bench(BenchResult(2, 1, [], profiled=True)).to_json()
    assert summary["profiled"] is True
    assert summary["requests"] == 0
    assert summary["tok_s"] is None
    assert json.dumps(summary)


ROUNDS = tuple(
    RequestSample(
        tokens=11,
        ttft_s=0.1,
        e2e_s=1.1 + 0.1 * number,
        itl_s=(0.5, 0.2, 0.3 + 0.1 * number),
        chunk_tokens=(1, 5, 0, 5),
        verifies=5,
        start_s=10.0 * number,
        round=number,
        prompt_tokens=20,
        cached_tokens=number,
        correct_hist=(1, 3, 1),
        repeated=0.01 * number,
    )
    for number in range(4)
)


def test_gaps_between_tokens_are_spread_as_bench_serving_spreads_them():
    summary = summarise_bench(BenchResult(2, 1, ROUNDS[:1]))
    assert summary.itl_ms.count == 3
    # Five tokens after 0.5 s, none after 0.2 s, five after 0.3 s more.
    assert summary.itl_token_ms.count == 10
    assert summary.itl_token_ms.mean == pytest.approx(100.0)
    assert summary.e2e_ms.mean == pytest.approx(1100.0)


def test_rounds_give_wall_time_throughput_and_concurrency():
    summary = summarise_bench(BenchResult(2, 1, ROUNDS))
    assert (summary.throughput.unit, summary.throughput.count) == ("rounds", 4)
    assert summary.wall_s == pytest.approx(5.0)
    assert summary.tok_s_in_all == pytest.approx(44 / 5.0)
    assert summary.concurrency == pytest.approx(1.0)
    assert (summary.prompt_tokens, summary.cached_tokens, summary.verifies, summary.repeated) == (80, 6, 20, 0.03)
    assert [share.value for share in summary.survival] == [0.8, 0.2]


def test_a_failed_request_is_counted_and_its_round_is_not():
    failed = RequestSample(0, 0.0, 0.0, start_s=0.0, round=0, error="timeout")
    summary = summarise_bench(BenchResult(2, 2, (*ROUNDS, failed)))
    assert (summary.requests, summary.failed) == (5, 1)
    assert summary.throughput.unit == "requests"
    assert summary.throughput.count == 3
    assert summary.wall_s == pytest.approx(3.9)


def test_every_figure_of_the_json_is_defined():
    summary = summarise_bench(BenchResult(2, 1, ROUNDS)).to_json()
    assert set(summary) - {"steps", "variation", "batch", "profiled", "verifies", "prompt_tokens"} <= set(
        BENCH_DEFINITIONS
    )
    assert summary["throughput"]["unit"] == "rounds"
    assert json.loads(json.dumps(summary)) == summary
