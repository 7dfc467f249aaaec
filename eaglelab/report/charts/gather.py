"""Which charts a run or a log gives, by topic and batch size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from eaglelab.model.explained import Explained
from eaglelab.profile.bench import summarise_bench
from eaglelab.profile.blocks import Block
from eaglelab.profile.log_report import LogReport
from eaglelab.profile.logfile import record_lines
from eaglelab.profile.measurement_set import Measurement
from eaglelab.profile.serving import ServingSet
from eaglelab.profile.setting_key import SettingKey
from eaglelab.profile.summary import Setting
from eaglelab.report.charts.chart import Chart
from eaglelab.report.charts.levers import lever_chart
from eaglelab.report.charts.over_time import time_chart
from eaglelab.report.charts.phases import PhaseBar, phase_chart
from eaglelab.report.charts.ranks import rank_chart
from eaglelab.report.charts.survival import Survival, survival_chart
from eaglelab.report.charts.throughput import PLAIN, Curve, Rate, throughput_chart
from eaglelab.report.served import served
from eaglelab.report.timeline import Moment, of_decode_lines, of_probe, of_requests
from eaglelab.runs.evidence import RunEvidence

__all__ = ["BATCHES", "Charts", "log_charts", "run_charts"]

BATCHES = 6
"""Batch sizes that are drawn, the smallest first; the terminal and the JSON have all."""

_BLOCKS = 12
"""Hand-made blocks of a log that are drawn, the newest."""

_REQUESTS = "From the begin of each load's measurement, on the server's clock; a point a request."
_BLOCKS_READ = "From the first block, by wall clock; a point a block of cycles."
_DECODE_READ = "From the first decode line, by the log's clock; a point a line, evenly spread where there are many."

_Settings = Sequence[tuple[SettingKey, Setting]]


@dataclass
class Charts:
    """By topic, in the order in which a page shows them. `left_out`: batch sizes that were not drawn."""

    throughput: list[Chart] = field(default_factory=list)
    phases: list[Chart] = field(default_factory=list)
    survival: list[Chart] = field(default_factory=list)
    levers: list[Chart] = field(default_factory=list)
    time: list[Chart] = field(default_factory=list)
    ranks: list[Chart] = field(default_factory=list)
    left_out: list[int] = field(default_factory=list)

    @property
    def every(self) -> list[Chart]:
        """All of them."""
        return [*self.throughput, *self.phases, *self.survival, *self.levers, *self.time, *self.ranks]


def run_charts(evidence: RunEvidence, explained: Sequence[Explained]) -> Charts:
    """The charts of a run."""
    charts = Charts()
    batches = _batches(evidence)
    charts.left_out = batches[BATCHES:]
    for batch in batches[:BATCHES]:
        about = _about(evidence, batch)
        here = [each for each in explained if each.batch == batch]
        settings = _settings(evidence, batch)
        charts.throughput += _throughput(evidence, here, batch, about)
        _profiled(charts, settings, batch, about)
        charts.levers += _levers(here, about)
        charts.time += _over_time(evidence, batch, about)
    return charts


def log_charts(
    report: LogReport, explained: Sequence[Explained], lines: Callable[[], Iterable[bytes]] | None
) -> Charts:
    """The charts of a server's log: those of the probe's records, else of the hand-made blocks.

    `lines` reads the log once more, for what happened over time; None where that cannot be.
    """
    charts = Charts()
    settings = report.profile.settings if report.profile else ()
    batches = sorted({setting.batch_size for setting in settings} | {each.batch for each in explained})
    charts.left_out = batches[BATCHES:]
    for batch in batches[:BATCHES]:
        about = f"batch size {batch}"
        here = [each for each in explained if each.batch == batch]
        told = [(SettingKey(each.steps), each) for each in settings if each.batch_size == batch]
        charts.throughput += _modelled(here, batch, about)
        _profiled(charts, told, batch, about)
        charts.levers += _levers(here, about)
        if lines is not None:
            charts.time += _time(batch, about, of_probe(lines(), batch), _BLOCKS_READ) if told else []
    if lines is not None and report.decode:
        charts.time += _decode_time(lines())
    blocks = [block for block in report.blocks if block.printed_ms][-_BLOCKS:]
    if blocks and not settings:
        bars = [PhaseBar(_line(block), block.printed_ms) for block in blocks]
        clock = "GPU time" if all(block.ours for block in blocks) else "host time"
        charts.phases.append(phase_chart("phases-blocks", "Phases of the printed blocks", bars, clock))
    return charts


def _line(block: Block) -> str:
    counts = block.text.counts
    told = [f"{counts[key]} {word}" for key, word in (("steps", "steps"), ("batch_size", "requests")) if key in counts]
    return ", ".join([f"line {block.text.line}", *told])


def _batches(evidence: RunEvidence) -> list[int]:
    measured = evidence.measured.measurements if evidence.measured else ()
    requested = {each.result.batch for each in measured}
    asked = served(evidence)
    requested |= {each.concurrency for each in asked.settings} if asked else set()
    return sorted(requested or {setting.batch_size for setting in evidence.settings()})


def _about(evidence: RunEvidence, batch: int) -> str:
    return f"concurrency {batch}" if evidence.measured or evidence.serving else f"batch size {batch}"


def _settings(evidence: RunEvidence, batch: int) -> _Settings:
    if evidence.measured is None:
        return [(SettingKey(setting.steps), setting) for setting in evidence.settings(batch)]
    found = [
        (each.result.key, each.setting)
        for each in evidence.measured.measurements
        if each.setting is not None and each.result.batch == batch
    ]
    return sorted(found, key=lambda pair: pair[0].simplicity)


def _profiled(charts: Charts, settings: _Settings, batch: int, about: str) -> None:
    """What the probe's cycles give."""
    timed = [(key, setting) for key, setting in settings if setting.phases]
    if timed:
        bars = [PhaseBar.of(key.words, setting) for key, setting in timed]
        charts.phases.append(phase_chart(f"phases-{batch}", f"Phases of a cycle, {about}", bars))
    accepted = [
        Survival(key.words, setting.acceptance)
        for key, setting in settings
        if setting.acceptance and setting.acceptance.survival
    ]
    if accepted:
        charts.survival.append(survival_chart(f"survival-{batch}", f"Survival of drafts, {about}", accepted))
    for number, (key, setting) in enumerate(timed):
        chart = rank_chart(f"ranks-{batch}-{number}", f"Ranks, {key.words}, {about}", setting)
        charts.ranks += [chart] if chart else []


