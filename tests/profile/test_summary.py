from __future__ import annotations

import json
from itertools import chain
from pathlib import Path

import pytest

from eaglelab.profile.acceptance import acceptance
from eaglelab.profile.records import read_records
from eaglelab.profile.summary import summarise

CASES = Path(__file__).parents[1] / "cases" / "profile"


def lines(*names):
    return chain.from_iterable((CASES / name).read_text().splitlines() for name in names)


def profile_of(*changes):
    """A profile of the block in rank0.jsonl, once per set of changed fields."""
    block = json.loads((CASES / "rank0.jsonl").read_text().splitlines()[1])
    return summarise(read_records(json.dumps({**block, **change}) for change in changes))


@pytest.fixture
def setting():
    return summarise(read_records(lines("rank0.jsonl"))).settings[0]


def test_phases_carry_both_clocks_as_computed_by_hand(setting):
    phases = {phase.name: phase for phase in setting.phases}
    assert list(phases) == ["draft", "verify", "extend", "other", "total"]
    assert phases["draft"].event.mean == pytest.approx(0.5)
    assert phases["draft"].host.mean == pytest.approx(0.3)
    assert phases["draft"].host_error_percent == pytest.approx(-40)
    assert phases["verify"].event.mean == pytest.approx(16)
    assert phases["verify"].event_share == pytest.approx(16 / 18.75)
    assert phases["verify"].host_share == pytest.approx(16.5 / 18.75)
    assert phases["total"].event.mean == pytest.approx(18.75)
    assert phases["total"].event.count == 4
    assert phases["total"].event_share == 1


def test_accept_length_counts_the_bonus_token(setting):
    accepted = setting.acceptance
    assert accepted.length == pytest.approx(1.8)  # 1 + (2 * 1 + 1 * 2) / 5
    assert accepted.correct_drafts == pytest.approx(0.8)
    assert accepted.verifies == 5
    assert accepted.stdev == pytest.approx(0.83666, abs=1e-5)  # sqrt(2.8 / 4)


def test_the_interval_of_the_accept_length_is_cut_at_one(setting):
    assert setting.acceptance.ci95 == pytest.approx((1.0, 2.83884), abs=1e-4)  # 1.8 + 2.7764 * 0.83666 / sqrt(5)


def test_graph_and_eager_cycles_add_up_over_the_blocks_that_tell_them():
    (told,) = profile_of(
        {}, {"graph": {"cuda_graph": 4, "eager": 1}}, {"graph": {"cuda_graph": 5, "eager": 0}}
    ).settings
    assert told.graph == {"cuda_graph": 9, "eager": 1}
    assert told.to_json()["cycles"]["graph"] == {"cuda_graph": 9, "eager": 1}
    (silent,) = profile_of({}).settings
    assert silent.to_json()["cycles"]["graph"] is None


def test_survival_comes_from_the_histogram(setting):
    assert setting.acceptance.survival == pytest.approx((3 / 5, 1 / 5))
    assert setting.acceptance.conditional == pytest.approx((3 / 5, 1 / 3))


def test_accept_length_is_one_plus_the_sum_of_survival():
    accepted = acceptance([212, 96, 64, 101], steps=3)
    assert accepted.length == pytest.approx(1 + sum(accepted.survival))
    assert accepted.survival[0] == pytest.approx(261 / 473)


def test_survival_reaches_to_the_step_count_where_nothing_got_that_far():
    accepted = acceptance([3, 1], steps=3)
    assert accepted.survival == pytest.approx((0.25, 0, 0))
    assert accepted.conditional == (0.25, 0.0, None)


def test_an_empty_histogram_gives_no_acceptance():
    assert acceptance([], steps=3) is None


def test_the_rate_is_tokens_of_kept_cycles_over_their_time(setting):
    assert setting.rate.in_all == pytest.approx(8 / 0.075)
    assert setting.rate.per_request == setting.rate.in_all
    assert setting.rate.cycles == 4


def test_the_rate_of_a_batch_is_shared_by_its_requests():
    (setting,) = profile_of({"batch_size": 2, "correct_hist": [4, 4, 2], "kept_tokens": [4, 2, 6, 4]}).settings
    assert setting.rate.in_all == pytest.approx(16 / 0.075)
    assert setting.rate.per_request == pytest.approx(8 / 0.075)
    assert setting.acceptance.length == pytest.approx(1.8)


def test_cycles_of_unknown_count_are_left_out_of_the_rate():
    (setting,) = profile_of({"kept_tokens": [2, None, 3, 2], "correct_hist": [2, 1, 1], "unknown": 1}).settings
    assert setting.rate.in_all == pytest.approx(7 / (0.0176 + 0.0198 + 0.0187))
    assert setting.rate.cycles == 3
    assert setting.unknown == 1


