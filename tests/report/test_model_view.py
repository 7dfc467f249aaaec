from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from eaglelab.model.explain import explain
from eaglelab.model.explained import Explained
from eaglelab.model.from_log import explain_log
from eaglelab.model.seen import Plain, Seen
from eaglelab.profile.blocks import parse_blocks
from eaglelab.profile.log_report import LogReport
from eaglelab.report.model_view import model_view


def shown(*explained: Explained, width: int = 80, encoding: str = "utf-8") -> list[str]:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    Console(file=stream, width=width, force_terminal=False, color_system=None).print(model_view(explained))
    stream.seek(0)
    return [line.rstrip() for line in stream.read().splitlines()]


@pytest.fixture
def explained() -> Explained:
    events = {"draft": 0.5, "verify": 15.8, "extend": 1.26, "other": 1.0}
    seen = [
        Seen(2, 18.56, 1.745, 94.0, (93.0, 95.0), (0.4975, 0.2475), events),
        Seen(5, 27.6, 1.96, 71.0, (70.0, 72.0), (0.4975, 0.2475, 0.123, 0.061, 0.03)),
    ]
    return explain(1, seen, Plain(89.0, 11.24))


def test_a_row_shows_measured_and_predicted_throughput_side_by_side(explained: Explained) -> None:
    lines = shown(explained)[3:10]
    rows = {line.split()[0]: line.split() for line in lines}
    assert rows["2"][1] == "*"
    assert rows["2"][2] == "94.0"
    assert "18.56" in rows["2"]
    assert rows["3"][1] == "-"
    assert rows["6"][1] == "~"
    assert list(rows) == ["1", "2", "3", "4", "5", "6", "7"]


def test_it_fits_into_eighty_columns_and_loses_nothing(explained: Explained) -> None:
    narrow, wide = shown(explained), shown(explained, width=500)
    assert max(map(len, narrow)) <= 80
    assert " ".join(" ".join(narrow).split()).count("What it would be worth") == 1
    for sentence in explained.sentences:
        assert sentence in " ".join(" ".join(narrow).split())
        assert any(sentence in line for line in wide)


def test_levers_are_shown_largest_first_with_their_bound(explained: Explained) -> None:
    lines = shown(explained)
    start = next(index for index, line in enumerate(lines) if line.startswith("what if"))
    shown_levers = lines[start + 1 : start + 1 + len(explained.levers)]
    assert [line.split("  ")[0] for line in shown_levers] == [lever.name for lever in explained.levers]
    assert all("<=" in line for line in shown_levers)
    assert shown_levers[0].endswith("\u2501" * 10)


def test_a_terminal_without_unicode_gets_plain_bars(explained: Explained) -> None:
    assert any(line.endswith("#" * 10) for line in shown(explained, encoding="ascii"))


def test_what_is_varied_is_no_markup(explained: Explained) -> None:
    lines = shown(replace(explained, variation="NCCL_ALGO=[red]Ring\x1b[2J"))
    assert "model, one request at a time, NCCL_ALGO=[red]Ring" in lines[0]
    assert "\x1b" not in "".join(lines)


def test_each_batch_size_has_its_part_and_the_legend_comes_once(explained: Explained) -> None:
    text = "\n".join(shown(explained, replace(explained, batch=4)))
    assert "model, one request at a time:" in text
    assert "model, 4 requests at a time:" in text
    assert text.count("*: may be the fastest") == 1


def test_a_log_that_does_not_name_the_step_count_is_shown_without_one() -> None:
    lines = [
        "EAGLE3_PROF (400 cycles, 394 accepted)",
        "Draft steps: 2.18 ms",
        "Target verify: 28.45 ms",
        "Draft re-extend: 1.12 ms",
        "Other overhead: 0.00 ms",
        "TOTAL: 31.74 ms",
        "Accept len: 0.98",
        "Eff tok/s: 31.0",
    ]
    blocks = tuple(parse_blocks(lines))
    text = shown(*explain_log(LogReport(8, None, None, (), (), blocks, 1, (), 0, 0, None, ())))
    assert any(line.split()[:3] == ["?", "*", "62.4"] for line in text)
    assert any(">= 67.0" in line for line in text)


def test_nothing_explained_is_nothing_shown() -> None:
    assert shown() in ([], [""])
