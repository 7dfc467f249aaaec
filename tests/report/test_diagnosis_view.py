from __future__ import annotations

import io

from rich.console import Console

from eaglelab.diagnosis import Diagnosis
from eaglelab.diagnosis.checks import Checked
from eaglelab.report.diagnosis_view import checks_table, diagnosis_view

SLOW = Diagnosis(
    "slower-than-plain",
    "alarm",
    "certain",
    "It is slower.",
    evidence=("throughput: 60.0 tok/s (measurements.json)",),
    try_next=("take fewer steps",),
    at=tuple(f"{steps} steps, batch 1" for steps in range(2, 8)),
)
NOTE = Diagnosis("no-baseline", "note", "certain", "There is no baseline.", evidence=("x",), try_next=("measure it",))


def shown(renderable: object, width: int = 100) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(renderable)
    return out.getvalue()


def test_a_diagnosis_shows_its_sentence_settings_figures_and_what_to_try() -> None:
    text = shown(diagnosis_view([SLOW]))
    assert "alarm: It is slower." in text
    assert "5 steps, batch 1 and 2 more" in " ".join(text.split())
    assert "- throughput: 60.0 tok/s (measurements.json)" in text
    assert "try: take fewer steps" in text


def test_a_note_is_its_sentence_only() -> None:
    text = shown(diagnosis_view([NOTE]))
    assert "note: There is no baseline." in text
    assert "measure it" not in text


def test_where_no_rule_speaks_that_is_said() -> None:
    assert "no rule has anything to say" in shown(diagnosis_view([]))


def test_a_sentence_with_what_looks_like_markup_or_steers_a_terminal_is_shown_as_it_is() -> None:
    odd = Diagnosis("x", "warning", "likely", "layers [2, 30, 58] [red]\x1b[2J")
    text = shown(diagnosis_view([odd]))
    assert "[2, 30, 58] [red]" in text
    assert "\x1b" not in text


def test_checks_are_a_table_with_the_figures_of_what_is_not_in_order_below() -> None:
    checks = [
        Checked("disk", "ok", "90.0 GiB free"),
        Checked("flags", "alarm", "SGLang does not know x.", "unknown-flags", "likely", ("flags: x",), ("correct it",)),
        Checked("clocks", "not known", "not read"),
    ]
    lines = shown(checks_table(checks)).splitlines()
    assert lines[1].split() == ["disk", "ok", "90.0", "GiB", "free"]
    assert [line.strip() for line in lines[4:]] == [
        "alarm: flags (unknown-flags, likely)",
        "- flags: x",
        "try: correct it",
    ]
