"""What bench_serving measured, in the terminal: a row a setting and concurrency, means over its runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from eaglelab.printable import printable
from eaglelab.profile.serving import ServingSet, ServingSetting
from eaglelab.profile.stats import Stats
from eaglelab.report.cells import MISSING, figure, note
from eaglelab.report.folding import Column, Folding

__all__ = ["serving_table"]

_VARIATION_WIDTH = 24

_FIGURES: dict[str, tuple[str, int]] = {
    "tok/s": ("output_throughput", 1),
    "req/s": ("request_throughput", 3),
    "TTFT ms\nmean": ("mean_ttft_ms", 1),
    "\np99": ("p99_ttft_ms", 1),
    "TPOT ms\nmean": ("mean_tpot_ms", 3),
    "\np99 ": ("p99_tpot_ms", 3),
    "ITL ms\nmean": ("mean_itl_ms", 3),
    "e2e ms\nmean": ("mean_e2e_latency_ms", 0),
    "accept\nlen": ("accept_length", 3),
}


def serving_table(measured: ServingSet) -> RenderableType:
    """All of it; times are the wall times that bench_serving took."""
    settings = measured.settings
    parts: list[RenderableType] = [Folding(_keys(settings), _columns(settings))] if settings else []
    failed = [f"{each.key.words}: failed: {each.what}" for each in measured.failed]
    parts += [Text(printable(what), style="bold red") for what in failed]
    if not settings:
        return Group(*parts)
    return Group(*parts, *_unanswered(settings), "", *_legend(measured))


def _keys(settings: list[ServingSetting]) -> list[Column]:
    keys = [Column("steps", ["none" if each.key.steps is None else str(each.key.steps) for each in settings])]
    if any(each.key.variation for each in settings):
        keys.append(Column("with", [printable(each.key.variation) for each in settings], text=_VARIATION_WIDTH))
    return [*keys, Column("conc", [str(each.concurrency) for each in settings])]


def _columns(settings: list[ServingSetting]) -> list[Column]:
    cells: dict[str, Callable[[ServingSetting], str]] = {
        "runs": lambda each: str(len(each.runs)),
        "speed-up": lambda each: _mean(each.speed_up, 3),
        "+/-95%": lambda each: _half(each.speed_up, 3),
    }
    columns = [Column(header, [cell(each) for each in settings]) for header, cell in cells.items()]
    for header, (name, decimals) in _FIGURES.items():
        stats = [each.figure(name) for each in settings]
        columns.append(Column(header.rstrip(" "), [_mean(each, decimals) for each in stats]))
        if name == "output_throughput":
            columns.append(Column("+/-95%", [_half(each, 1) for each in stats]))
    return columns


def _mean(stats: Stats | None, decimals: int) -> str:
    return MISSING if stats is None else figure(stats.mean, decimals)


def _half(stats: Stats | None, decimals: int) -> str:
    return MISSING if stats is None else figure(stats.half_width, decimals)


def _unanswered(settings: list[ServingSetting]) -> Iterator[RenderableType]:
    for each in settings:
        asked, came = sum(run.asked for run in each.runs), sum(run.row.completed for run in each.runs)
        if came < asked:
            what = f"{each.key.words}, concurrency {each.concurrency}: {came} of {asked} requests were answered"
            yield Text(printable(f"  warning: {what}"), style="yellow")


def _legend(measured: ServingSet) -> Iterator[RenderableType]:
    yield note("by sglang.bench_serving of this host, probe off: means over its runs; +/-: half the 95 % interval")
    yield note("speed-up: output tok/s over the baseline's, run by run with the same seed; the runs of one load")
    yield note(
        "accept len: the server's running average since it started, bonus token included; steps none: no speculation"
    )
    if measured.simulated:
        yield note(f"all figures: {measured.simulated}; in wall time, not on the clock of that GPU")
