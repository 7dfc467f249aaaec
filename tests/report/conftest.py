from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, browser, find_chromium
from bundles import measured_run

from eaglelab.report.reports import Report, report_of_run
from eaglelab.report.write import write_page
from eaglelab.runs.reading import read_run


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """A browser for all tests; where there is none they are skipped, but never in CI."""
    if find_chromium() is None:
        if os.environ.get("CI"):
            pytest.fail("there is no Chromium: sh tests/ensure-chromium installs it")
        pytest.skip("there is no Chromium here")
    with browser() as found:
        yield found


@pytest.fixture(scope="session")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A sweep at two concurrencies."""
    folder = tmp_path_factory.mktemp("runs") / "20261130-000000-sweep-0001"
    (evidence,) = read_run(measured_run(folder, concurrency=(1, 2)))
    return report_of_run(evidence)


@pytest.fixture(scope="session")
def page_file(swept: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its page."""
    return write_page(swept.page(), tmp_path_factory.mktemp("page") / "report.html")
