"""Libraries that are loaded while a server loads."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from eaglelab.report.ahead import LIBRARIES, load_ahead
assert not set(LIBRARIES) & set(sys.modules), "they are loaded ahead of nothing"
{before}
thread = load_ahead()
assert load_ahead() is thread
thread.join()
print(*(name for name in LIBRARIES if sys.modules.get(name)))
"""


def loaded(before: str = "") -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(before=before)], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_what_draws_a_report_is_loaded_in_the_background_once() -> None:
    assert loaded() == ["jinja2", "matplotlib.figure", "matplotlib.backends.backend_svg"]


def test_a_library_that_is_missing_is_left_to_whoever_needs_it() -> None:
    assert loaded("sys.modules['matplotlib'] = None") == ["jinja2"]


def test_nothing_waits_for_it_at_the_end() -> None:
    program = "from eaglelab.report.ahead import load_ahead; assert load_ahead().daemon"
    subprocess.run([sys.executable, "-c", program], check=True)