def _throughput(evidence: RunEvidence, explained: Sequence[Explained], batch: int, about: str) -> Iterator[Chart]:
    measured = evidence.measured.measurements if evidence.measured else ()
    here = [each for each in measured if each.result.batch == batch]
    here = [each for each in here if not each.result.profiled] or here
    asked = served(evidence)
    if asked is not None:
        yield from _served(asked, batch, about)
        return
    if not here:
        yield from _modelled(explained, batch, about)
        return
    curves = [
        Curve(variation or "measured", rates)
        for variation in dict.fromkeys(each.result.variation for each in here)
        if (rates := sorted(_rates(here, variation), key=lambda rate: rate.steps))
    ]
    baseline = next(iter(_baselines(here)), None)
    if curves:
        predicted = _predicted(explained[0]) if explained else None
        unit = "tok/s, all requests together"
        yield throughput_chart(f"throughput-{batch}", f"Throughput, {about}", curves, predicted, baseline, unit)


def _served(asked: ServingSet, batch: int, about: str) -> Iterator[Chart]:
    """What SGLang's own client measured."""
    told: dict[SettingKey, Rate] = {}
    for each in asked.settings:
        found = each.figure("output_throughput")
        if each.concurrency == batch and found is not None:
            told[each.key] = Rate(each.key.steps or 0, found.mean, found.ci95)
    baseline = next((told[key] for key in sorted(told, key=lambda key: key.simplicity) if key.steps is None), None)
    curves = [
        Curve(variation or "measured", sorted(rates, key=lambda rate: rate.steps))
        for variation in dict.fromkeys(key.variation for key in told)
        if (rates := [rate for key, rate in told.items() if key.variation == variation and key.steps is not None])
    ]
    if curves:
        title, unit = f"Throughput, {about}, sglang.bench_serving", "output tok/s, wall time"
        yield throughput_chart(f"throughput-{batch}", title, curves, None, baseline, unit)


