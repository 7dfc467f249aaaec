"""Measurements of one sweep from several hosts, on figures made by hand."""

from __future__ import annotations

import pytest

from eaglelab.profile.bench import BenchResult, RequestSample
from eaglelab.profile.measurement_set import Measurement, from_json, rankings, to_json
from eaglelab.profile.setting_key import SettingKey
from eaglelab.profile.spread import merge

BASELINE = SettingKey(None)


def measured(steps: int | None, rate: float, load: str, *, rounds: int = 4) -> Measurement:
    """`rounds` rounds of one request of 100 tokens at `rate` tokens per second."""
    seconds = 100 / rate
    samples = [
        RequestSample(100, 0.01, seconds, start_s=number * 100.0, round=number, prompt_tokens=10)
        for number in range(rounds)
    ]
    return Measurement(BenchResult(steps, 1, tuple(samples), load=load))


def spread(other_reference: float = 90.0):
    hosts = {
        "h1": [measured(None, 90.0, "baseline"), measured(2, 99.0, "k2")],
        "h2": [measured(None, other_reference, "baseline"), measured(5, 72.0, "k5")],
    }
    return merge(hosts, BASELINE, simulated=None, sglang="0.5.9")


def test_every_setting_is_there_once_its_load_named_by_host_and_the_reference_is_the_first_hosts() -> None:
    found = [(each.result.steps, each.result.load) for each in spread().measured.measurements]
    assert found == [(None, "h1/baseline"), (2, "h1/k2"), (5, "h2/k5")]


def test_each_setting_stands_beside_the_reference_of_its_own_host_the_best_first() -> None:
    rows = [(each.host, each.key.steps, round(each.tok_s, 1), round(each.ratio, 3)) for each in spread(100.0).placed]
    assert rows == [("h1", 2, 99.0, 1.1), ("h1", None, 90.0, 1.0), ("h2", None, 100.0, 1.0), ("h2", 5, 72.0, 0.72)]


def test_the_ranking_is_of_all_settings_and_says_how_many_hosts_there_were() -> None:
    merged = spread(90.9)
    (ranked,) = rankings(merged.measured).values()
    assert [entry.key.steps for entry in ranked.entries] == [2, None, 5]
    (finding,) = merged.measured.findings
    assert finding.severity == "note"
    assert (
        "the settings come from 2 hosts. Their reference (the baseline) gave from 90.0 tok/s on h1 to 90.9 on h2"
        in (finding.sentence)
    )
    assert finding.numbers["apart_percent"] == pytest.approx(1.0)


def test_references_far_apart_are_a_warning_and_settings_no_further_apart_are_a_tie() -> None:
    merged = spread(100.0)
    assert merged.measured.findings[0].severity == "warning"
    assert merged.measured.minimum_relevant == pytest.approx(1 / 9)
    (ranked,) = rankings(merged.measured).values()
    assert {key.steps for key in ranked.groups[0]} == {None, 2}


def test_a_set_of_several_hosts_reads_back() -> None:
    merged = spread(93.0).measured
    assert to_json(from_json(to_json(merged))) == to_json(merged)
    assert from_json(to_json(merged)).minimum_relevant == merged.minimum_relevant


def test_without_a_reference_on_a_host_there_is_no_ratio() -> None:
    hosts = {"h1": [measured(2, 99.0, "k2")]}
    (row,) = merge(hosts, BASELINE, simulated=None, sglang=None).placed
    assert row.ratio is None
    assert row.to_json() == {"steps": 2, "variation": "", "host": "h1", "batch": 1, "tok_s": 99.0, "ratio": None}
