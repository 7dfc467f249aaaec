"""Lines where nothing is coloured or redrawn, and what may become of whoever reads them."""

from __future__ import annotations

import io
import os
import sys

import pytest
from rich.table import Table

from eaglelab.plain import Plain, is_plain
from eaglelab.say import Say


def test_lines_go_out_as_they_are_however_long() -> None:
    out = io.StringIO()
    Say(Plain(out)).line("[bold]\ta " + "x" * 200, style="red")
    assert out.getvalue() == "[bold]\ta " + "x" * 200 + "\n"


def test_a_diff_and_its_host_stay_together() -> None:
    out = io.StringIO()
    Say(Plain(out), host="a").diff("--- f\n+++ f\n")
    assert out.getvalue() == "a |\n--- f\n+++ f\n"


def test_a_table_is_drawn_in_its_place_among_the_lines() -> None:
    out = io.StringIO()
    say, table = Say(Plain(out)), Table(box=None, show_header=False)
    table.add_row("cell")
    say.line("before")
    say.show(table)
    say.line("after")
    assert [line.strip() for line in out.getvalue().splitlines()] == ["before", "cell", "after"]


def test_a_reader_that_went_away_ends_nothing() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as file:
        say = Say(Plain(file))
        say.line("one")
        say.line("two")
        assert say.console.quiet


def test_a_stream_that_was_closed_from_the_start_is_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    say = Say.on(json=False)
    say.line("one")
    say.show(Table("two"))
    assert isinstance(say.console, Plain)


def test_a_file_that_is_no_terminal_is_plain_unless_a_variable_asks_for_colour() -> None:
    assert is_plain(io.StringIO(), {})
    assert not is_plain(io.StringIO(), {"FORCE_COLOR": "1"})
