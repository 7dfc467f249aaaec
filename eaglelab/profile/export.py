"""A measurement set as tables: CSV with a row a setting and concurrency, JSON lines with a row a request.

Where SGLang's bench_serving has a name for a figure, the CSV column has that name and that definition: `std_*` is the
population's standard deviation there, `itl` is per token (`chunk_gap` is between chunks), `max_concurrency` is the wanted
one, `duration` what our definitions call `wall_s`. One differs: `accept_length` is of these requests, not the server's
running average. A setting that failed has a row with its `error` and no figure. `*_low` and `*_high` are the ends of 95 % intervals.
"""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import asdict
from typing import Any

from eaglelab.profile.bench import BenchSummary, summarise_bench
from eaglelab.profile.measurement_set import MeasurementSet
from eaglelab.profile.stats import Stats

__all__ = ["CSV_COLUMNS", "to_csv", "to_jsonl"]

_SUITES = (("ttft", "ttft_ms"), ("tpot", "tpot_ms"), ("itl", "itl_token_ms"), ("e2e_latency", "e2e_ms"))
_FIGURES = ("mean", "median", "std", "p90", "p95", "p99")

CSV_COLUMNS = (
    *("steps", "variation", "max_concurrency", "profiled", "simulated", "sglang"),
    *("completed", "failed", "duration", "total_input_tokens", "total_output_tokens", "total_cached_tokens"),
    *("request_throughput", "output_throughput", "output_throughput_low", "output_throughput_high"),
    *("output_throughput_unit", "output_throughput_count", "concurrency"),
    *("mean_tok_s", "tok_s_low", "tok_s_high", "mean_decode_tok_s"),
    *(f"{figure}_{name}_ms" for name, _ in _SUITES for figure in _FIGURES),
    *("mean_chunk_gap_ms", "p99_chunk_gap_ms"),
    *("accept_length", "accept_length_low", "accept_length_high", "verifies", "survival"),
    *("load", "error"),
)


def to_csv(measured: MeasurementSet) -> str:
    """One row a result, then one for each setting that failed, `CSV_COLUMNS`; empty where not known.

    Survival is `S_1;S_2;...`.
    """
    server = {"simulated": measured.simulated, "sglang": measured.sglang}
    target = io.StringIO()
    writer = csv.DictWriter(target, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for found in measured.measurements:
        row = {**_row(summarise_bench(found.result)), **server, "load": found.result.load}
        writer.writerow({name: _cell(value) for name, value in row.items()})
    for failed in measured.failed:
        writer.writerow({**_setting(failed.steps, failed.variation), **server, "error": failed.what})
    return target.getvalue()


def to_jsonl(measured: MeasurementSet) -> str:
    """One JSON object a request and line: its setting, then the fields of RequestSample.

    A setting that failed is a line of its own: `steps`, `variation`, and under `failed` what happened.
    """
    lines: list[dict[str, Any]] = [
        {
            **found.result.key.to_json(),
            "batch": found.result.batch,
            "profiled": found.result.profiled,
            **asdict(sample),
        }
        for found in measured.measurements
        for sample in found.result.requests
    ]
    lines += [{**failed.key.to_json(), "failed": failed.what} for failed in measured.failed]
    return "".join(f"{json.dumps(line, allow_nan=False)}\n" for line in lines)


def _setting(steps: int | None, variation: str) -> dict[str, Any]:
    return {"steps": "none" if steps is None else steps, "variation": variation}


def _row(summary: BenchSummary) -> dict[str, Any]:
    rate, length = summary.throughput, summary.acceptance
    low, high = (None, None) if rate is None or rate.ci95 is None else rate.ci95
    slow, fast = (None, None) if summary.tok_s is None or summary.tok_s.ci95 is None else summary.tok_s.ci95
    short, long = (None, None) if length is None or length.ci95 is None else length.ci95
    suites = {
        f"{figure}_{name}_ms": _figure(getattr(summary, source), figure)
        for name, source in _SUITES
        for figure in _FIGURES
    }
    return {
        **_setting(summary.steps, summary.variation),
        "max_concurrency": summary.batch,
        "profiled": summary.profiled,
        "completed": summary.requests - summary.failed,
        "failed": summary.failed,
        "duration": summary.wall_s,
        "total_input_tokens": summary.prompt_tokens,
        "total_output_tokens": summary.tokens,
        "total_cached_tokens": summary.cached_tokens,
        "request_throughput": summary.timed / summary.wall_s if summary.wall_s else None,
        "output_throughput": summary.tok_s_in_all,
        "output_throughput_low": low,
        "output_throughput_high": high,
        "output_throughput_unit": None if rate is None else rate.unit,
        "output_throughput_count": None if rate is None else rate.count,
        "concurrency": summary.concurrency,
        "mean_tok_s": _figure(summary.tok_s, "mean"),
        "tok_s_low": slow,
        "tok_s_high": fast,
        "mean_decode_tok_s": _figure(summary.decode_tok_s, "mean"),
        **suites,
        "mean_chunk_gap_ms": _figure(summary.itl_ms, "mean"),
        "p99_chunk_gap_ms": _figure(summary.itl_ms, "p99"),
        "accept_length": summary.accept_length,
        "accept_length_low": short,
        "accept_length_high": long,
        "verifies": summary.verifies,
        "survival": ";".join(f"{share.value:.6g}" for share in summary.survival),
    }


def _figure(stats: Stats | None, name: str) -> float | None:
    """One figure of a description; `std` over the population, as numpy and bench_serving have it."""
    if stats is None:
        return None
    if name == "std":
        return 0.0 if stats.stdev is None else stats.stdev * math.sqrt((stats.count - 1) / stats.count)
    return float(getattr(stats, name))


def _cell(value: object) -> object:
    return round(value, 6) if isinstance(value, float) else value
