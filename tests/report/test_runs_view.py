"""The list of runs and their trend, as a terminal of 80 columns shows them."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console, RenderableType

from eaglelab.report.runs_view import Spark, runs_table, trend_table
from eaglelab.runs.history import trends
from eaglelab.runs.rows import RunRow, SettingRow

RUN = RunRow("r0", "a", "bench", 0.0, True, "/m", None, "0.5.9", "8 x H200", "550", 8, "", None, "said", "/logs/r0")


def shown(renderable: RenderableType, encoding: str = "utf-8", width: int = 80) -> list[str]:
    raw = io.BytesIO()
    console = Console(file=io.TextIOWrapper(raw, encoding=encoding), width=width, color_system=None)
    console.print(renderable)
    console.file.flush()
    return [line.rstrip() for line in raw.getvalue().decode(encoding).splitlines()]


def measured(number: int, rate: float, sglang: str = "0.5.9") -> RunRow:
    setting = SettingRow("requests", 2, "", 1, rate, rate - 1, rate + 1)
    return replace(RUN, run=f"r{number}", began=float(number), sglang=sglang, settings=(setting,))


def test_a_line_has_a_mark_for_each_figure() -> None:
    assert shown(Spark([1.0, 2.0, 3.0, 8.0])) == ["▁▂▃█"]
    assert shown(Spark([5.0, 5.0])) == ["▅▅"]
    assert shown(Spark([1.0, 2.0, 3.0, 8.0]), "ascii") == ["__.^"]
    assert len(shown(Spark([float(n) for n in range(100)]))[0]) == 14


def test_a_trend_says_what_is_like_with_like_and_how_the_newest_stands() -> None:
    rates = [100.0, 101.0, 99.0, 80.0]
    lines = shown(trend_table(trends([measured(number, rate) for number, rate in enumerate(rates)])))
    assert lines[0] == "a, /m, 8 x H200, tp 8"
    assert lines[3].split() == ["2", "steps", "1", "4", "███▁", "80.0", "100.0", "-20.0", "5.1", "worse"]


def test_many_runs_fit_into_80_columns() -> None:
    lines = shown(trend_table(trends([measured(number, 100.0 + number % 3) for number in range(1000)])))
    assert lines[3].split()[-1] == "tie"


def test_another_release_is_named_and_a_narrow_terminal_hides_nothing() -> None:
    lines = shown(trend_table(trends([measured(0, 100.0), measured(1, 90.0, "0.5.12")])))
    assert lines[3].startswith("2 steps ")
    assert lines[3].endswith("worse")
    assert lines[4] == "  the newest ran another sglang: 0.5.9 -> 0.5.12"


def test_names_cannot_steer_the_terminal() -> None:
    evil = replace(RUN, run="r\x1b[2J", host="[bold]h", headline="x\x07\u202e")
    text = "\n".join(shown(runs_table([evil])))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[bold]h" in text
