"""Writes a report's page: whole or not at all, and after a run in a way that can never fail it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from eaglelab.errors import EaglelabError, InputError
from eaglelab.report.html.page import Page
from eaglelab.report.html.render import render
from eaglelab.report.reports import report_of_run
from eaglelab.report.reproduce import show_again
from eaglelab.runs.reading import read_run

__all__ = ["PAGE", "write_page", "write_report"]

PAGE = "report.html"
"""Its name in a bundle."""


def write_page(page: Page, path: Path) -> Path:
    """The page as one file. Raises InputError where it cannot be written."""
    text = render(page)
    half = path.with_name(f".{path.name}.part")
    try:
        half.write_text(text, encoding="utf-8", errors="replace")
        half.replace(path)
    except OSError as error:
        what = f"the report cannot be written: {error.strerror}"
        raise InputError(what, where=str(path), hint="--html takes a file that you may write") from error
    return path


def write_report(folder: Path, host: str | None, tell: Callable[[str], None]) -> Path | None:
    """Leaves `report.html` in the bundle of a host's run that has come to its end (None: of a run on one host, or on several
    that shared its loads), and says where.

    Nothing is raised: a host was measured, and what was found is in the bundle. What went wrong is told in a line, and None
    is returned; so it is where there is nothing to report on.
    """
    try:
        (evidence,) = read_run(folder, host)
        if evidence.empty:
            return None
        path = write_page(report_of_run(evidence).page(), evidence.folder / PAGE)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - a run that is done must not fail for its report
        what = error.what if isinstance(error, EaglelabError) else f"{type(error).__name__} {error}".strip()
        tell(f"no {PAGE}: {what}; {show_again(folder.name, host or '', several=host is not None)} --html tries again")
        return None
    here = Path.cwd()
    tell(f"report: {path.relative_to(here) if path.is_relative_to(here) else path}")
    return path
