"""Rows of bench_serving, against the recorded contract: rows made by hand from the sources of each release."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from eaglelab.errors import EaglelabError, InputError
from eaglelab.lab import provision
from eaglelab.profile.serving_row import SERVING_FIGURES, parse_rows

CASES = Path(__file__).parents[1] / "cases" / "serving"
RECORDED = sorted(path.stem for path in CASES.glob("*.jsonl"))
FILES = {"0.5.9": "bench_serving.py", "0.5.12": "bench_serving.py"}


def row(version: str):
    (found,) = parse_rows((CASES / f"{version}.jsonl").read_text(), version)
    return found


def test_every_release_with_a_recorded_row_is_read() -> None:
    assert RECORDED == ["0.4.1.post4", "0.4.4", "0.5.12", "0.5.16", "0.5.23", "0.5.5", "0.5.9"]


@pytest.mark.parametrize("version", RECORDED)
def test_the_figures_that_all_releases_have_are_read_against_the_recorded_contract(version: str) -> None:
    found = row(version)
    assert found.completed == 40
    assert found["duration"] == 109.375
    assert found["output_throughput"] == pytest.approx(93.622857)
    assert (found["median_ttft_ms"], found["median_itl_ms"], found["mean_e2e_latency_ms"]) == (60.8, 9.28, 2731.0)


@pytest.mark.parametrize(
    ("version", "lacking"),
    [
        ("0.4.1.post4", {"request_throughput", "mean_tpot_ms", "accept_length", "total_throughput", "p90_ttft_ms"}),
        ("0.4.4", {"total_throughput", "max_concurrent_requests", "p90_e2e_latency_ms", "p90_ttft_ms"}),
        ("0.5.5", {"total_throughput", "p90_ttft_ms"}),
        ("0.5.12", {"p90_ttft_ms", "p95_ttft_ms", "p90_itl_ms", "p95_e2e_latency_ms"}),
    ],
)
def test_what_a_release_does_not_have_is_not_known_against_the_recorded_contract(version: str, lacking: set[str]):
    found = row(version)
    assert {name for name in lacking if found[name] is not None} == set()


@pytest.mark.parametrize("version", ["0.5.16", "0.5.23"])
def test_a_late_release_has_every_figure_against_the_recorded_contract(version: str) -> None:
    assert [name for name in SERVING_FIGURES if row(version)[name] is None] == []
    assert row(version)["p95_ttft_ms"] == 65.1


@pytest.mark.parametrize("version", ["0.5.9", "0.5.12", "0.5.16", "0.5.23"])
def test_the_recorded_row_has_the_keys_that_the_release_writes(version: str) -> None:
    try:
        folder = provision.package_of(version, provision.cache_folder(), print) / "sglang"
    except EaglelabError as error:
        pytest.fail(f"this test needs sglang {version} in the cache: {error}")
    source = ast.parse((folder / FILES.get(version, "benchmark/serving.py")).read_text())
    written = [
        [key.value for key in node.value.keys if isinstance(key, ast.Constant)]
        for node in ast.walk(source)
        if isinstance(node, ast.Assign)
        and ast.unparse(node.targets[0]) == "result"
        and isinstance(node.value, ast.Dict)
    ]
    assert list(json.loads((CASES / f"{version}.jsonl").read_text())) in written


def test_what_else_a_row_holds_is_kept_but_not_what_the_server_says_of_itself() -> None:
    found = row("0.5.23")
    assert found.more["dataset_name"] == "custom"
    assert "server_info" not in found.more
    assert "sk-hidden" not in json.dumps(found.to_json())
    (new,) = parse_rows('{"completed": 1, "duration": 2, "output_throughput": 3, "goodput": 4}', "f")
    assert new.more == {"goodput": 4}


def test_a_figure_that_is_no_number_is_not_known() -> None:
    text = '{"completed": 1, "duration": 2.0, "output_throughput": 3, "mean_ttft_ms": NaN, "accept_length": null}'
    (found,) = parse_rows(text, "f")
    assert (found["mean_ttft_ms"], found["accept_length"]) == (None, None)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "it is not JSON"),
        ("[1]", "it is not a JSON object"),
        ('{"completed": 1, "duration": 2}', "it has no number for output_throughput"),
        ('{"completed": true, "duration": NaN, "output_throughput": 1}', "no number for completed, duration"),
    ],
)
def test_what_is_no_row_is_refused_with_its_line(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why) as refused:
        parse_rows("\n" + text, "k2.rows")
    assert refused.value.where == "k2.rows:2"


def test_an_endless_rate_makes_no_invalid_json_of_what_is_kept() -> None:
    found = row("0.5.9")
    assert found.more["request_rate"] == "inf"
    json.dumps(found.to_json(), allow_nan=False)
