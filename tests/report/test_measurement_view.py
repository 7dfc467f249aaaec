"""The tables of a measurement set, as a terminal of 80 and of 120 columns shows them."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from eaglelab.profile.bench import BenchResult, RequestSample
from eaglelab.profile.cross import agree, from_decode_lines, from_probe
from eaglelab.profile.decode_groups import DecodeGroup
from eaglelab.profile.findings import Finding
from eaglelab.profile.measurement_set import Failed, Measurement, MeasurementSet
from eaglelab.profile.records import read_records
from eaglelab.profile.stats import describe
from eaglelab.profile.summary import summarise
from eaglelab.report.folding import Column, Folding
from eaglelab.report.measurement_view import measurement_table

CASES = Path(__file__).parents[1] / "cases"
BLOCK = json.loads((CASES / "profile" / "rank0.jsonl").read_text().splitlines()[1])
RING = "NCCL_ALGO=Ring disable-custom-all-reduce"


def measured(steps, tok_s, *, batch=1, histogram=None, **more):
    """Four rounds that differ by up to 3 %; with a histogram also what the probe saw."""
    requests = [
        RequestSample(
            tokens=501,
            ttft_s=0.02 + 0.01 * number,
            e2e_s=501 * batch / tok_s * (1 + number / 100),
            verifies=None if steps is None else 250,
            start_s=20.0 * number,
            round=number,
            output_hash=str(number),
        )
        for number in range(4)
        for _ in range(batch)
    ]
    setting = None
    if histogram is not None:
        changed = {"steps": steps, "batch_size": batch, "correct_hist": histogram}
        (setting,) = summarise(read_records([json.dumps({**BLOCK, **changed})])).settings
    result = BenchResult(steps, batch, requests, profiled=setting is not None, **more)
    return Measurement(result, setting=setting)


OK = Finding("closure", "ok", "The cycle adds up.")
WARNING = Finding("graph-off", "warning", "1 of 5 cycles at 2 steps and 1 requests ran without a CUDA graph.")
PLAIN = MeasurementSet(
    (
        measured(10, 71.0, load="k2-10"),
        measured(10, 70.5, load="k2-10", histogram=[2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1]),
        measured(2, 94.0, load="k2-10"),
        replace(measured(2, 93.1, load="k2-10", histogram=[2, 2, 1]), findings=(OK, WARNING)),
        measured(None, 89.0, load="baseline"),
    ),
    simulated="simulated GPU",
)
VARIED = MeasurementSet(
    (*PLAIN.measurements, measured(2, 97.0, variation=RING), measured(None, 90.0, variation=RING)),
    failed=(Failed(10, RING, "out of memory: tried to allocate 2.00 GiB, 1.10 GiB are free"),),
)


def shown(renderable, width=80):
    console = Console(file=io.StringIO(), record=True, width=width, color_system=None)
    console.print(renderable)
    return "".join(f"{line.rstrip()}\n" for line in console.export_text().splitlines())


@pytest.mark.parametrize(("name", "given"), [("measurements", PLAIN), ("measurements-varied", VARIED)])
@pytest.mark.parametrize("width", [80, 120])
def test_the_tables_are_as_approved(name, given, width):
    approved = (CASES / "report" / f"{name}-{width}.txt").read_text(encoding="utf-8")
    assert shown(measurement_table(given), width) == approved


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
@pytest.mark.parametrize("given", [PLAIN, VARIED])
def test_nothing_is_cut_off_at_any_width(given, width):
    text = shown(measurement_table(given), width)
    assert max(map(len, text.splitlines())) <= width
    assert "\u2026" not in text
    words = text.split()
    # A figure of each table, the last column of each included.
    for figure in ("92.6", "10.877", "5410", "16.000", "18.750", "S_10", "0.200"):
        assert figure in words
    assert text.isascii()


def test_what_is_varied_has_a_column_only_where_something_is():
    assert "with" not in shown(measurement_table(PLAIN)).splitlines()[1].split()
    lines = shown(measurement_table(VARIED), 120).splitlines()
    assert lines[1].split()[:4] == ["steps", "with", "conc", "probe"]
    assert any(line.split()[:5] == ["2", "NCCL_ALGO=Ring", "1", "off", "4"] for line in lines)


def test_a_setting_that_failed_has_a_row_that_says_why():
    text = " ".join(shown(measurement_table(VARIED), 120).split())
    assert "10 steps with NCCL_ALGO=Ring disable-custom-all-reduce failed: out of memory: tried to allocate" in text
    alone = shown(measurement_table(MeasurementSet((), failed=(Failed(None, "", "no answer"),))))
    assert "the baseline  failed: no answer\n" in alone


def test_settings_of_separate_loads_are_said_to_be_and_those_of_one_are_not():
    assert "Measured in 2 separate loads" in shown(measurement_table(PLAIN))
    one = MeasurementSet(PLAIN.measurements[:4])
    assert "separate loads" not in shown(measurement_table(one))


def test_what_cannot_be_ranked_is_said_and_requests_at_a_rate_rank_nothing():
    few = MeasurementSet(
        tuple(
            Measurement(BenchResult(steps, 1, [RequestSample(10, 0.1, 1.0, start_s=0.0, round=0)])) for steps in (1, 2)
        )
    )
    assert "Not ranked: fewer than two rounds" in shown(measurement_table(few))
    assert "ranked" not in shown(measurement_table(few, ranked=False))
    assert "\nconcurrency 1:\n" in shown(measurement_table(PLAIN))
    assert "\nconcurrency 1:\n" not in shown(measurement_table(PLAIN, ranked=False))


def test_findings_name_their_setting_and_those_in_order_are_counted():
    lines = shown(measurement_table(PLAIN), 120).splitlines()
    assert (
        "  warning at 2 steps, concurrency 1: 1 of 5 cycles at 2 steps and 1 requests ran without a CUDA graph."
        in lines
    )
    assert "  1 check in order: closure" in lines


def test_what_the_settings_of_one_load_share_is_told_once_for_each_concurrency():
    shared = Finding("lines-after-idle", "note", "5 decode lines of the log are left out.")
    settings = [(1, 1), (2, 1), (2, 4)]
    given = MeasurementSet(
        tuple(replace(measured(steps, 90.0, batch=batch), findings=(shared,)) for steps, batch in settings)
    )
    notes = [line for line in shown(measurement_table(given), 120).splitlines() if "left out" in line]
    assert notes == [
        "  note at 1 step, 2 steps, concurrency 1: 5 decode lines of the log are left out.",
        "  note at 2 steps, concurrency 4: 5 decode lines of the log are left out.",
    ]


def test_sources_that_do_not_agree_are_listed_with_their_definitions():
    setting = PLAIN.measurements[3].setting
    lines = DecodeGroup(0, 1, 3, None, describe([2.6, 2.7, 2.65]), 0)
    readings = agree([from_probe(setting.acceptance), from_decode_lines([lines], 1, alone=True)])
    given = MeasurementSet((replace(PLAIN.measurements[3], readings=readings),))
    text = shown(measurement_table(given), 120)
    assert "accept length by source at 2 steps, concurrency 1:" in text
    assert "probe: 1.800 (5 verifies): 1 + correct drafts / verifies" in text
    assert "decode_lines: 2.650 (3 lines): mean of the log's `accept len`" in text


def test_names_from_elsewhere_are_neither_markup_nor_terminal_control():
    odd = "[bold]A=[/nope]\x1b[2J"
    given = MeasurementSet(
        (measured(2, 94.0, variation=odd), measured(3, 90.0, variation=odd)), failed=(Failed(5, odd, f"{odd}!"),)
    )
    text = shown(measurement_table(given), 200)
    assert "\x1b" not in text
    assert "[bold]A=[/nope]\\x1b[2J" in text
    assert "failed: [bold]A=[/nope]\\x1b[2J!" in text


def test_a_table_folds_only_where_it_must_and_repeats_its_first_columns():
    columns = [Column(f"c{number}", ["1234"]) for number in range(4)]
    folding = Folding([Column("key", ["x"])], columns)
    assert shown(folding, 27).splitlines() == ["key    c0    c1    c2    c3", "  x  1234  1234  1234  1234"]
    folded = shown(folding, 26).splitlines()
    assert folded[0].split() == ["key", "c0", "c1", "c2"]
    assert folded[3:] == ["key    c3", "  x  1234"]


def test_a_table_wider_than_the_terminal_in_its_first_columns_still_shows_a_figure_in_each_part():
    folding = Folding([Column("key", ["x" * 30])], [Column("a", ["1"]), Column("b", ["2"])])
    assert len(shown(folding, 34).splitlines()) == 5
