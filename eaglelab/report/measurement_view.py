"""Measurements in the terminal: a row a setting and concurrency, the ranking in sentences, then what the checks found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from eaglelab.printable import printable
from eaglelab.profile.bench import BenchSummary, summarise_bench
from eaglelab.profile.cross import Reading
from eaglelab.profile.definitions import PHASES
from eaglelab.profile.findings import Severity
from eaglelab.profile.measurement_set import Failed, Measurement, MeasurementSet, rankings
from eaglelab.profile.pooling import Estimate
from eaglelab.profile.ranking import Ranking
from eaglelab.profile.ranking_words import ranking_sentences
from eaglelab.profile.setting_key import SettingKey
from eaglelab.profile.stats import Stats
from eaglelab.profile.summary import Setting
from eaglelab.report.cells import MISSING, figure, left, ms, note, plain_table, tok_s
from eaglelab.report.folding import Column, Folding

__all__ = ["measurement_table"]

_STYLES: dict[Severity, str] = {"ok": "", "note": "", "warning": "yellow", "alarm": "bold red"}
_GRAVITY: tuple[Severity, ...] = ("ok", "note", "warning", "alarm")
_VARIATION_WIDTH = 25


def measurement_table(measured: MeasurementSet, *, ranked: bool = True) -> RenderableType:
    """All of it. `ranked` False: requests came at a rate, so throughput is that rate and ranks nothing."""
    rows = sorted(measured.measurements, key=_order)
    parts: list[RenderableType] = []
    if rows:
        parts.append(_requests(rows))
    if measured.failed:
        parts += ["", _failed(measured.failed)]
    cycles = [(found, found.setting) for found in rows if found.setting is not None]
    if cycles:
        parts += ["", _cycles(cycles)]
    if ranked:
        parts += _ranked(measured)
    parts += _findings(measured, rows)
    parts += _legend(measured, cycles=bool(cycles))
    return Group(*parts)


def _order(found: Measurement) -> tuple[int, str, int, bool]:
    result = found.result
    return (result.batch, result.variation, result.steps or 0, result.profiled)


def _steps(key: SettingKey) -> str:
    return "none" if key.steps is None else str(key.steps)


def _keys(rows: Sequence[Measurement]) -> list[Column]:
    """What a row is about; a column for what is varied only where something is."""
    results = [found.result for found in rows]
    keys = [Column("steps", [_steps(result.key) for result in results])]
    if any(result.variation for result in results):
        keys.append(Column("with", [printable(result.variation) for result in results], text=_VARIATION_WIDTH))
    return [*keys, Column("conc", [str(result.batch) for result in results])]


def _requests(rows: Sequence[Measurement]) -> RenderableType:
    figures: list[tuple[str, Callable[[BenchSummary], str]]] = [
        ("req", lambda row: f"{row.requests - row.failed}/{row.requests}" if row.failed else str(row.requests)),
        ("tok/s", lambda row: tok_s(row.tok_s_in_all)),
        ("+/-", lambda row: _half(row.throughput)),
        ("accept\nlen", lambda row: figure(row.accept_length, 3)),
        ("tok/s\na req", lambda row: _of(row.tok_s, "mean", 1)),
        ("TTFT ms\nmedian", lambda row: _of(row.ttft_ms, "median", 1)),
        ("TTFT ms\np99", lambda row: _of(row.ttft_ms, "p99", 1)),
        ("TPOT ms\nmedian", lambda row: _of(row.tpot_ms, "median", 3)),
        ("TPOT ms\np99", lambda row: _of(row.tpot_ms, "p99", 3)),
        ("e2e ms\nmedian", lambda row: _of(row.e2e_ms, "median", 0)),
    ]
    summaries = [summarise_bench(found.result) for found in rows]
    probe = Column("probe", ["on" if row.profiled else "off" for row in summaries])
    columns = [Column(header, [cell(row) for row in summaries]) for header, cell in figures]
    return Folding([*_keys(rows), probe], columns)


def _half(estimate: Estimate | None) -> str:
    if estimate is None or estimate.ci95 is None:
        return MISSING
    return figure((estimate.ci95[1] - estimate.ci95[0]) / 2, 1)


def _of(stats: Stats | None, name: str, decimals: int) -> str:
    return MISSING if stats is None else figure(getattr(stats, name), decimals)


def _failed(failed: Sequence[Failed]) -> Table:
    table = left(plain_table("", "", text=2), 0, 1)
    table.show_header = False
    for column in table.columns:
        column.overflow = "fold"
    for each in failed:
        key = SettingKey(each.steps, printable(each.variation))
        table.add_row(Text(key.words), Text(printable(f"failed: {each.what}"), style=_STYLES["alarm"]))
    return table


def _cycles(measured: Sequence[tuple[Measurement, Setting]]) -> RenderableType:
    """What the probe saw of a cycle: the mean GPU time of each phase, and what the verifies accepted."""
    settings = [setting for _, setting in measured]
    columns = [Column("cycles", [str(setting.cycles) for setting in settings])]
    for name in PHASES:
        means = [{phase.name: phase.event.mean for phase in setting.phases} for setting in settings]
        columns.append(Column(f"{name}\nms", [ms(each.get(name)) for each in means]))
    accepted = [setting.acceptance for setting in settings]
    columns.append(Column("accept\nlen", [figure(None if each is None else each.length, 3) for each in accepted]))
    survivals = [() if each is None else each.survival for each in accepted]
    for k in range(max(map(len, survivals))):
        shares = [figure(each[k] if k < len(each) else None, 3) for each in survivals]
        columns.append(Column(f"S_{k + 1}", shares))
    return Folding(_keys([found for found, _ in measured]), columns)


def _ranked(measured: MeasurementSet) -> Iterator[RenderableType]:
    ranked = rankings(measured)
    failed = {each.key for each in measured.failed}
    for batch in sorted({found.result.batch for found in measured.measurements}):
        here = {
            found.result.key
            for found in measured.measurements
            if found.result.batch == batch and not found.result.profiled and found.result.key not in failed
        }
        if len(here) < 2:
            continue
        yield ""
        yield Text(f"concurrency {batch}:", style="bold")
        yield from (note(printable(sentence)) for sentence in _sentences(ranked.get(batch)))


def _sentences(ranking: Ranking | None) -> Sequence[str]:
    if ranking is None:
        return ["Not ranked: fewer than two rounds in which every setting was measured."]
    return ranking_sentences(ranking)


def _findings(measured: MeasurementSet, rows: Sequence[Measurement]) -> Iterator[RenderableType]:
    """Alarms first, then warnings and notes; what is in order is counted, so that its absence would be seen."""
    together = [*measured.findings, *measured.across]
    every = [*(finding for found in rows for finding in found.findings), *together]
    told = [*_told(rows), *((finding.severity, "", finding.sentence) for finding in together)]
    if every:
        yield ""
    for severity, about, sentence in sorted(told, key=lambda each: -_GRAVITY.index(each[0])):
        if severity != "ok":
            text = Text(printable(f"{severity}{about}: {sentence}"), style=_STYLES[severity])
            yield Padding(text, (0, 0, 0, 2))
    for found in rows:
        if any(reading.agrees is False for reading in found.readings):
            yield note(printable(f"accept length by source at {found.result.key.words}, {_concurrency(found)}:"))
            yield from (note(f"  {_reading(reading)}") for reading in found.readings)
    fine = [finding.code for finding in every if finding.severity == "ok"]
    if fine:
        codes = ", ".join(dict.fromkeys(fine))
        yield note(f"{len(fine)} check{'' if len(fine) == 1 else 's'} in order: {codes}")


def _told(rows: Sequence[Measurement]) -> Iterator[tuple[Severity, str, str]]:
    """Findings of single settings; one that several settings share, as those of one load share its log, is told once."""
    about: dict[tuple[Severity, str, str], list[str]] = {}
    for found in rows:
        for finding in found.findings:
            names = about.setdefault((finding.severity, finding.sentence, _concurrency(found)), [])
            names.append(found.result.key.words)
    for (severity, sentence, concurrency), names in about.items():
        yield severity, f" at {', '.join([*names, concurrency])}", sentence


def _concurrency(found: Measurement) -> str:
    return f"concurrency {found.result.batch}"


def _reading(reading: Reading) -> str:
    return f"{reading.source}: {reading.value:.3f} ({_count(reading)}): {reading.definition}"


def _count(reading: Reading) -> str:
    return f"{reading.unit}, number unknown" if reading.count is None else f"{reading.count} {reading.unit}"


def _legend(measured: MeasurementSet, *, cycles: bool) -> Iterator[RenderableType]:
    yield ""
    yield note("tok/s: of all requests together; +/-: half of its 95 % interval")
    yield note("accept len: tokens per verify, bonus token included")
    yield note("steps none: no speculation; probe on: measured requests, not for ranking")
    if cycles:
        yield note("phases: mean GPU time a cycle; S_k: share of verifies with k drafts right")
    if measured.simulated:
        yield note(f"all figures: {measured.simulated}")
