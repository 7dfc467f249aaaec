from __future__ import annotations

import json

import pytest
from bundles import BEGAN, measured_run, record

from eaglelab.profile.setting_key import SettingKey
from eaglelab.report.timeline import MOST, Moment, Thinning, of_decode_lines, of_probe, of_requests
from eaglelab.runs.reading import read_run


def moment(at, tokens=10):
    return Moment(at, tokens, 0.1, tokens - 1, 5)


def probe(*records):
    return [json.dumps(each).encode() for each in records]


@pytest.mark.parametrize("count", [1, 2, MOST, MOST + 1, 2 * MOST + 1, 10_000, 10_007])
def test_a_line_of_any_length_has_a_bounded_number_of_points_and_loses_no_token(count):
    thinning = Thinning()
    for at in range(count):
        thinning.add(moment(float(at)))
    kept = thinning.moments()
    assert min(count, MOST // 2) <= len(kept) <= MOST + 1
    assert sum(each.tokens for each in kept) == 10 * count
    assert [each.at for each in kept] == sorted(each.at for each in kept)


def test_a_short_line_is_left_as_it_is():
    thinning = Thinning()
    for at in range(5):
        thinning.add(moment(float(at)))
    assert [each.at for each in thinning.moments()] == [0, 1, 2, 3, 4]


def test_joined_neighbours_have_the_rate_of_both_and_not_the_mean_of_their_rates():
    joined = Moment(0, 10, 1.0, 9, 3).joined(Moment(4, 100, 1.0, 99, 9))
    assert joined == Moment(2, 110, 2.0, 108, 12)
    assert joined.tok_s == pytest.approx(55)
    assert joined.accept_length == pytest.approx(9)


def test_what_is_not_known_is_no_zero():
    assert Moment(0, 0, 0.0, 0, 0).tok_s is None
    assert Moment(0, 0, 0.0, 0, 0).accept_length is None


def test_blocks_give_rate_and_accept_length_at_the_time_they_were_written():
    lines = probe(record(2), record(2, number=3), record(5, number=4))
    lines = of_probe(lines, 1)
    assert list(lines) == [SettingKey(2), SettingKey(5)]
    assert [each.at for each in lines[SettingKey(2)]] == [0, 3]
    first = lines[SettingKey(2)][0]
    assert first.accept_length == pytest.approx(1.9)
    assert first.tok_s == pytest.approx(1.9 / 0.0176)


def test_the_rate_is_that_of_one_request_at_any_batch_size():
    (found,) = of_probe(probe(record(2, batch=4)), 4)[SettingKey(2)]
    assert found.tok_s == pytest.approx(1.9 / 0.0176)


def test_only_the_wanted_batch_size_and_the_first_rank_count():
    lines = probe(record(2), record(2, rank=1), record(2, batch=2))
    (found,) = of_probe(lines, 1)[SettingKey(2)]
    assert found.verifies == 20


def test_blocks_with_few_cycles_are_joined():
    lines = probe(*(record(2, number=number, cycles=4) for number in range(6)))
    assert [each.verifies for each in of_probe(lines, 1)[SettingKey(2)]] == [12, 12]


def test_damaged_lines_cost_only_themselves():
    lines = [b"a log's own line", *probe(record(2, time=BEGAN)), b'{"kind": "block", "schema": 1']
    assert len(of_probe(lines, 1)[SettingKey(2)]) == 1


def test_requests_are_told_by_setting_in_the_order_of_sending(tmp_path):
    (run,) = read_run(measured_run(tmp_path / "20261130-000000-sweep-0001", concurrency=(1, 2)))
    lines = of_requests(run.measured, 2)
    assert list(lines) == [SettingKey(None), SettingKey(1), SettingKey(2), SettingKey(5)]
    assert all(len(moments) == 12 for moments in lines.values())
    assert lines[SettingKey(None)][0].accept_length is None
    assert lines[SettingKey(2)][0].accept_length == pytest.approx(1.9, abs=0.02)


def decode(second, running=2, rate=150.0, accepted=" accept len: 1.90,"):
    return (
        f"[2026-01-01 10:{second // 60:02d}:{second % 60:02d}] Decode batch, #running-req: {running}, #token: 300, token "
        f"usage: 0.01,{accepted} cuda graph: True, gen throughput (token/s): {rate:.2f}, #queue-req: 0"
    ).encode()


PREFILL = b"[2026-01-01 10:00:00] Prefill batch, #new-seq: 1, #new-token: 7, #running-req: %d, #queue-req: 0"


def test_decode_lines_are_told_by_running_requests_as_the_rate_of_one_of_them():
    lines = of_decode_lines([decode(0), decode(1), decode(2, running=1, rate=90.0, accepted="")])
    assert list(lines) == [1, 2]
    (first,) = lines[2]
    assert (first.at, first.tok_s, first.accept_length) == (0, pytest.approx(75), pytest.approx(1.9))
    (alone,) = lines[1]
    assert (alone.at, alone.tok_s, alone.accept_length) == (1, pytest.approx(90), None)


def test_a_decode_line_whose_interval_holds_idle_time_is_left_out():
    busy, idle = PREFILL % 2, PREFILL % 0
    found = [
        decode(0),
        decode(1, rate=150),
        idle,
        decode(60, rate=0.4),
        decode(61, rate=152),
        busy,
        decode(62, rate=148),
    ]
    assert [each.tok_s for each in of_decode_lines(found)[2]] == [75, 76, 74]


@pytest.mark.parametrize("count", [3, MOST, 10_000])
def test_of_many_decode_lines_a_bounded_number_is_read_evenly_spread(count):
    (found,) = of_decode_lines(decode(second % 3000) for second in range(count)).values()
    assert min(count - 1, MOST - 1) <= len(found) <= 2 * MOST
