"""What servers, logs and hosts say is data: it never reaches the terminal as anything but text."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text

from eaglelab.drawing import console_on
from eaglelab.plain import Plain
from eaglelab.printable import printable
from eaglelab.profile.logfile import read_log
from eaglelab.report.terminal import log_report
from eaglelab.say import Say

ATTACKS = [
    "\x1b[2J\x1b[H",
    "\x1b]52;c;cm0gLXJmIH4=\x07",
    "\x1b]8;;http://evil\x1b\\here\x1b]8;;\x1b\\",
    "\x1bP+q544e\x1b\\",
    "\x9b2J",
    "safe\rrm -rf",
    "\u202etxt.exe",
    "[red]markup[/red][/]",
    ":warning:",
]
STEERING = [chr(code) for code in [*range(9), *range(11, 32), *range(127, 160), 0x202E, 0x2066]]


def said(do: Callable[[Say], Any], *, drawn: bool = True, terminal: bool = False) -> str:
    """What a console writes: one that draws, as on a terminal, or the plain one of files and pipes."""
    out = io.StringIO()
    console: Any = console_on(out) if drawn else Plain(out)
    if drawn:
        console.width = 200
        console._force_terminal = console.is_interactive = terminal
    say = Say(console)
    do(say)
    say.settle()
    return out.getvalue()


@pytest.mark.parametrize("drawn", [True, False])
@pytest.mark.parametrize("attack", ATTACKS)
def test_lines_diffs_and_tables_show_it_as_text(attack: str, drawn: bool) -> None:
    def everything(say: Say) -> None:
        say.line(f"log: {attack}")
        say.diff(f"--- {attack}\n+{attack}\n")
        table = Table("head")
        table.add_row(f"cell {attack}")
        table.add_row(Text(f"text {attack}"))
        say.show(table)

    shown = said(everything, drawn=drawn)
    assert not set(shown) & set(STEERING)
    # Rich drops some characters of a cell by itself, such as the bell.
    assert shown.count(printable(attack.rstrip("\x07"))[-6:]) >= 5


@given(st.text(max_size=30), st.booleans())
def test_whatever_it_is_nothing_steers(text: str, drawn: bool) -> None:
    shown = said(lambda say: say.line(text), drawn=drawn)
    assert not set(shown) & set(STEERING)
    shown.encode()


def test_what_goes_on_right_now_is_text_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")

    def redraw(say: Say) -> None:
        say.progress("loading \x1b]0;x\x07")
        assert say._status is not None
        say._status._live.refresh()

    shown = said(redraw, terminal=True)
    assert r"loading \x1b]0;x\x07" in shown
    assert "\x1b]0;" not in shown


def test_a_server_log_full_of_attacks_is_reported_as_text(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    attack = "".join(ATTACKS)
    log.write_text(
        f"[2026-01-01 10:00:00] server_args=ServerArgs(model_path='{attack}', tp_size=1)\n"
        f"EAGLE3_PROF probe 1.0.0 active: class={attack} rank=0/1 sglang={attack} clock={attack}\n"
        "EAGLE3_PROF (400 cycles, 394 accepted)\n  Draft steps: 2.18 ms\n  TOTAL: 31.74 ms\n  Accept len: 0.98\n",
        encoding="utf-8",
    )
    shown = said(lambda say: say.show(log_report(read_log(log))))
    assert not set(shown) & set(STEERING)
