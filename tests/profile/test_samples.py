from __future__ import annotations

import pytest

from eaglelab.profile.samples import sample_of_record, served

RECORD = {
    "index": 7,
    "rid": "p=0/a",
    "round": 3,
    "started": 0.1,
    "ended": 0.07,
    "status": 200,
    "code": None,
    "error": None,
    "chunks": [[0.02, 1], [0.04, 3], [0.06, 6]],
    "meta_info": {
        "completion_tokens": 6,
        "prompt_tokens": 12,
        "cached_tokens": 4,
        "spec_verify_ct": 2,
        "spec_num_correct_drafts": 3,
        "spec_correct_drafts_histogram": [0, 1, 1],
    },
    "output": {"of": "ids", "sha256": "abc", "repeated": 0.25},
}


def test_a_record_of_a_load_becomes_a_sample_on_the_servers_clock():
    sample = sample_of_record(RECORD, clock_rate=5.0)
    assert (sample.tokens, sample.verifies, sample.correct_drafts, sample.correct_hist) == (6, 2, 3, (0, 1, 1))
    assert (sample.ttft_s, sample.e2e_s, sample.start_s) == pytest.approx((0.1, 0.3, 0.5))
    assert sample.itl_s == pytest.approx((0.1, 0.1))
    assert sample.chunk_tokens == (1, 2, 3)
    assert (sample.round, sample.rid, sample.prompt_tokens, sample.cached_tokens) == (3, "p=0/a", 12, 4)
    assert (sample.output_hash, sample.repeated, sample.arrived) == ("abc", 0.25, 6)
    assert sample.answered


def test_rounds_of_several_settings_can_be_given_the_same_number():
    assert sample_of_record(RECORD, round_number=0).round == 0


def test_text_tells_no_number_of_tokens_and_an_output_may_have_no_digest():
    of_text = {**RECORD, "output": {"of": "text", "sha256": "abc", "repeated": 0.0}}
    assert sample_of_record(of_text).arrived is None
    bare = sample_of_record({**RECORD, "output": None})
    assert (bare.arrived, bare.output_hash, bare.repeated) == (None, None, None)


@pytest.mark.parametrize("change", [{"error": "no byte for 2 s"}, {"error": "refused", "chunks": []}, {"chunks": []}])
def test_a_failed_request_keeps_its_place_and_says_why(change):
    sample = sample_of_record({**RECORD, **change}, clock_rate=2.0)
    assert not sample.answered
    assert (sample.error, sample.start_s, sample.round, sample.tokens) == (change.get("error", "no token"), 0.2, 3, 0)


@pytest.mark.parametrize(
    ("meta", "correct", "histogram"),
    [
        ({"spec_accept_token_num": 7}, 7, None),  # 0.5.4 to 0.5.8
        ({"spec_accept_token_num": 7, "spec_accept_histogram": [1, 3, 2]}, 7, (1, 3, 2)),  # 0.5.9 to 0.5.11
        ({"spec_accepted_drafts": 7, "spec_num_correct_drafts": 7}, 7, None),  # 0.5.12
        ({"spec_correct_drafts_histogram": [1, 3, 2]}, 7, (1, 3, 2)),
        ({"spec_accept_histogram": [1, "x"]}, None, None),
        ({"spec_accept_token_num": True}, None, None),
        ({}, None, None),
    ],
)
def test_meta_info_is_read_under_the_names_of_each_release(meta, correct, histogram):
    found = served({"spec_verify_ct": 6, **meta})
    assert (found.verifies, found.correct_drafts, found.correct_hist) == (6, correct, histogram)


def test_no_verify_is_no_speculation():
    assert served({"spec_verify_ct": 0}).verifies is None


def test_without_the_servers_count_the_stream_is_counted():
    assert sample_of_record({**RECORD, "meta_info": {}}).tokens == 6
