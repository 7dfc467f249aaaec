"""A comparison as a terminal of 80 columns shows it."""

from __future__ import annotations

import io
from dataclasses import replace

from evidence_kit import measurement, run
from rich.console import Console

from eaglelab.compare.comparison import Comparison, Side, compare
from eaglelab.compare.gate import parse_gate
from eaglelab.compare.verdicts import judge
from eaglelab.report.compare_view import comparison_view

STEADY = (100.0, 102.0, 98.0, 101.0)


def comparison(share: float = 0.9) -> Comparison:
    first = run("a", measurement(None, STEADY), measurement(2, STEADY, phases={}))
    rates = [rate * share for rate in STEADY]
    second = run("b", measurement(None, STEADY), measurement(2, rates, phases={"verify": 17.8}), workload={"seed": 7})
    return compare(Side("A", (first,)), Side("B", (second,)))


def lines(found: Comparison, *gates: str) -> list[str]:
    out = io.StringIO()
    verdicts = judge([parse_gate(gate) for gate in gates], found)
    Console(file=out, width=80, color_system=None).print(comparison_view(found, verdicts))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_a_setting_has_its_figures_its_difference_and_its_interval() -> None:
    shown = lines(comparison())
    header = next(number for number, line in enumerate(shown) if line.startswith("steps  conc"))
    assert shown[header - 1].split() == ["tok/s", "tok/s", "tok/s", "acc", "len", "acc", "len", "acc", "len"]
    none, two = shown[header + 1].split(), shown[header + 2].split()
    assert none[:5] == ["none", "1", "100.2", "100.2", "0.0"]
    assert none[8:] == ["=", "-", "-", "-"]
    assert two[:5] == ["2", "1", "100.2", "90.2", "-10.0"]
    assert two[-3:] == ["2.000", "2.000", "0.000"]


def test_phases_have_a_table_of_their_own() -> None:
    text = "\n".join(lines(comparison()))
    assert "verify" in text
    assert "+2.000" in text


def test_what_is_unlike_is_warned_of_and_what_changed_is_listed() -> None:
    text = " ".join(" ".join(lines(comparison())).split())
    assert "Not like with like: seed 42 -> 7." in text
    assert "changed: seed: 42 -> 7" in text


def test_gates_say_whether_they_held() -> None:
    shown = [
        line.split()[0] for line in lines(comparison(), "tok_s@2 >= -3%", "verify_ms <= +3") if "at 2 steps" in line
    ]
    assert shown[-2:] == ["missed", "held"]


def test_runs_with_nothing_in_common_have_no_table() -> None:
    first, second = run("a", measurement(2, STEADY)), run("b", measurement(3, STEADY))
    text = "\n".join(lines(compare(Side("A", (first,)), Side("B", (second,)))))
    assert "no setting in common" in text
    assert "a tie;" not in text


def test_markup_in_names_is_shown_as_it_is() -> None:
    found = comparison()
    first = replace(found.reference.runs[0], run="[bold]a", host="[/x]")
    text = "\n".join(lines(compare(Side("A", (first,)), found.candidate)))
    assert "[bold]a:[/x]" in text
