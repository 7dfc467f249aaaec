"""report: a run or a server's log shown again, explained, and as a page, charts and a trace. No host is contacted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from eaglelab.commands.options import filled
from eaglelab.commands.outcome import Outcome
from eaglelab.errors import InputError
from eaglelab.profile.logfile import STDIN, read_logs
from eaglelab.report.charts.files import write_plots
from eaglelab.report.reports import Report, report_of_log, report_of_run
from eaglelab.report.reproduce import show_log_again
from eaglelab.report.trace import write_trace
from eaglelab.report.write import PAGE, write_page
from eaglelab.runs.evidence import RunEvidence
from eaglelab.runs.naming import find_run, unknown_run
from eaglelab.runs.reading import read_run
from eaglelab.say import Say

__all__ = ["Wanted", "report"]

_MARKS = ("request.json", "events.jsonl", "inventory.json")
"""One of these is in the folder of every run."""


@dataclass(frozen=True)
class Wanted:
    """What a command line asks for. `page`: a file, True for one in the usual place, None for none."""

    run: str | None = None
    logs: Sequence[str] = ()
    page: str | bool | None = None
    plots: str | None = None
    trace: str | None = None

    def __post_init__(self) -> None:
        """Raises InputError for an option that is there and empty, or that does not go with another."""
        for name, text in (("--run", self.run), *(("--log", log) for log in self.logs)):
            filled(text, name)
        for name, path in (("--plots", self.plots), ("--trace", self.trace), ("--html", self.page)):
            filled(path if isinstance(path, str) else None, name)
        if self.run is not None and self.logs:
            raise InputError("a run and a log are two reports", where="--log", hint="leave out --run or --log")
        if self.trace is not None and STDIN in self.logs:
            raise InputError("a trace reads the log a second time", where="--trace", hint="give the log as a file")
        self._places()

    def _places(self) -> None:
        if self.plots is not None and Path(self.plots).exists() and not Path(self.plots).is_dir():
            raise InputError("it is no folder", where=self.plots, hint="--plots takes a folder")
        for name, path in (("--html", self.page), ("--trace", self.trace)):
            if isinstance(path, str) and Path(path).is_dir():
                raise InputError("it is a folder", where=path, hint=f"{name} takes a file")
            if isinstance(path, str) and not Path(path).absolute().parent.is_dir():
                raise InputError("its folder is not there", where=path, hint=f"mkdir -p {Path(path).parent}")

    @property
    def files(self) -> bool:
        """Whether anything is to be written to a place that was named."""
        return isinstance(self.page, str) or self.plots is not None or self.trace is not None


def report(project: Path, wanted: Wanted, outcome: Outcome, say: Say) -> None:
    """Shows what is wanted: logs, a run, or the newest run with a profile or measurements. Raises InputError."""
    if wanted.logs:
        _of_log(wanted, outcome, say)
    else:
        _of_run(project / "logs", wanted, outcome, say)


def _of_log(wanted: Wanted, outcome: Outcome, say: Say) -> None:
    found = read_logs(wanted.logs)
    files = [] if STDIN in wanted.logs else [Path(log) for log in wanted.logs]
    name = ", ".join(file.name for file in files) or "log from standard input"
    shown = report_of_log(name, files, show_log_again(wanted.logs), found)
    say.show(shown.view)
    outcome.more.update(shown.json)
    _write(shown, wanted, Path(f"{files[0].name}.html" if files else PAGE), outcome, say)


def _of_run(logs: Path, wanted: Wanted, outcome: Outcome, say: Say) -> None:
    evidence = _evidence(logs, wanted.run)
    if len(evidence) > 1 and wanted.files:
        names = ", ".join(each.host for each in evidence)
        raise InputError(
            f"run {evidence[0].run} is one of several hosts: {names}",
            where="--run",
            hint=f"--run {evidence[0].run}:{evidence[0].host} names one of them",
        )
    folder = evidence[0].folder if len(evidence) == 1 else evidence[0].folder.parent
    outcome.run, outcome.bundle = evidence[0].run, folder
    told = outcome.more.setdefault("reports", {})
    for each in evidence:
        shown = report_of_run(each)
        if len(evidence) > 1:
            say.line(f"host {each.host}", style="bold")
        say.show(shown.view)
        told[each.host] = dict(shown.json)
        _write(shown, wanted, each.folder / PAGE, outcome, say)
    outcome.more.update(told[evidence[0].host])


def _evidence(logs: Path, named: str | None) -> tuple[RunEvidence, ...]:
    """The run that is meant. Raises InputError where there is none, or nothing about speed is in it."""
    if named is None:
        return _newest(logs)
    folder, host = _folder(logs, named)
    if not any((folder / mark).exists() for mark in _MARKS):
        raise _says_nothing(folder)
    found = tuple(each for each in read_run(folder, host) if not _nothing(each))
    if not found:
        raise _says_nothing(folder)
    return found


def _folder(logs: Path, named: str) -> tuple[Path, str | None]:
    """The folder of `RUN[:HOST]`, named as in `invoke compare`, and the host."""
    run, _, host = named.rpartition(":")
    for name, at in ((named, None), (run, host)) if run and host else ((named, None),):
        folder = find_run(logs, name)
        if folder is not None:
            return folder, at
    raise unknown_run(logs, named)


def _newest(logs: Path) -> tuple[RunEvidence, ...]:
    for folder in sorted(logs.iterdir(), reverse=True) if logs.is_dir() else []:
        try:
            found = tuple(each for each in read_run(folder) if not _nothing(each))
        except InputError:  # no folder of a run, or one in which nothing was begun
            continue
        if found:
            return found
    hint = "invoke deploy-profiling or bench makes one; --log FILE reads a server's log"
    raise InputError("no run here has a profile yet, nor measurements", where=str(logs), hint=hint)


def _nothing(evidence: RunEvidence) -> bool:
    return evidence.empty and not any(load.probe_files for load in evidence.loads)


def _says_nothing(folder: Path) -> InputError:
    hint = f"see what is in {folder}; a server's log can be read with --log FILE"
    return InputError(f"run '{folder.name}' has no profile and no measurements", where="--run", hint=hint)


def _write(shown: Report, wanted: Wanted, usual: Path, outcome: Outcome, say: Say) -> None:
    """The files that were asked for, each said and put into the outcome."""
    written = outcome.more.setdefault("written", [])
    if wanted.page or wanted.plots is not None:
        page = shown.page()
        if wanted.page:
            path = write_page(page, usual if wanted.page is True else Path(wanted.page))
            say.line(f"report: {path}")
            written.append(str(path))
        if wanted.plots is not None:
            files = write_plots(page.charts.every, Path(wanted.plots))
            say.line(f"charts: {len(files)} files in {wanted.plots}")
            written += map(str, files)
    if wanted.trace is not None:
        about = {"report": shown.title, "source": "eaglelab", "clock": "GPU time of kept cycles"}
        traced = write_trace(shown.cycles(), Path(wanted.trace), about)
        left_out = f"; {traced.left_out} damaged lines left out" if traced.left_out else ""
        say.line(f"trace: {wanted.trace}, {traced.cycles} cycles; open it in ui.perfetto.dev{left_out}")
        written.append(wanted.trace)