def test_blocks_of_one_setting_are_pooled():
    (setting,) = profile_of({}, {"correct_hist": [0, 5], "dropped": {"ring": 1}}).settings
    assert (setting.cycles, setting.decode_cycles, setting.tokens) == (8, 10, 18)
    assert setting.acceptance.histogram == (2, 7, 1)
    assert setting.dropped["after_prefill"] == 1
    assert setting.dropped["ring"] == 1


def test_step_counts_and_batch_sizes_are_told_apart():
    profile = profile_of({"steps": 10}, {"batch_size": 2}, {})
    assert [(setting.steps, setting.batch_size) for setting in profile.settings] == [(2, 1), (2, 2), (10, 1)]


def test_the_limiting_phase_is_named_with_its_figures(setting):
    assert setting.limit == "verify limits the loop: 16.000 ms of 18.750 ms a cycle (85.3 %), by GPU time."


def test_host_timers_are_shown_up_with_what_they_lose_and_where_it_went(setting):
    assert setting.host_timers == (
        "Host timers show draft at 0.300 ms where the GPU spent 0.500 ms (40 % too little) and extend at 0.350 ms "
        "where the GPU spent 1.250 ms (72 % too little); they charge the difference to other (+0.600 ms) and "
        "verify (+0.500 ms)."
    )


def test_host_timers_that_agree_are_said_to_agree():
    block = json.loads((CASES / "rank0.jsonl").read_text().splitlines()[1])
    (setting,) = profile_of({"host_ms": block["event_ms"]}).settings
    assert setting.host_timers == "Host timers agree with the GPU's to 5 % in every phase of these cycles."


def test_the_lowest_rank_leads_and_the_others_stand_beside_it_with_the_skew():
    (setting,) = summarise(read_records(lines("rank1.jsonl", "rank0.jsonl"))).settings
    assert setting.rank == 0
    assert setting.cycles == 4
    assert [rank.rank for rank in setting.ranks] == [0, 1]
    assert setting.ranks[1].event_ms["verify"] == pytest.approx(15.5)
    assert setting.skew_ms["verify"] == pytest.approx(0.5)
    assert setting.skew_ms["draft"] == pytest.approx(0)


def test_one_rank_has_no_skew(setting):
    assert setting.skew_ms is None


def test_a_setting_of_which_every_cycle_was_dropped_has_acceptance_but_no_times():
    empty = {phase: [] for phase in ("draft", "verify", "extend", "other", "total")}
    profile = profile_of({"cycles": 0, "kept_tokens": [], "event_ms": empty, "host_ms": empty})
    (setting,) = profile.settings
    assert setting.phases == ()
    assert setting.rate is None
    assert setting.acceptance.length == pytest.approx(1.8)
    assert "No cycle was kept" in setting.limit
    assert setting.host_timers == ""
    assert json.dumps(profile.to_json())


def test_records_without_a_block_say_so():
    profile = summarise(read_records([]))
    assert profile.settings == ()
    assert profile.notes == ("The probe wrote no block of decode cycles.",)


def test_a_restart_a_synchronising_run_and_bad_lines_are_noted():
    block = json.loads((CASES / "rank0.jsonl").read_text().splitlines()[1])
    records = read_records(["{", json.dumps({**block, "sync": True}), json.dumps({**block, "sync": True, "pid": 7})])
    restart, sync, bad = summarise(records).notes
    assert "2 processes of one rank" in restart
    assert "EAGLE3_PROFILE_SYNC was on" in sync
    assert bad == "probe records, line 1: not JSON (cut short?)"


def test_profile_json_has_the_documented_keys_and_no_accept_rate():
    profile = summarise(read_records(lines("rank0.jsonl", "rank1.jsonl")), simulated="simulated GPU").to_json()
    assert (profile["kind"], profile["schema"], profile["simulated"]) == ("eaglelab-profile", 1, "simulated GPU")
    assert "bonus token included" in profile["definitions"]["accept_length"]
    (setting,) = profile["settings"]
    assert setting["cycles"]["kept"] == 4
    assert setting["phases"]["draft"]["event_ms"] == {
        "mean": 0.5,
        "median": 0.5,
        "p90": 0.57,
        "p95": 0.585,
        "p99": 0.597,
        "stdev": 0.08165,
        "count": 4,
        "ci95": [0.370079, 0.629921],
        "share": 0.026667,
    }
    assert setting["acceptance"]["survival"] == [0.6, 0.2]
    assert setting["limit"]["phase"] == "verify"
    assert setting["skew_ms"]["verify"] == 0.5
    assert "rate" not in json.dumps(profile)
    assert json.loads(json.dumps(profile)) == profile
