"""What stands on the page, as data: the template only lays it out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from eaglelab.diagnosis import Diagnosis, not_said_again
from eaglelab.model.explained import Explained
from eaglelab.profile.definitions import DEFINITIONS
from eaglelab.profile.log_report import LogReport
from eaglelab.profile.measurement_set import rankings
from eaglelab.profile.ranking_words import ranking_sentences
from eaglelab.report.charts.chart import Table
from eaglelab.report.charts.gather import Charts, log_charts, run_charts
from eaglelab.report.environment import Block, log_environment, run_environment
from eaglelab.report.headline import Headline, log_headline, run_headline
from eaglelab.report.html.findings import Told, run_findings
from eaglelab.report.html.tables import decode_table, figures_table, serving_figures, settings_table
from eaglelab.report.reproduce import command_line, lacks_a_secret, show_again
from eaglelab.report.served import served
from eaglelab.runs.evidence import RunEvidence

__all__ = ["Commands", "Page", "log_page", "run_page"]

_DEFINED = ("cycle", "event_ms", "accept_length", "correct_drafts", "survival", "conditional", "other", "ci95", "skew")


@dataclass(frozen=True)
class Commands:
    """What was typed, None where that is not known, and what shows the report again."""

    again: str | None
    show: str

    @property
    def lacks_a_secret(self) -> bool:
        """Whether something in it has to be given again by hand."""
        return self.again is not None and lacks_a_secret(self.again)


@dataclass(frozen=True)
class Page:
    """One report.

    `about` says in a few words what it is of. `simulated` is the label of a simulated GPU. `model` and `ranking` are sentences
    under a title each; `notes` those on what the model rests on and on what could not be read.
    """

    title: str
    about: tuple[str, ...]
    simulated: str | None
    headline: Headline
    model: tuple[tuple[str, tuple[str, ...]], ...]
    ranking: tuple[tuple[str, tuple[str, ...]], ...]
    charts: Charts
    diagnoses: tuple[Diagnosis, ...]
    findings: tuple[Told, ...]
    tables: tuple[tuple[str, Table], ...]
    environment: tuple[Block, ...]
    commands: Commands | None
    notes: tuple[str, ...]
    definitions: tuple[tuple[str, str], ...] = tuple((name, DEFINITIONS[name]) for name in _DEFINED)


def run_page(evidence: RunEvidence, explained: Sequence[Explained], diagnoses: Sequence[Diagnosis]) -> Page:
    """The report of a run on one host."""
    measured = evidence.measured
    ranked = rankings(measured) if measured else {}
    began = [] if evidence.began is None else [time.strftime("%Y-%m-%d %H:%M", time.localtime(evidence.began))]
    several = len(evidence.request.get("hosts") or ()) > 1
    figures = [("Every measurement", figures_table(measured))] if measured and measured.measurements else []
    asked = served(evidence)
    figures += [("Every setting, by sglang.bench_serving", serving_figures(asked))] if asked else []
    profiled = [] if measured else list(evidence.settings())
    unfinished = () if evidence.finished else ("The run did not come to its end: this is what it left.",)
    return Page(
        title=f"{evidence.run} on {evidence.host}" if evidence.host else evidence.run,
        about=tuple(filter(None, [evidence.command, evidence.host, *began, _version(evidence.sglang)])),
        simulated=evidence.simulated,
        headline=run_headline(evidence, explained, diagnoses),
        model=_model(explained),
        ranking=tuple(
            (f"Ranking at concurrency {batch}", ranking_sentences(ranking)) for batch, ranking in ranked.items()
        ),
        charts=run_charts(evidence, explained),
        diagnoses=tuple(diagnoses),
        findings=run_findings(evidence, lambda found: not_said_again(found, diagnoses)),
        tables=(*figures, *([("Every setting", settings_table(profiled))] if profiled else [])),
        environment=run_environment(evidence),
        commands=Commands(command_line(evidence.request), show_again(evidence.run, evidence.host, several)),
        notes=(*unfinished, *_notes(explained), *evidence.problems),
    )


def log_page(
    name: str,
    report: LogReport,
    explained: Sequence[Explained],
    diagnoses: Sequence[Diagnosis],
    show: str,
    lines: Callable[[], Iterable[bytes]] | None,
) -> Page:
    """The report of a server's log.

    `name` is what it is called, `show` the command that shows it again; `lines` reads it again, None where that cannot be.
    """
    settings = list(report.profile.settings) if report.profile else []
    tables = [("Every setting", settings_table(settings))] if settings else []
    tables += [("SGLang's decode lines", decode_table(report.decode))] if report.decode else []
    return Page(
        title=name,
        about=tuple(filter(None, ["server log", f"{report.lines} lines", _version(report.sglang)])),
        simulated=report.simulated,
        headline=log_headline(report, explained, diagnoses),
        model=_model(explained),
        ranking=(),
        charts=log_charts(report, explained, lines),
        diagnoses=tuple(diagnoses),
        findings=(),
        tables=tuple(tables),
        environment=log_environment(report),
        commands=Commands(None, show),
        notes=(*_notes(explained), *report.problems, *(_block_notes(report))),
    )


def _version(sglang: str | None) -> str:
    return f"SGLang {sglang}" if sglang else ""


def _model(explained: Sequence[Explained]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple((f"The model at {_where(each)}", each.sentences) for each in explained if each.sentences)


def _notes(explained: Sequence[Explained]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(note for each in explained for note in each.notes))


def _where(explained: Explained) -> str:
    return f"batch size {explained.batch}" + (f", {explained.variation}" if explained.variation else "")


def _block_notes(report: LogReport) -> tuple[str, ...]:
    return tuple(dict.fromkeys(note for block in report.blocks for note in block.notes))
