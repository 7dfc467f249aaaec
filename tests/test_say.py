from __future__ import annotations

import io
import os

import pytest
from rich.console import Console
from rich.table import Table

from eaglelab.masking import Masker
from eaglelab.say import Say


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def say(out: io.StringIO, clock: Clock) -> Say:
    return Say(Console(file=out, width=40, highlight=False), clock=clock, masker=Masker([], ["s3cret"]))


def test_a_long_line_is_not_broken(say: Say, out: io.StringIO) -> None:
    say.line("x" * 100)
    assert out.getvalue() == "x" * 100 + "\n"


def test_brackets_are_text_and_no_markup(say: Say, out: io.StringIO) -> None:
    say.line("[bold] layers [2, 30, 58]")
    say.progress("[red]")
    assert out.getvalue() == "[bold] layers [2, 30, 58]\n"


def test_secrets_are_masked_in_lines_and_in_progress(say: Say, out: io.StringIO, clock: Clock) -> None:
    say.line("key s3cret")
    clock.now = 11.0
    say.progress("key s3cret")
    assert out.getvalue() == "key ***\n  ... key ***\n"


def test_a_diff_comes_out_as_it_went_in(say: Say, out: io.StringIO) -> None:
    diff = "--- a/f\n+++ b/f\n@@ -1 +1,2 @@\n old\n+" + "new" * 40 + "\n"
    say.diff(diff)
    assert out.getvalue() == diff


def test_no_diff_is_no_line(say: Say, out: io.StringIO) -> None:
    say.diff("")
    assert out.getvalue() == ""


def test_where_nothing_can_be_redrawn_progress_is_a_line_every_ten_seconds(
    say: Say, out: io.StringIO, clock: Clock
) -> None:
    for second in range(35):
        clock.now = float(second)
        say.progress(f"at {second}")
    assert out.getvalue() == "  ... at 10\n  ... at 20\n  ... at 30\n"


def test_a_line_that_stays_counts_as_progress(say: Say, out: io.StringIO, clock: Clock) -> None:
    clock.now = 9.0
    say.line("done")
    clock.now = 11.0
    say.progress("again")
    assert out.getvalue() == "done\n"


def test_on_a_terminal_progress_is_redrawn_and_gone_when_a_line_follows(clock: Clock) -> None:
    out = io.StringIO()
    say = Say(Console(file=out, force_terminal=True, width=40, highlight=False), clock=clock)
    say.progress("loading")
    say.progress("warming up")
    say.line("done")
    assert "done\n" in out.getvalue()
    assert "\x1b[?25h" in out.getvalue()  # the cursor is shown again


def test_with_several_hosts_each_line_names_its_own(say: Say, out: io.StringIO) -> None:
    say.for_host("a", Masker([], ["other"])).line("key other")
    say.for_host("", Masker()).line("plain")
    assert out.getvalue() == "a | key ***\nplain\n"


def test_tables_are_shown(say: Say, out: io.StringIO) -> None:
    table = Table("head")
    table.add_row("cell")
    say.show(table)
    assert "cell" in out.getvalue()


@pytest.mark.parametrize("error", [BrokenPipeError, OSError])
def test_a_reader_that_goes_away_does_not_end_the_work(
    error: type[OSError], capsys: pytest.CaptureFixture[str]
) -> None:
    class Gone(io.StringIO):
        def write(self, _: str) -> int:
            raise error

        def fileno(self) -> int:
            return spare

    spare = os.open(os.devnull, os.O_WRONLY)
    say = Say.on(json=False)
    say.console.file = Gone()
    say.line("one")
    say.line("two")
    os.close(spare)


def test_with_json_all_that_is_said_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    Say.on(json=True).line("to a person")
    Say.on(json=False).line("also")
    assert capsys.readouterr() == ("also\n", "to a person\n")