def _modelled(explained: Sequence[Explained], batch: int, about: str) -> Iterator[Chart]:
    """Throughput where no benchmark measured it: what the probe's cycles gave, and what the model makes of them."""
    for each in explained[:1]:
        told = [
            Rate(point.steps, point.measured_tok_s, point.measured_ci95)
            for point in each.points
            if point.steps is not None and point.measured_tok_s is not None
        ]
        predicted = _predicted(each)
        baseline = None if each.baseline_tok_s is None else Rate(0, each.baseline_tok_s, each.baseline_ci95)
        if told or predicted:
            curves = [Curve("measured", told)] if told else []
            title, unit = f"Throughput, {about}", "tok/s, all requests together"
            yield throughput_chart(f"throughput-{batch}", title, curves, predicted, baseline, unit)


def _rates(here: Sequence[Measurement], variation: str) -> Iterator[Rate]:
    for each in here:
        found = summarise_bench(each.result).throughput
        if each.result.steps is not None and each.result.variation == variation and found is not None:
            yield Rate(each.result.steps, found.value, found.ci95)


def _baselines(here: Sequence[Measurement]) -> Iterator[Rate]:
    """Those without speculation, the one with nothing varied first."""
    for each in sorted(here, key=lambda each: each.result.key.simplicity):
        found = summarise_bench(each.result).throughput
        if each.result.steps is None and found is not None:
            yield Rate(0, found.value, found.ci95)


def _predicted(explained: Explained) -> Curve | None:
    rates = []
    for point in explained.points:
        if point.steps is not None and point.predicted_tok_s is not None:
            band = None if point.low is None or point.high is None else (point.low, point.high)
            rates.append(Rate(point.steps, point.predicted_tok_s, band))
    return Curve("model", sorted(rates, key=lambda rate: rate.steps)) if len(rates) > 1 else None


def _levers(explained: Sequence[Explained], about: str) -> Iterator[Chart]:
    for number, each in enumerate(explained):
        if each.levers:
            where = f"{about}, {each.variation}" if each.variation else about
            yield lever_chart(f"levers-{each.batch}-{number}", f"What if, {where}", each.levers)


def _over_time(evidence: RunEvidence, batch: int, about: str) -> Iterator[Chart]:
    if evidence.measured is not None:
        yield from _time(batch, about, of_requests(evidence.measured, batch), _REQUESTS)
    else:
        records = record_lines([file for load in evidence.loads for file in load.probe_files])
        yield from _time(batch, about, of_probe(records, batch), _BLOCKS_READ)


def _time(batch: int, about: str, lines: Mapping[SettingKey, Sequence[Moment]], reading: str) -> Iterator[Chart]:
    told = {PLAIN if key == SettingKey(None) else key.words: moments for key, moments in lines.items()}
    yield from _drawn_time(f"time-{batch}", f"Over time, {about}", told, reading)


def _decode_time(lines: Iterable[bytes]) -> Iterator[Chart]:
    told = {
        f"{running} running request{'' if running == 1 else 's'}": moments
        for running, moments in of_decode_lines(lines).items()
    }
    yield from _drawn_time("time-decode", "Over time, SGLang's decode lines", told, _DECODE_READ)


def _drawn_time(name: str, title: str, told: Mapping[str, Sequence[Moment]], reading: str) -> Iterator[Chart]:
    lines = {label: moments for label, moments in told.items() if len(moments) > 1}
    if lines:
        yield time_chart(name, title, lines, reading)
