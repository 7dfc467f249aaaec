"""Charts as data, and what drawing makes of it."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from bundles import measured_run, profiled_run
from PIL import Image

from eaglelab.errors import InputError
from eaglelab.model.explained import Lever
from eaglelab.profile.acceptance import acceptance
from eaglelab.report.charts.canvas import shown, to_svg
from eaglelab.report.charts.chart import Chart
from eaglelab.report.charts.files import write_plots
from eaglelab.report.charts.gather import run_charts
from eaglelab.report.charts.levers import lever_chart
from eaglelab.report.charts.palette import LIGHT
from eaglelab.report.charts.phases import PhaseBar, phase_chart
from eaglelab.report.charts.survival import Survival, survival_chart
from eaglelab.report.charts.svg import inline_svg
from eaglelab.report.charts.throughput import Curve, Rate, throughput_chart
from eaglelab.runs.reading import read_run

BAR = PhaseBar("2 steps", {"draft": 0.6, "verify": 15.4, "extend": 1.2, "other": 0.4, "total": 17.6}, 0.05, 900)
CURVE = Curve("measured", [Rate(1, 95.0, (93.0, 97.0)), Rate(2, 94.0), Rate(5, 71.0)])


def texts(svg):
    return [text.text for text in ElementTree.fromstring(svg).iter() if text.tag.endswith("text")]


def charts_of(folder, explained=()):
    (evidence,) = read_run(folder)
    return run_charts(evidence, explained)


def test_phases_are_told_in_words_figures_and_bars():
    chart = phase_chart("phases-1", "Phases", [BAR])
    assert chart.says.endswith("The longest is 2 steps: 17.60 ms, of which verify takes 88 %.")
    assert chart.table.header[0] == "setting"
    assert chart.table.rows == [["2 steps", "0.600", "15.400", "1.200", "0.400", "17.600", "0.050", "87.5", "900"]]
    assert {"2 steps", "15.40", "17.60"} <= set(texts(to_svg(chart)))


def test_a_long_name_stands_above_its_bar_and_is_cut_in_the_picture_only():
    name = "2 steps with " + "NCCL_ALGO=Ring " * 8
    chart = phase_chart("phases-1", "Phases", [PhaseBar(name, BAR.ms)])
    assert chart.table.rows[0][0] == name
    drawn = [text for text in texts(to_svg(chart)) if text and text.startswith("2 steps")]
    assert len(drawn) == 1
    assert len(drawn[0]) <= 58


def test_a_cycle_without_a_total_is_the_sum_of_its_phases():
    assert PhaseBar("line 3", {"draft": 2.18, "verify": 28.45, "extend": 1.12}).total == pytest.approx(31.75)


def test_throughput_names_the_best_of_each_curve_and_the_baseline():
    model = Curve("model", [Rate(1, 94.0, (90.0, 98.0)), Rate(2, 96.0, (91.0, 99.0))])
    chart = throughput_chart("t-1", "T", [CURVE], model, Rate(0, 88.8, (88.0, 89.6)), "tok/s")
    assert "measured: highest at 1 steps with 95.0 tok/s; model: highest at 2 steps with 96.0 tok/s" in chart.says
    assert chart.table.rows[0] == ["baseline", "none", "88.8", "88.0 to 89.6"]
    assert chart.table.rows[2] == ["measured", "2", "94.0", "-"]
    assert ["model", "2", "96.0", "91.0 to 99.0"] in chart.table.rows
    assert {"no speculation", "model", "measured", "95.0"} <= set(texts(to_svg(chart)))


def test_survival_has_both_figures_and_a_gap_where_nothing_is_known():
    found = acceptance([5, 5, 0, 0], 3)
    assert found is not None
    chart = survival_chart("s-1", "S", [Survival("1 step", acceptance([4, 6], 1)), Survival("3 steps", found)])
    assert chart.table.rows[0] == ["1 step", "S_k", "0.600", "", "", "1.60", "10"]
    assert chart.table.rows[3] == ["3 steps", "given k-1", "0.500", "0.000", "-", "", ""]
    assert to_svg(chart)


def test_a_lever_says_whether_its_figure_is_the_most_or_the_least():
    levers = [
        Lever("perfect", "Every draft right", "", 329.3, 2.405, 10, "at most", "acceptance 1"),
        Lever("idle", "No waiting", "", 101.0, 0.05, None, "at least", "as fast as its kernels"),
    ]
    chart = lever_chart("l-1", "L", levers)
    assert chart.table.rows[0] == ["Every draft right", "at most 240.5 %", "329.3", "10", "acceptance 1"]
    assert chart.table.rows[1][1:4] == ["at least 5.0 %", "101.0", "-"]
    assert "\N{LESS-THAN OR EQUAL TO} 240.5 %, 329 tok/s" in texts(to_svg(chart))
    # An outline for the most, a full bar for the least.
    bars = re.findall(r"fill: (\S+?)[;\"]", to_svg(chart))
    assert bars.count(LIGHT["good"]) == 1


@pytest.mark.parametrize("levers", [[0.0], [0.3, 0.0], [-0.1]])
def test_levers_that_are_worth_nothing_are_drawn(levers):
    found = [Lever(str(n), "L", "", 90.0, gain, 2, "at most", "") for n, gain in enumerate(levers)]
    assert to_svg(lever_chart("l-1", "L", found))


def test_a_run_gives_its_charts_by_concurrency_from_requests_the_probe_left_alone(tmp_path):
    charts = charts_of(measured_run(tmp_path / "r", concurrency=(1, 2)))
    assert [chart.name for chart in charts.every] == [
        *("throughput-1", "throughput-2", "phases-1", "phases-2", "survival-1", "survival-2", "time-1", "time-2"),
    ]
    assert charts.phases[0].table.rows[1][:3] == ["2 steps", "0.600", "15.400"]
    (baseline,) = [row for row in charts.throughput[0].table.rows if row[0] == "baseline"]
    assert float(baseline[2]) == pytest.approx(88 * 0.979, rel=0.01)


def test_what_is_varied_is_a_curve_of_its_own(tmp_path):
    charts = charts_of(measured_run(tmp_path / "r", steps=(1, 2), variation="NCCL_ALGO=Ring"))
    assert {row[0] for row in charts.throughput[0].table.rows} == {"baseline", "NCCL_ALGO=Ring"}
    assert charts.phases[0].table.rows[0][0] == "1 step with NCCL_ALGO=Ring"


def test_ranks_are_drawn_where_there_are_several(tmp_path):
    (chart,) = charts_of(profiled_run(tmp_path / "r")).ranks
    assert chart.table.rows[0][:3] == ["0", "0.600", "15.400"]
    assert chart.table.rows[1][:3] == ["1", "0.600", "14.900"]
    assert chart.table.rows[2][:3] == ["skew", "0.000", "0.500"]
    assert to_svg(chart)
    assert charts_of(profiled_run(tmp_path / "s", ranks=1)).ranks == []


def test_only_so_many_batch_sizes_are_drawn_and_the_others_named(tmp_path):
    charts = charts_of(measured_run(tmp_path / "r", steps=(1,), concurrency=(1, 2, 3, 4, 5, 6, 7, 8)))
    assert charts.left_out == [7, 8]
    assert len(charts.phases) == 6


def test_a_drawing_is_the_same_every_time_and_carries_no_date():
    chart = phase_chart("phases-1", "Phases", [BAR])
    assert to_svg(chart) == to_svg(chart)
    assert "<dc:date>" not in to_svg(chart)


def test_on_a_page_it_has_a_name_a_description_its_own_ids_and_no_colour_of_its_own():
    svg = inline_svg(phase_chart("phases-1", "Phases <of> a cycle", [BAR]))
    root = ElementTree.fromstring(svg)
    assert root.get("role") == "img"
    told = {child.get("id"): child.text for child in root if child.tag in ("title", "desc")}
    assert list(told) == (root.get("aria-labelledby") or "").split()
    assert told["phases-1-title"] == "Phases <of> a cycle"
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert all(name.startswith("phases-1-") for name in ids)
    assert len(ids) == len(set(ids))
    assert not re.search("#[0-9a-f]{6}", svg)
    assert "var(--verify)" in svg
    assert "DejaVu" not in svg


@pytest.mark.parametrize(
    "name", ["$a^2$", "$\\frac", "<b>&", "\x00\x1b[2J", "\ud800", "\u202eabc", "名前", "a\nb", "x" * 500]
)
def test_any_name_can_be_drawn(name):
    svg = inline_svg(phase_chart("phases-1", "P", [PhaseBar(name, BAR.ms)]))
    ElementTree.fromstring(svg.encode("utf-8"))


def test_a_label_is_one_line_that_fits():
    assert shown("a\n\tb") == "a b"
    assert shown("x" * 80, 10) == "x" * 9 + "\N{HORIZONTAL ELLIPSIS}"


def test_charts_become_files_on_white(tmp_path):
    written = write_plots([phase_chart("phases-1", "Phases", [BAR])], tmp_path / "new" / "plots")
    assert [path.name for path in written] == ["phases-1.svg", "phases-1.png"]
    picture = Image.open(written[1])
    assert picture.size[0] > 900
    assert picture.convert("RGB").getpixel((1, 1)) == (255, 255, 255)


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    chart = Chart("c", "C", "", phase_chart("p", "P", [BAR]).table, lambda: pytest.fail("drawn"))
    with pytest.raises(InputError, match="the charts cannot be written"):
        write_plots([chart], tmp_path / "file" / "plots")


def test_a_setting_stands_once_in_the_legend_of_two_panels(tmp_path):
    (chart,) = charts_of(measured_run(tmp_path / "r")).time
    drawn = texts(to_svg(chart))
    assert [drawn.count(label) for label in ("no speculation", "1 step", "2 steps", "5 steps")] == [1, 1, 1, 1]
