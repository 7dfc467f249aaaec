"""A run or a log as a report: its headline, what the terminal shows, what the page holds, its charts and its cycles."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from eaglelab.diagnosis import diagnose, facts_of_log, facts_of_run
from eaglelab.model.explained import Explained
from eaglelab.model.from_log import explain_log
from eaglelab.model.from_run import explain_run
from eaglelab.printable import printable
from eaglelab.profile.log_report import LogReport
from eaglelab.profile.log_source import DamagedLogError, chunks
from eaglelab.profile.logfile import record_lines
from eaglelab.profile.records import read_records
from eaglelab.profile.summary import summarise
from eaglelab.report.diagnosis_view import diagnosis_view
from eaglelab.report.headline import Headline, log_headline, run_headline
from eaglelab.report.html.page import Page, log_page, run_page
from eaglelab.report.measurement_view import measurement_table
from eaglelab.report.model_view import model_view
from eaglelab.report.served import served
from eaglelab.report.serving_view import serving_table
from eaglelab.report.terminal import log_report, profile_table
from eaglelab.runs.evidence import LoadEvidence, RunEvidence
from eaglelab.runs.server_log import log_of

__all__ = ["Report", "report_of_log", "report_of_run"]


@dataclass(frozen=True)
class Report:
    """`view` is for the terminal, `json` for programs. `page` and `cycles` read what they need when they are called.

    `cycles` gives the lines of the probe's records, in the order in which a trace has them.
    """

    title: str
    headline: Headline
    view: RenderableType
    json: Mapping[str, Any]
    page: Callable[[], Page]
    cycles: Callable[[], Iterator[bytes]]


def report_of_run(evidence: RunEvidence) -> Report:
    """Of one host of a run."""
    evidence = replace(evidence, loads=tuple(_with_profile(load, evidence.simulated) for load in evidence.loads))
    explained = explain_run(evidence)
    diagnoses = diagnose(facts_of_run(evidence, log_of(evidence.loads)))
    headline = run_headline(evidence, explained, diagnoses)
    profiles = {load.name or ".": load.profile.to_json() for load in evidence.loads if load.profile is not None}
    return Report(
        title=evidence.run,
        headline=headline,
        view=Group(*_run_view(evidence, headline, explained), diagnosis_view(diagnoses), *_problems(evidence.problems)),
        json={
            "headline": list(headline.sentences),
            "next": headline.following,
            "profiles": profiles,
            "model": [each.to_json() for each in explained],
            "diagnosis": [each.to_json() for each in diagnoses],
            "problems": list(evidence.problems),
        },
        page=lambda: run_page(evidence, explained, diagnoses),
        cycles=lambda: _run_cycles(evidence.loads),
    )


def report_of_log(name: str, files: Sequence[Path], show: str, report: LogReport) -> Report:
    """Of a log that was read, called `name`; `show` is the command that shows it again.

    `files` is what it was read from: none where it came from standard input, which cannot be read twice.
    """
    again = partial(_log_lines, files) if files else None
    explained = explain_log(report)
    diagnoses = diagnose(facts_of_log(report))
    headline = log_headline(report, explained, diagnoses)
    parts: list[RenderableType] = [*_head(headline), log_report(report)]
    parts += ["", model_view(explained)] if explained else []
    return Report(
        title=name,
        headline=headline,
        view=Group(*parts, "", diagnosis_view(diagnoses)),
        json={
            "headline": list(headline.sentences),
            "next": headline.following,
            "log": report.to_json(),
            "model": [each.to_json() for each in explained],
            "diagnosis": [each.to_json() for each in diagnoses],
        },
        page=lambda: log_page(name, report, explained, diagnoses, show, again),
        cycles=partial(_log_lines, files),
    )


def _with_profile(load: LoadEvidence, simulated: str | None) -> LoadEvidence:
    """A run that was ended early has records and no profile of them yet."""
    if load.profile is not None or not load.probe_files:
        return load
    return replace(load, profile=summarise(read_records(record_lines(load.probe_files)), simulated=simulated))


def _head(headline: Headline) -> Iterator[RenderableType]:
    yield Text(printable(headline.line), style="bold")
    yield from (Text(printable(sentence)) for sentence in headline.sentences[1:])
    yield ""


def _run_view(evidence: RunEvidence, headline: Headline, explained: Sequence[Explained]) -> Iterator[RenderableType]:
    yield from _head(headline)
    if evidence.measured is not None:
        at_a_rate = (evidence.request.get("vars") or {}).get("request_rate") is not None
        yield measurement_table(evidence.measured, ranked=not at_a_rate)
        yield ""
    elif (asked := served(evidence)) is not None:
        yield serving_table(asked)
        yield ""
    else:
        for load in evidence.loads:
            if load.profile is not None:
                yield profile_table(load.profile)
                yield ""
    if explained:
        yield model_view(explained)
        yield ""


def _problems(problems: Sequence[str]) -> Iterator[RenderableType]:
    yield from (Text(printable(f"  problem: {problem}"), style="yellow") for problem in problems)


def _run_cycles(loads: Sequence[LoadEvidence]) -> Iterator[bytes]:
    return record_lines([file for load in loads for file in load.probe_files])


def _log_lines(files: Sequence[Path]) -> Iterator[bytes]:
    for path in files:
        with path.open("rb", buffering=0) as file, suppress(DamagedLogError):  # told when the log was read
            for chunk in chunks(file):
                yield from chunk.splitlines()
