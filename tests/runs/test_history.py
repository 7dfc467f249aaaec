"""The newest run against those before."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from eaglelab.runs.history import Asked, Series, trends
from eaglelab.runs.rows import RunRow, SettingRow


def row(number: int, rate: float | None, *, half: float | None = 1.0, **more: Any) -> RunRow:
    low, high = (None, None) if rate is None or half is None else (rate - half, rate + half)
    setting = SettingRow(more.pop("source", "requests"), more.pop("steps", 2), "", 1, rate, low, high)
    about = {
        "run": f"run{number}",
        "host": "a",
        "command": "bench",
        "began": float(number),
        "finished": True,
        "model": "/models/Llama-3-70B",
        "draft": None,
        "sglang": "0.5.9",
        "gpu": "8 x H200",
        "driver": "550",
        "tp": 8,
        "workload": "",
        "simulated": None,
        "headline": "",
        "bundle": "",
    }
    return RunRow(**{**about, **more}, settings=(setting,))


def series(*rates: float, half: float | None = 1.0) -> Series:
    (found,) = trends([row(number, rate, half=half) for number, rate in enumerate(rates)])
    return found


def test_runs_are_put_in_order_of_time_and_held_against_the_median_of_the_earlier_ones() -> None:
    rows = [row(2, 95.0), row(0, 100.0), row(1, 104.0), row(3, 90.0)]
    (found,) = trends(rows)
    assert [point.run for point in found.points] == ["run0", "run1", "run2", "run3"]
    assert found.before == 100
    assert found.percent == pytest.approx(-10)


def test_noise_is_what_the_earlier_runs_differ_among_themselves() -> None:
    # Logarithms of 98, 100, 102: standard deviation 0.020001; t(2) = 4.3027, sqrt(1 + 1/3) = 1.1547: 9.94 % up and down.
    found = series(98.0, 100.0, 102.0, 95.0)
    assert found.noise == pytest.approx(100 * math.expm1(4.3027 * 0.020001 * 1.154701), abs=1e-2)
    assert (found.percent, found.judged) == (pytest.approx(-5), "tie")


@pytest.mark.parametrize(
    ("rates", "judged"),
    [
        ((100.0, 100.1, 99.9, 90.0), "worse"),
        ((100.0, 100.1, 99.9, 110.0), "better"),
        ((100.0, 100.1, 99.9, 100.4), "tie"),
        ((100.0, 90.0), "worse"),
        ((100.0, 100.9), "tie"),
        ((100.0, 102.0, 103.5), "better"),
        ((100.0,), "first"),
    ],
)
def test_the_newest_is_better_worse_or_a_tie(rates: Sequence[float], judged: str) -> None:
    assert series(*rates).judged == judged


def test_with_few_runs_and_no_interval_nothing_is_sure() -> None:
    assert series(100.0, 90.0, half=None).judged == "unsure"
    assert series(100.0, 100.2, half=None).judged == "tie"


@pytest.mark.parametrize(
    "other",
    [
        {"host": "b"},
        {"model": "/models/other"},
        {"gpu": "4 x H200"},
        {"tp": 4},
        {"workload": "output_len=1000"},
        {"source": "bench_serving"},
        {"steps": 3},
    ],
)
def test_what_is_not_like_with_like_is_a_series_of_its_own(other: dict[str, Any]) -> None:
    found = trends([row(0, 100.0), row(1, 90.0, **other)])
    assert [len(each.points) for each in found] == [1, 1]


def test_another_release_stays_in_the_series_and_is_named() -> None:
    (found,) = trends([row(0, 100.0), row(1, 90.0, sglang="0.5.12")])
    assert found.release == "0.5.9 -> 0.5.12"
    assert series(100.0, 90.0).release == ""


def test_settings_that_were_not_measured_are_left_out() -> None:
    assert trends([row(0, None)]) == ()


def test_a_series_is_told_as_plain_values() -> None:
    told = series(100.0, 90.0).to_json()
    assert (told["steps"], told["batch"], told["tok_s"], told["judged"]) == (2, 1, [100.0, 90.0], "worse")
    assert told["percent"] == -10


@pytest.mark.parametrize(
    ("asked", "passes"),
    [
        (Asked(), True),
        (Asked(model="llama"), True),
        (Asked(model="qwen"), False),
        (Asked(host="a"), True),
        (Asked(host="b"), False),
        (Asked(host="b,a"), True),
        (Asked(sglang="0.5.9"), True),
        (Asked(sglang="0.5"), True),
        (Asked(sglang="0.5."), True),
        (Asked(sglang="0"), True),
        (Asked(sglang="0.5.90"), False),
        (Asked(since=7.0), True),
        (Asked(since=7.1), False),
    ],
)
def test_which_runs_are_asked_for(asked: Asked, passes: bool) -> None:
    assert asked.passes(row(7, 1.0)) is passes


def test_a_run_that_tells_nothing_of_itself_passes_only_where_nothing_is_asked() -> None:
    bare = row(7, 1.0, model=None, sglang=None, began=None)
    assert Asked().passes(bare)
    assert not any(each.passes(bare) for each in (Asked(model="a"), Asked(sglang="0"), Asked(since=0.0)))
