"""Measurements in the terminal: a row a setting, the ranking in sentences, then what the checks found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from eaglelab.printable import printable
from eaglelab.profile.bench import BenchSummary, summarise_bench
from eaglelab.profile.cross import Reading
from eaglelab.profile.findings import Finding, Severity
from eaglelab.profile.measurement_set import Measurement, MeasurementSet, rankings
from eaglelab.profile.pooling import Estimate
from eaglelab.profile.ranking_words import ranking_sentences
from eaglelab.profile.stats import Stats
from eaglelab.report.cells import MISSING, figure, note, plain_table, tok_s

__all__ = ["measurement_table"]

_STYLES: dict[Severity, str] = {"ok": "green", "note": "", "warning": "yellow", "alarm": "bold red"}


def measurement_table(measured: MeasurementSet, *, ranked: bool = True) -> RenderableType:
    """All of it. `ranked` False: requests came at a rate, so throughput is that rate and ranks nothing."""
    parts: list[RenderableType] = [_table(measured.measurements)]
    for concurrency, ranking in rankings(measured).items() if ranked else ():
        parts.append(Text(f"concurrency {concurrency}:", style="bold"))
        parts += [note(sentence) for sentence in ranking_sentences(ranking)]
    parts += _findings(measured)
    parts.append(
        note("tok/s: of all requests together, probe off (for `on`: measured ones); +/-: half the 95 % interval")
    )
    parts.append(note("accept len: tokens per verify, bonus token included; steps none: no speculation"))
    if measured.simulated:
        parts.append(note(f"all figures: {measured.simulated}"))
    return Group(*parts)


def _table(measurements: Sequence[Measurement]) -> RenderableType:
    table = plain_table(
        "steps",
        "conc",
        "probe",
        "req",
        "tok/s",
        "+/-95%",
        "tok/s\na req",
        "TTFT ms\nmedian",
        "\np99",
        "TPOT ms\nmedian",
        "\np99",
        "e2e ms\nmedian",
        "accept\nlen",
        text=0,
    )
    for found in sorted(measurements, key=lambda found: (found.result.batch, found.result.steps or 0)):
        table.add_row(*_cells(summarise_bench(found.result)))
    return table


def _cells(row: BenchSummary) -> Iterator[str]:
    yield "none" if row.steps is None else str(row.steps)
    yield str(row.batch)
    yield "on" if row.profiled else "off"
    yield f"{row.requests - row.failed}/{row.requests}" if row.failed else str(row.requests)
    yield tok_s(row.tok_s_in_all)
    yield _half(row.throughput)
    yield MISSING if row.tok_s is None else tok_s(row.tok_s.mean)
    for stats, decimals in ((row.ttft_ms, 1), (row.tpot_ms, 3)):
        yield from _median_and_p99(stats, decimals)
    yield MISSING if row.e2e_ms is None else figure(row.e2e_ms.median, 0)
    yield figure(row.accept_length, 3)


def _half(estimate: Estimate | None) -> str:
    if estimate is None or estimate.ci95 is None:
        return MISSING
    return figure((estimate.ci95[1] - estimate.ci95[0]) / 2, 1)


def _median_and_p99(stats: Stats | None, decimals: int) -> tuple[str, str]:
    return (MISSING, MISSING) if stats is None else (figure(stats.median, decimals), figure(stats.p99, decimals))


def _findings(measured: MeasurementSet) -> Iterator[RenderableType]:
    """Alarms and warnings by setting; what is in order is counted, so that its absence would be seen."""
    fine = 0
    for about, finding in _all(measured):
        if finding.severity == "ok":
            fine += 1
            continue
        yield Text(printable(f"  {finding.severity}{about}: {finding.sentence}"), style=_STYLES[finding.severity])
    for found in measured.measurements:
        if any(reading.agrees is False for reading in found.readings):
            yield note(f"accept length by source at {_name(found)}:")
            yield from (note(f"  {_reading(reading)}") for reading in found.readings)
    if fine:
        yield note(f"{fine} checks in order (tokens, closure, acceptance by source); all are in measurements.json")


def _all(measured: MeasurementSet) -> Iterable[tuple[str, Finding]]:
    for found in measured.measurements:
        for finding in found.findings:
            yield f" at {_name(found)}", finding
    for finding in measured.findings:
        yield "", finding


def _name(found: Measurement) -> str:
    steps = "the baseline" if found.result.steps is None else f"{found.result.steps} steps"
    return f"{steps}, concurrency {found.result.batch}"


def _reading(reading: Reading) -> str:
    return f"{reading.source}: {reading.value:.3f} ({reading.count} {reading.unit}): {reading.definition}"
