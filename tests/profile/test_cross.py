from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaglelab.profile.acceptance import acceptance
from eaglelab.profile.cross import (
    agree,
    cross_finding,
    from_decode_lines,
    from_meta,
    from_metrics,
    from_probe,
    from_server_info,
)
from eaglelab.profile.decode_groups import DecodeGroup
from eaglelab.profile.eras import definition
from eaglelab.profile.metrics import parse_metrics
from eaglelab.profile.samples import RequestSample
from eaglelab.profile.stats import describe

PROBE = acceptance([500, 300, 200], 2)  # 1.700 over 1000 verifies
REQUESTS = [RequestSample(426, 0.1, 5.0, verifies=250, correct_drafts=175) for _ in range(4)]
METRICS = """# HELP sglang:spec_accept_length The average acceptance length of speculative decoding.
# TYPE sglang:spec_accept_length gauge
sglang:spec_accept_length{engine_type="unified",model_name="a \\"quoted\\" {name}",tp_rank="0"} 1.65
sglang:spec_verify_calls_total{model_name="m"} 4.0e3 1764400000000
sglang:num_running_reqs 4
sglang:nothing NaN
not a sample at all
"""


def group(running, *lengths):
    return DecodeGroup(0, running, len(lengths), None, describe(lengths), 0)


def test_metrics_are_read_with_labels_exponents_and_time_stamps():
    found = parse_metrics(METRICS)
    (gauge,) = found["sglang:spec_accept_length"]
    assert gauge.value == 1.65
    assert gauge.labels == {"engine_type": "unified", "model_name": 'a "quoted" {name}', "tp_rank": "0"}
    assert found["sglang:spec_verify_calls_total"][0].value == 4000
    assert found["sglang:num_running_reqs"][0].labels == {}
    assert set(found) == {"sglang:spec_accept_length", "sglang:spec_verify_calls_total", "sglang:num_running_reqs"}


@given(st.text(max_size=200))
def test_no_text_breaks_the_metrics_reader(text):
    parse_metrics(text)


def test_all_sources_side_by_side_agree():
    readings = agree(
        [
            from_probe(PROBE),
            from_meta(REQUESTS, 2, "0.5.12"),
            from_server_info({"internal_states": [{"avg_spec_accept_length": 1.72}]}, alone=True, release="0.5.9"),
            from_decode_lines([group(1, 1.68, 1.73, 1.70), group(2, 9.0)], 1, alone=True),
            from_metrics(METRICS, stdev=PROBE.stdev, batch=1),
        ]
    )
    assert [(each.source, each.agrees) for each in readings] == [
        ("probe", None),
        ("meta_info", True),
        ("server_info", True),
        ("decode_lines", True),
        ("metrics", True),
    ]
    assert [each.count for each in readings] == [1000, 1000, None, 3, 40]
    assert readings[1].value == pytest.approx(1.7)
    assert readings[2].definition.startswith("/server_info")
    finding = cross_finding(readings)
    assert finding.severity == "ok"
    assert "1.700 by probe, 1.700 by meta_info, 1.720 by server_info" in finding.sentence


def test_a_source_beyond_its_allowance_is_named():
    readings = agree(
        [from_probe(PROBE), from_meta(REQUESTS, 2), from_decode_lines([group(1, 0.7, 0.7)], 1, alone=True)]
    )
    assert [each.agrees for each in readings] == [None, True, False]
    finding = cross_finding(readings)
    assert finding.severity == "alarm"
    assert "decode_lines beyond what is allowed for" in finding.sentence


def test_what_other_step_counts_went_into_is_shown_and_not_compared():
    info = {"avg_spec_accept_length": 3.0}
    lines = [group(1, 2.0, 3.0)]
    readings = agree([from_probe(PROBE), from_server_info(info, alone=False), from_decode_lines(lines, 1, alone=False)])
    assert [each.agrees for each in readings] == [None, None, None]
    finding = cross_finding(readings)
    assert finding.severity == "note"
    assert finding.sentence == (
        "The accept length is 1.700 by probe and is not cross-checked; not comparable: "
        "3.000 by server_info, 2.500 by decode_lines."
    )


