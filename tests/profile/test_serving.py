"""Runs of bench_serving: the spread over them, and the speed-up over the baseline run by run."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence

import pytest
from rich.console import Console

from eaglelab.profile.measurement_set import Failed
from eaglelab.profile.serving import ServingRun, ServingSet, run_from_json, serving_csv, serving_json
from eaglelab.profile.serving_row import SERVING_FIGURES, parse_rows
from eaglelab.profile.setting_key import SettingKey
from eaglelab.report.serving_view import serving_table


def runs(steps: int | None, rates: Sequence[float], concurrency: int = 1, **more: object) -> list[ServingRun]:
    key = SettingKey(steps, str(more.pop("variation", "")))
    found = []
    for repeat, rate in enumerate(rates):
        row = {"completed": 40, "duration": 10240 / rate, "output_throughput": rate, "mean_tpot_ms": 1000 / rate}
        (read,) = parse_rows(json.dumps({**row, "tag": None, **more}), "f")
        found.append(ServingRun(key, concurrency, repeat, 42 + repeat, 40, read))
    return found


def shown(measured: ServingSet) -> str:
    console = Console(file=io.StringIO(), width=140)
    console.print(serving_table(measured))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_the_speed_up_is_of_runs_with_the_same_seed_and_its_interval_is_over_them() -> None:
    measured = ServingSet((*runs(None, [100, 50, 80]), *runs(2, [110, 60, 84])))
    base, k2 = measured.settings
    assert base.speed_up is None
    # Ratios 1.10, 1.20, 1.05: mean 1.1166667, stdev 0.0763763, t(2) 4.3027: half width 0.18973.
    assert k2.speed_up is not None
    assert k2.speed_up.mean == pytest.approx(1.1166667)
    assert k2.speed_up.half_width == pytest.approx(0.18973, abs=1e-5)
    assert k2.speed_up.count == 3


def test_figures_are_means_over_the_runs_that_have_them() -> None:
    (setting,) = ServingSet(tuple(runs(2, [90, 100]))).settings
    rate = setting.figure("output_throughput")
    assert rate is not None
    assert (rate.mean, rate.count) == (95, 2)
    assert rate.half_width == pytest.approx(12.7062 * 7.0710678 / 2**0.5, abs=1e-3)
    assert setting.figure("accept_length") is None


def test_a_setting_is_compared_with_the_baseline_of_its_own_flags_and_concurrency() -> None:
    measured = ServingSet(
        (
            *runs(None, [100]),
            *runs(None, [200], concurrency=4),
            *runs(None, [50], variation="A=1"),
            *runs(2, [75], variation="A=1"),
            *runs(2, [300], concurrency=4),
            *runs(2, [90], concurrency=8),
        )
    )
    found = {(each.key, each.concurrency): each.speed_up for each in measured.settings}
    assert found[SettingKey(2, "A=1"), 1].mean == 1.5  # type: ignore[union-attr]
    assert found[SettingKey(2), 4].mean == 1.5  # type: ignore[union-attr]
    assert found[SettingKey(2), 8] is None


def test_at_a_rate_throughput_is_no_speed_up() -> None:
    assert ServingSet((*runs(None, [100]), *runs(2, [110])), ranked=False).settings[1].speed_up is None


def test_the_document_has_settings_runs_and_failures_and_a_run_is_read_back() -> None:
    failed = Failed(5, "", "out of memory")
    measured = ServingSet((*runs(None, [100, 100]), *runs(2, [110, 110])), "simulated GPU", "0.5.9", (failed,))
    document = json.loads(json.dumps(serving_json(measured)))
    assert (document["kind"], document["schema"]) == ("eaglelab-serving", 1)
    assert document["settings"][1]["speed_up"] == {"mean": 1.1, "stdev": 0.0, "count": 2, "ci95": [1.1, 1.1]}
    assert document["settings"][0]["speed_up"] is None
    assert set(document["settings"][0]["figures"]) == set(SERVING_FIGURES) == set(document["definitions"])
    assert document["failed"] == [{"steps": 5, "variation": "", "what": "out of memory"}]
    assert [run_from_json(run) for run in document["runs"]] == list(measured.runs)


def test_the_csv_has_a_row_a_run_under_the_names_of_bench_serving() -> None:
    measured = ServingSet(tuple(runs(2, [110, 90])), None, "0.5.9", (Failed(None, "", "it died"),))
    rows = list(csv.DictReader(io.StringIO(serving_csv(measured))))
    assert [row["output_throughput"] for row in rows] == ["110", "90", ""]
    assert (rows[0]["max_concurrency"], rows[0]["num_prompts"], rows[1]["seed"]) == ("1", "40", "43")
    assert rows[0]["p99_ttft_ms"] == ""
    assert (rows[2]["steps"], rows[2]["error"]) == ("", "it died")


def test_the_table_says_whose_figures_they_are_and_marks_the_simulated_gpu() -> None:
    measured = ServingSet((*runs(None, [100, 102]), *runs(2, [110, 113], accept_length=1.75)), "simulated GPU")
    text = shown(measured)
    assert "probe off" in text
    assert "simulated GPU; in wall time" in text
    k2 = next(line for line in text.splitlines() if line.split()[:1] == ["2"])
    assert k2.split()[:4] == ["2", "1", "2", "1.104"]
    assert "1.750" in text


def test_the_table_tells_of_failed_settings_and_of_requests_that_were_not_answered() -> None:
    measured = ServingSet(tuple(runs(2, [110], completed=38)), failed=(Failed(5, "", "out of memory"),))
    text = shown(measured)
    assert "5 steps: failed: out of memory" in text
    assert "2 steps, concurrency 1: 38 of 40 requests were answered" in text
