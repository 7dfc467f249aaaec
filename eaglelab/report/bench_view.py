"""Benchmark results in the terminal, one row a setting."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType

from eaglelab.profile.bench import BenchResult, summarise_bench
from eaglelab.profile.stats import Stats
from eaglelab.report.cells import MISSING, figure, note, plain_table, spread, tok_s

__all__ = ["bench_table"]


def bench_table(results: Sequence[BenchResult]) -> RenderableType:
    """One row a result, in the order given."""
    table = plain_table(
        "steps",
        "batch",
        "req",
        "tok/s\na req",
        "+/-95%",
        "TTFT ms\nmedian",
        "\np95",
        "TPOT ms\nmedian",
        "\np95",
        "accept\nlen",
        "probe",
        text=0,
    )
    for result in results:
        row = summarise_bench(result)
        table.add_row(
            "none" if row.steps is None else str(row.steps),
            str(row.batch),
            str(row.requests),
            MISSING if row.tok_s is None else tok_s(row.tok_s.mean),
            spread(row.tok_s, 1),
            *_median_and_p95(row.ttft_ms, 1),
            *_median_and_p95(row.tpot_ms, 3),
            figure(row.accept_length, 2),
            "on" if row.profiled else "off",
        )
    return Group(
        table,
        note("tok/s a req: output tokens of a request / time from sending it to its last token"),
        note("accept len: tokens per verify, bonus token included; steps none: no speculation"),
    )


def _median_and_p95(stats: Stats | None, decimals: int) -> tuple[str, str]:
    if stats is None:
        return MISSING, MISSING
    return figure(stats.median, decimals), figure(stats.p95, decimals)