def test_without_the_servers_drafts_the_requests_tokens_are_used():
    old = from_meta([RequestSample(426, 0.1, 5.0, verifies=250)], 2)
    assert old.value == pytest.approx(425 / 250)
    assert old.definition.startswith("(completion_tokens - requests) / spec_verify_ct")
    assert old.tolerance == pytest.approx(0.001 + 3 / 250)


def test_the_last_verify_of_short_requests_is_allowed_for():
    short = [RequestSample(9, 0.1, 0.2, verifies=4, correct_drafts=6) for _ in range(10)]
    assert from_meta(short, 2).value == pytest.approx(2.5)
    assert from_meta(short, 2).tolerance > 0.7


@pytest.mark.parametrize(
    "info",
    [
        {},
        {"internal_states": []},
        {"internal_states": [{"avg_spec_accept_length": None}]},
        {"internal_states": [{"avg_spec_accept_length": float("nan")}]},
        {"internal_states": ["x"]},
        {"avg_spec_accept_length": 0},
        {"avg_spec_accept_length": True},
    ],
)
def test_a_server_that_does_not_say_gives_no_reading(info):
    assert from_server_info(info, alone=True) is None


def test_what_is_not_there_gives_no_reading():
    assert from_probe(None) is None
    assert from_meta([RequestSample(426, 0.1, 5.0)], 2) is None
    assert from_decode_lines([group(2, 1.7)], 1, alone=True) is None
    assert from_metrics("sglang:spec_accept_length 0.0\n", stdev=0.8, batch=1) is None
    assert agree([None, None]) == ()
    assert cross_finding(agree([from_probe(PROBE)])).severity == "note"
    assert cross_finding(()).sentence == "The accept length is not known from any source."


@pytest.mark.parametrize(
    ("source", "release", "says"),
    [
        ("meta_info", "0.4.1", "not there before 0.4.2"),
        ("meta_info", "0.4.10.post2", "(completion_tokens - requests)"),
        ("meta_info", "0.5.9", "1 + spec_accept_token_num"),
        ("meta_info", "0.5.12.post1", "1 + spec_num_correct_drafts"),
        ("server_info", "0.4.3.post2", "not there before 0.4.3.post3"),
        ("server_info", "0.4.3.post3", "/get_server_info"),
        ("server_info", None, "/server_info"),
        ("metrics", "0.5.23", "gauge"),
        ("meta_info", "main", "1 + spec_num_correct_drafts"),
        ("meta_info", "0.0.0.dev1", "1 + spec_num_correct_drafts"),
    ],
)
def test_definitions_follow_the_release(source, release, says):
    assert definition(source, release).startswith(says)


def test_a_reading_is_plain_json():
    reading = agree([from_probe(PROBE), from_meta(REQUESTS, 2)])[1].to_json()
    assert reading["accept_length"] == 1.7
    assert reading["agrees"] is True
    assert reading["unit"] == "verifies"


def test_a_gauge_of_one_interval_may_lie_as_far_off_as_one_text_does():
    one = from_metrics(METRICS, stdev=0.8, batch=1)
    assert one.tolerance == pytest.approx(0.005 + 3 * 0.8 / 40**0.5)
    assert from_metrics(METRICS, stdev=0.8, between=0.3, batch=4).tolerance == pytest.approx(
        0.005 + 3 * (0.64 / 160 + 0.09 / 4) ** 0.5
    )
    assert from_metrics(METRICS, stdev=0.8, batch=1, alone=False).tolerance is None


def test_few_decode_lines_are_allowed_more():
    two, many = (from_decode_lines([group(1, *lines)], 1, alone=True) for lines in ((1.6, 1.7), (1.6, 1.7) * 50))
    assert two.tolerance == pytest.approx(0.005 + 235.8 * 0.0707 / 2**0.5, rel=0.01)
    assert many.tolerance == pytest.approx(0.005 + 3.0 * 0.0503 / 10, rel=0.03)
