from __future__ import annotations

import json
from pathlib import Path

import pytest

from eaglelab.profile.checks import (
    check_accept_lengths,
    check_cache,
    check_decode_lines,
    check_failures,
    check_graph,
    check_text,
    probe_cost,
)
from eaglelab.profile.decode_groups import DecodeGroup
from eaglelab.profile.findings import Finding, worst
from eaglelab.profile.log_collector import LogCollector
from eaglelab.profile.pooling import Estimate
from eaglelab.profile.records import read_records
from eaglelab.profile.samples import RequestSample
from eaglelab.profile.setting_key import SettingKey
from eaglelab.profile.summary import summarise

CASES = Path(__file__).parents[1] / "cases" / "profile"
BLOCK = json.loads((CASES / "rank0.jsonl").read_text().splitlines()[1])


def length(value, half=0.02):
    return Estimate(value, None if half is None else (value - half, value + half), 100, "outputs")


def codes(findings):
    return [(finding.code, finding.severity) for finding in findings]


def test_the_gravest_severity_stands_for_all():
    assert worst([]) == "ok"
    assert worst([Finding("a", "note", ""), Finding("b", "alarm", ""), Finding("c", "warning", "")]) == "alarm"


def test_a_finding_is_plain_json():
    found = Finding("a", "note", "So it is.", {"share": 1 / 3, "what": "x", "none": None, "count": 3}).to_json()
    assert found["numbers"] == {"share": 0.333333, "what": "x", "none": None, "count": 3}
    assert json.loads(json.dumps(found)) == found


def lengths(found, variation=""):
    return {SettingKey(steps, variation): each for steps, each in found.items()}


def test_accept_lengths_that_rise_are_in_order():
    rising = {1: length(1.5), 2: length(1.75), 5: length(1.96), 10: length(1.95), None: length(1.0)}
    assert check_accept_lengths(lengths(rising), 1) == []


def test_an_accept_length_that_falls_beyond_its_interval_is_an_alarm():
    (finding,) = check_accept_lengths(lengths({5: length(1.80), 2: length(1.90)}), 8)
    assert (finding.code, finding.severity) == ("accept-length-falls", "alarm")
    assert finding.numbers["margin"] == pytest.approx(0.02 * 2**0.5)
    assert "falls from 1.900 at 2 steps to 1.800 at 5 steps (concurrency 8)" in finding.sentence
    assert check_accept_lengths(lengths({2: length(1.82), 5: length(1.80)}), 8) == []


def test_accept_lengths_are_compared_within_one_variation_only():
    """Another attention backend may serve another text."""
    apart = {**lengths({1: length(1.5), 2: length(1.9)}), **lengths({3: length(1.7), 5: length(1.6)}, "A=1")}
    (finding,) = check_accept_lengths(apart, 1)
    assert "at 3 steps to 1.600 at 5 steps with A=1" in finding.sentence
    assert finding.numbers["variation"] == "A=1"


def test_an_accept_length_of_about_one_is_a_broken_draft():
    (finding,) = check_accept_lengths(lengths({0: length(1.0, None), 2: length(1.037)}, "A=1"), 4)
    assert (finding.code, finding.numbers["steps"], finding.numbers["batch"]) == ("broken-draft", 2, 4)
    assert finding.sentence.startswith("Accept length at 2 steps with A=1 and concurrency 4 is 1.04")
    assert check_accept_lengths(lengths({2: length(1.06)}), 4) == []


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (None, []),
        ({"cuda_graph": 5, "eager": 0}, []),
        ({"cuda_graph": 4, "eager": 1}, [("graph-off", "warning")]),
        ({"cuda_graph": 0, "eager": 5}, [("graph-off", "alarm")]),
    ],
)
def test_cycles_without_a_graph_are_told(graph, expected):
    change = {} if graph is None else {"graph": graph}
    (setting,) = summarise(read_records([json.dumps({**BLOCK, **change})])).settings
    assert codes(check_graph(setting)) == expected


def test_decode_lines_show_the_concurrency_the_graphs_and_what_idle_time_spoilt():
    collector = LogCollector()
    for line in (CASES / "server.log").read_bytes().splitlines():
        collector.feed(line)
    report = collector.report()
    findings = check_decode_lines(report.decode, report.decode_after_idle, 1)
    assert codes(findings) == [
        ("foreign-requests", "warning"),
        ("wrong-concurrency", "note"),
        ("lines-after-idle", "note"),
        ("graph-off-log", "warning"),
    ]
    assert findings[2].numbers["lines"] == report.decode_after_idle > 0


def test_decode_lines_in_order_say_nothing():
    assert check_decode_lines([DecodeGroup(1, 4, 39, None, None, 0), DecodeGroup(1, 3, 1, None, None, 0)], 0, 4) == []
    assert check_decode_lines([], 0, 4) == []
    assert codes(check_decode_lines([DecodeGroup(1, 2, 3, None, None, 0)], 0, 4)) == [("wrong-concurrency", "alarm")]


def test_prompt_tokens_from_the_cache_are_told():
    samples = [RequestSample(10, 0.1, 1.0, prompt_tokens=100, cached_tokens=cached) for cached in (0, 64, 96, None)]
    (finding,) = check_cache(samples)
    assert (finding.numbers["cached_tokens"], finding.numbers["requests"]) == (160, 2)
    assert check_cache(samples[:1]) == []


def test_failed_requests_are_told_with_their_reasons():
    bad = [RequestSample(0, 0, 0, error="timeout"), RequestSample(0, 0, 0, error="timeout"), RequestSample(0, 0.1, 0.2)]
    (finding,) = check_failures([*bad, RequestSample(9, 0.1, 1.0)])
    assert finding.severity == "warning"
    assert finding.sentence == "3 of 4 requests gave no figure: timeout (2); no output (1)."
    assert check_failures(bad)[0].severity == "alarm"
    assert check_failures([RequestSample(9, 0.1, 1.0)]) == []


def test_loops_and_random_prompts_are_warned_about():
    samples = [RequestSample(9, 0.1, 1.0, repeated=share) for share in (0.0, 0.51, 0.97, None)]
    (finding,) = check_text(samples)
    assert (finding.code, finding.numbers["looping"], finding.numbers["worst_share"]) == ("looping-output", 2, 0.97)
    assert "2 of 3 outputs repeat themselves (97 %" in finding.sentence
    assert check_text([RequestSample(9, 0.1, 1.0, repeated=0.5)]) == []
    assert codes(check_text([], random_prompts=True)) == [("random-prompts", "warning")]


def test_the_probes_cost_is_the_difference_of_paired_rounds():
    off = {0: 100.0, 1: 50.0, 2: 200.0, 3: 100.0}
    on = {0: 99.0, 1: 49.4, 2: 198.2, 3: 99.1, 7: 10.0}
    finding = probe_cost(off, on)
    assert finding.severity == "note"
    assert finding.numbers["cost_percent"] == pytest.approx(1.0, abs=0.05)
    assert finding.numbers["low_percent"] < finding.numbers["cost_percent"] < finding.numbers["high_percent"]
    assert finding.numbers["rounds"] == 4
    assert finding.sentence.startswith("Measuring costs 1.0 % of the throughput (")


def test_a_probe_that_costs_much_is_a_warning_and_too_few_rounds_a_note():
    assert probe_cost({0: 100.0, 1: 101.0}, {0: 80.0, 1: 80.8}).severity == "warning"
    assert "needs two rounds" in probe_cost({0: 100.0}, {0: 99.0, 1: 99.0}).sentence
