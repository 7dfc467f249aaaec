"""The tables at the end of the page: every setting with its figures."""

from __future__ import annotations

from collections.abc import Sequence

from eaglelab.profile.bench import BenchSummary, summarise_bench
from eaglelab.profile.decode_groups import DecodeGroup
from eaglelab.profile.measurement_set import MeasurementSet
from eaglelab.profile.serving import ServingSet, ServingSetting
from eaglelab.profile.stats import Stats
from eaglelab.profile.summary import Setting
from eaglelab.report.cells import MISSING, figure, interval, ms, spread, tok_s
from eaglelab.report.charts.chart import Table

__all__ = ["decode_table", "figures_table", "serving_figures", "settings_table"]


def figures_table(measured: MeasurementSet) -> Table:
    """A row a measurement: as in the terminal, with intervals in full."""
    header = (
        *("setting", "probe", "concurrency", "requests", "tok/s", "95 % interval", "accept length", "95 % interval"),
        *("tok/s a request", "TTFT ms median", "TTFT ms p99", "TPOT ms median", "TPOT ms p99", "e2e ms median"),
    )
    every = sorted(
        measured.measurements,
        key=lambda each: (each.result.batch, each.result.key.simplicity, each.result.profiled),
    )
    return Table(header, [_row(each.result.key.words, summarise_bench(each.result)) for each in every], text=2)


def _row(name: str, found: BenchSummary) -> list[str]:
    rate, accepted = found.throughput, found.acceptance
    return [
        name,
        "on" if found.profiled else "off",
        str(found.batch),
        f"{found.requests - found.failed} of {found.requests}" if found.failed else str(found.requests),
        tok_s(found.tok_s_in_all),
        interval(rate.ci95 if rate else None, 1),
        figure(found.accept_length, 3),
        interval(accepted.ci95 if accepted else None, 3),
        _of(found.tok_s, "mean", 1),
        _of(found.ttft_ms, "median", 1),
        _of(found.ttft_ms, "p99", 1),
        _of(found.tpot_ms, "median", 3),
        _of(found.tpot_ms, "p99", 3),
        _of(found.e2e_ms, "median", 0),
    ]


def _of(stats: Stats | None, name: str, decimals: int) -> str:
    return MISSING if stats is None else figure(getattr(stats, name), decimals)


def serving_figures(asked: ServingSet) -> Table:
    """A row for each setting that SGLang's own client measured: means over its runs."""
    header = (
        *("setting", "concurrency", "runs", "output tok/s", "+/-95 %", "speed-up", "+/-95 %", "accept length"),
        *("TTFT ms", "TPOT ms", "ITL ms", "e2e ms"),
    )
    return Table(header, [_served(setting) for setting in asked.settings])


def _served(setting: ServingSetting) -> list[str]:
    rate, gain = setting.figure("output_throughput"), setting.speed_up
    return [
        setting.key.words,
        str(setting.concurrency),
        str(len(setting.runs)),
        _of(rate, "mean", 1),
        spread(rate, 1),
        _of(gain, "mean", 3),
        spread(gain, 3),
        _of(setting.figure("accept_length"), "mean", 3),
        *(_of(setting.figure(f"mean_{time}_ms"), "mean", 2) for time in ("ttft", "tpot", "itl", "e2e_latency")),
    ]


def settings_table(settings: Sequence[Setting]) -> Table:
    """A row a setting of the probe's profile: times of both clocks, acceptance, rate."""
    header = (
        *("worker", "steps", "batch size", "cycles kept", "of", "total ms GPU", "+/-95 %", "median", "p95"),
        *("total ms host", "accept length", "95 % interval", "tok/s in all", "95 % interval"),
    )
    return Table(header, [_setting(setting) for setting in settings])


def _setting(setting: Setting) -> list[str]:
    total = next((phase for phase in setting.phases if phase.name == "total"), None)
    accepted, rate = setting.acceptance, setting.rate
    return [
        setting.worker,
        str(setting.steps),
        str(setting.batch_size),
        str(setting.cycles),
        str(setting.decode_cycles),
        ms(total.event.mean if total else None),
        spread(total.event if total else None, 3),
        ms(total.event.median if total else None),
        ms(total.event.p95 if total else None),
        ms(total.host.mean if total else None),
        figure(accepted.length if accepted else None, 3),
        interval(accepted.ci95 if accepted else None, 3),
        tok_s(rate.in_all if rate else None),
        interval(rate.ci95 if rate else None, 1),
    ]


def decode_table(groups: Sequence[DecodeGroup]) -> Table:
    """A row for each server start and number of running requests."""
    header = ("running requests", "start", "lines", "tok/s mean", "+/-95 %", "median", "accept length", "eager")
    rows = [
        [
            str(group.running_requests),
            str(group.start),
            str(group.lines),
            tok_s(group.throughput.mean if group.throughput else None),
            spread(group.throughput, 1),
            tok_s(group.throughput.median if group.throughput else None),
            figure(group.accept_length.mean if group.accept_length else None, 2),
            str(group.eager),
        ]
        for group in groups
    ]
    return Table(header, rows, text=0)
