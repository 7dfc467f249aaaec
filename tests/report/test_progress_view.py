"""What a terminal shows while a load runs."""

from __future__ import annotations

from rich.console import Console

from eaglelab.report.progress_view import progress_table
from eaglelab.sweep.progress import SettingSoFar


def test_every_setting_has_a_row_with_what_is_known_so_far() -> None:
    console = Console(width=80, force_terminal=False)
    settings = [SettingSoFar(2, 3, 12, 94.04, 1.745), SettingSoFar(5, 0, 12, None, None)]
    with console.capture() as captured:
        console.print(progress_table(settings))
    lines = [line.split() for line in captured.get().splitlines()]
    assert lines[1][0] == "2"
    assert lines[1][-3:] == ["3/12", "94.0", "1.75"]
    assert lines[2] == ["5", "0/12", "-", "-"]
