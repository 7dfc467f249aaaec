from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from eaglelab.profile.bench import BenchResult, RequestSample
from eaglelab.profile.decode_groups import DecodeGroup
from eaglelab.profile.findings import worst
from eaglelab.profile.measurement import Evidence, examine
from eaglelab.profile.records import read_records
from eaglelab.profile.stats import describe

CASES = Path(__file__).parents[1] / "cases" / "profile"
BLOCK = json.loads((CASES / "rank0.jsonl").read_text().splitlines()[1])
ASKED = [{"wanted": 2, "active": 2, "cycles": 5, "why": None}]
# One request whose five cycles are the block: 9 tokens of decode at 96.0 tok/s.
REQUEST = RequestSample(10, 0.5, 0.5 + 9 / 96, verifies=5, correct_drafts=4, correct_hist=(2, 2, 1), cached_tokens=0)


IN_ORDER = [("tokens", "ok"), ("closure", "ok"), ("accept-length-sources", "ok")]


def blocks(*changes):
    return read_records(json.dumps({**BLOCK, **change}) for change in changes).blocks


def evidence(**more):
    return Evidence(**{"result": BenchResult(2, 1, (REQUEST,), profiled=True), "blocks": blocks({}), **more})


def codes(examined):
    return [(finding.code, finding.severity) for finding in examined.findings]


def test_a_clean_measurement_is_said_to_be_clean_and_why():
    lines = DecodeGroup(1, 1, 3, None, describe([1.7, 1.9, 1.8]), 0)
    info = {"internal_states": [{"avg_spec_accept_length": 1.78}]}
    metrics = "sglang:spec_accept_length 1.9\n"
    examined = examine(evidence(decode=[lines], server_info=info, metrics=metrics, flushed=False))
    assert codes(examined) == IN_ORDER
    assert examined.setting.cycles == 4
    assert [(each.source, each.agrees) for each in examined.readings] == [
        ("probe", None),
        ("meta_info", True),
        ("server_info", True),
        ("decode_lines", True),
        ("metrics", True),
    ]
    assert examined.readings[1].definition.startswith("1 + spec_accept_token_num")  # the block is of 0.5.9


def test_after_a_flush_the_servers_average_is_of_the_last_round_and_not_compared():
    info = {"internal_states": [{"avg_spec_accept_length": 2.9}]}
    examined = examine(evidence(server_info=info))
    assert [(each.source, each.agrees) for each in examined.readings][2] == ("server_info", None)
    assert codes(examined) == IN_ORDER


def test_sources_that_do_not_agree_are_an_alarm():
    lying = replace(REQUEST, correct_drafts=40, correct_hist=None)
    examined = examine(evidence(result=BenchResult(2, 1, (lying,))))
    assert ("accept-length-sources", "alarm") in codes(examined)


def test_everything_that_is_wrong_is_found():
    broken = replace(REQUEST, tokens=12, cached_tokens=8, repeated=0.9)
    failed = RequestSample(0, 0.0, 0.0, error="timeout")
    found = examine(
        evidence(
            result=BenchResult(2, 1, (broken, failed)),
            blocks=blocks({"graph": {"cuda_graph": 3, "eager": 2}}, {"batch_size": 2, "correct_hist": [4, 4, 2]}),
            decode=[DecodeGroup(1, 2, 3, None, None, 1)],
            after_idle=1,
            random_prompts=True,
        )
    )
    assert {code for code, severity in codes(found) if severity != "ok"} == {
        "foreign-requests",
        "wrong-concurrency",
        "failed-requests",
        "tokens",
        "closure",
        "graph-off",
        "lines-after-idle",
        "graph-off-log",
        "cached-tokens",
        "random-prompts",
        "looping-output",
    }
    assert worst(found.findings) == "alarm"


def test_a_cache_that_was_not_to_be_flushed_is_no_finding():
    result = BenchResult(2, 1, (replace(REQUEST, cached_tokens=8),))
    assert "cached-tokens" in dict(codes(examine(evidence(result=result))))
    assert "cached-tokens" not in dict(codes(examine(evidence(result=result, flushed=False))))


def test_in_a_sweep_within_one_load_only_what_was_asked_for_counts():
    good = examine(evidence(blocks=blocks({"steps_from_rid": ASKED}), one_load=True))
    assert codes(good) == IN_ORDER
    bad = [{"wanted": 5, "active": 2, "cycles": 5, "why": "not captured"}]
    examined = examine(evidence(blocks=blocks({"steps_from_rid": bad}), one_load=True))
    assert examined.setting is None
    assert codes(examined)[0] == ("steps-mismatch", "alarm")


def test_in_one_load_the_tokens_of_each_step_count_are_counted_by_themselves():
    one = {"steps": 1, "steps_from_rid": [{"wanted": 1, "active": 1, "cycles": 5, "why": None}]}
    mixed = blocks({"steps_from_rid": ASKED}, {**one, "tokens": 7, "correct_hist": [3, 2, 0]})
    assert codes(examine(evidence(blocks=mixed, one_load=True))) == IN_ORDER


def test_what_another_step_count_was_refused_is_no_finding_of_this_one():
    refused = {"steps_from_rid": [{"wanted": 5, "active": 1, "cycles": 5, "why": "not captured"}], "steps": 1}
    mixed = blocks({"steps_from_rid": ASKED}, refused)
    assert codes(examine(evidence(blocks=mixed, one_load=True))) == IN_ORDER
    five = BenchResult(5, 1, (REQUEST,), profiled=True)
    assert ("steps-mismatch", "alarm") in codes(examine(evidence(result=five, blocks=mixed, one_load=True)))


def test_a_sweeps_running_average_is_shown_and_not_compared():
    info, metrics = {"avg_spec_accept_length": 2.9}, "sglang:spec_accept_length 3.0\n"
    asked = blocks({"steps_from_rid": ASKED})
    examined = examine(evidence(blocks=asked, one_load=True, flushed=False, server_info=info, metrics=metrics))
    assert [(each.source, each.agrees) for each in examined.readings][2:] == [("server_info", None), ("metrics", None)]


@pytest.mark.parametrize("steps", [None, 2])
def test_without_the_probe_the_requests_are_still_looked_at(steps):
    request = RequestSample(10, 0.5, 1.0, verifies=None if steps is None else 5, cached_tokens=3)
    examined = examine(Evidence(BenchResult(steps, 1, (request,))))
    assert examined.setting is None
    assert codes(examined) == [("cached-tokens", "warning")]
    assert [each.source for each in examined.readings] == ([] if steps is None else ["meta_info"])


def test_the_accept_length_is_over_the_verifies_of_all_cycles_and_the_phases_at_the_wanted_concurrency():
    together = {"batch_size": 2, "tokens": 18, "correct_hist": [4, 4, 2]}
    requests = [replace(REQUEST, correct_hist=None, verifies=8, correct_drafts=6, tokens=15)] * 2
    examined = examine(evidence(result=BenchResult(2, 2, requests), blocks=blocks(together, {})))
    assert examined.setting.batch_size == 2
    assert examined.setting.acceptance.verifies == 10
    assert examined.accepted.histogram == (6, 6, 3)
    assert (examined.readings[0].count, examined.readings[0].value) == (15, pytest.approx(1.8))
