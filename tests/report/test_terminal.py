from __future__ import annotations

import io
import json
from itertools import chain
from pathlib import Path

import pytest
from rich.console import Console

from eaglelab.profile.blocks import parse_blocks
from eaglelab.profile.logfile import read_log
from eaglelab.profile.records import read_records
from eaglelab.profile.summary import summarise
from eaglelab.report.terminal import blocks_table, log_report, profile_table

CASES = Path(__file__).parents[1] / "cases"
PROFILE = CASES / "profile"


def render(renderable, *, width=80):
    """What a terminal without colour shows, without the blanks at line ends."""
    out = io.StringIO()
    Console(file=out, width=width, color_system=None, force_terminal=False).print(renderable)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


def profile(simulated=None, **changes):
    """Both ranks of the hand-computed case, with some fields of every block replaced."""
    lines = chain.from_iterable((PROFILE / name).read_text().splitlines() for name in ("rank0.jsonl", "rank1.jsonl"))
    records = (json.loads(line) for line in lines)
    changed = (json.dumps({**record, **changes} if record["kind"] == "block" else record) for record in records)
    return summarise(read_records(changed), simulated=simulated)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("profile", lambda: profile_table(profile(simulated="simulated GPU"))),
        ("old-block", lambda: log_report(read_log(PROFILE / "old-block.log"))),
        ("server", lambda: log_report(read_log(PROFILE / "server.log"))),
    ],
)
def test_a_report_at_80_columns_is_as_approved(name, shown):
    assert render(shown()) == (CASES / "report" / f"{name}.txt").read_text(encoding="utf-8")


def test_a_simulated_profile_says_so_first_and_a_real_one_never_does():
    assert render(profile_table(profile(simulated="simulated GPU"))).startswith("simulated GPU: ")
    assert "simulated" not in render(profile_table(profile()))


def test_the_old_block_shows_both_accept_lengths_and_both_rates():
    shown = render(blocks_table(parse_blocks((PROFILE / "old-block.log").read_text().splitlines())))
    rows = [line.split() for line in shown.splitlines()]
    assert ["accept", "length", "(tokens", "a", "verify)", "0.98", "1.98"] in rows
    assert ["tok/s", "31.0", "62.4"] in rows
    assert "the draft's GPU time is charged to verify" in shown


def test_of_many_blocks_the_newest_three_are_shown():
    shown = render(blocks_table(parse_blocks((PROFILE / "probe-block.log").read_text().splitlines() * 5)))
    assert shown.startswith("  5 blocks; the newest 3 are shown")
    assert shown.count("EAGLE3_PROF block at line") == 3
    assert "line 33" in shown
    assert "line 9 " not in shown


@pytest.mark.parametrize(
    "shown",
    [
        lambda: profile_table(profile(simulated="simulated GPU", steps=12, sync=True)),
        lambda: log_report(read_log(PROFILE / "server.log")),
        lambda: log_report(read_log(PROFILE / "probe-block.log")),
    ],
)
def test_an_ascii_terminal_of_80_columns_shows_all_of_it(shown):
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii", errors="strict")
    Console(file=out, width=80, color_system=None).print(shown())
    out.flush()
    text = raw.getvalue().decode("ascii")
    assert max(map(len, text.splitlines())) <= 80
    assert text == text.replace("\x1b", "")


def test_a_dumb_terminal_gets_no_control_sequences():
    out = io.StringIO()
    Console(file=out, force_terminal=True, width=80, _environ={"TERM": "dumb"}).print(profile_table(profile()))
    assert "\x1b" not in out.getvalue()


def test_figures_of_a_column_end_in_the_same_place():
    lines = render(profile_table(profile())).splitlines()
    rows = [line for line in lines if line.startswith(("draft ", "verify ", "extend ", "other ", "total "))]
    means = ("0.500", "16.000", "1.250", "1.000", "18.750")
    ends = {line.index(mean) + len(mean) for line, mean in zip(rows, means, strict=True)}
    assert len(ends) == 1


def test_survival_of_many_steps_goes_over_two_rows_of_columns():
    shown = render(profile_table(profile(steps=12)))
    assert shown.count("drafts k") == 2
    assert [line.split()[-1] for line in shown.splitlines() if line.startswith("drafts k")] == ["10", "12"]


def test_a_batch_has_a_rate_in_all_beside_that_of_a_request():
    shown = render(profile_table(profile(batch_size=2, correct_hist=[4, 4, 2], kept_tokens=[4, 2, 6, 4], skipped=3)))
    assert "tok/s in all" in shown
    assert "213.3" in shown
    assert "106.7" in shown
    assert "unmeasured on request: 3" in shown.replace("\n" + " " * 40, " ")


def test_brackets_in_a_log_are_text_and_no_markup():
    shown = render(log_report(read_log(['{"schema": "[bold]x[/nope]"}'])))
    assert "[bold]x[/nope]" in shown
    assert "1 [/nope]" in render(profile_table(profile(dropped={"[/nope]": 1})))


def test_an_empty_log_says_that_nothing_was_found():
    assert "nothing in it says anything about speed" in render(log_report(read_log(["hello"]))).replace("\n ", "")
