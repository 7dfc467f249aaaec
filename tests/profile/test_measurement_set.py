from __future__ import annotations

import csv
import io
import json
import random
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from eaglelab.errors import InputError
from eaglelab.profile.acceptance import acceptance
from eaglelab.profile.bench import BENCH_DEFINITIONS, BenchResult, RequestSample
from eaglelab.profile.cross import agree, from_meta, from_probe
from eaglelab.profile.export import CSV_COLUMNS, to_csv, to_jsonl
from eaglelab.profile.findings import Finding
from eaglelab.profile.measurement_set import Failed, Measurement, MeasurementSet, from_json, rankings, to_json
from eaglelab.profile.records import read_records
from eaglelab.profile.setting_key import SettingKey
from eaglelab.profile.summary import summarise

CASES = Path(__file__).parents[1] / "cases" / "profile"


def result(steps, rate, *, batch=2, rounds=4, **more):
    chance = random.Random(repr((steps, batch)))
    samples = []
    for number in range(rounds):
        for _ in range(batch):
            e2e_s = 100 / rate * chance.gauss(1, 0.002)
            samples.append(
                RequestSample(
                    tokens=100,
                    ttft_s=0.05,
                    e2e_s=e2e_s,
                    itl_s=((e2e_s - 0.05) / 3,) * 3,
                    chunk_tokens=(1, 33, 33, 33),
                    verifies=None if steps is None else 60,
                    start_s=10.0 * number,
                    round=number,
                    rid=f"p=0/k={steps}/{number}",
                    prompt_tokens=32,
                    cached_tokens=0,
                    correct_hist=None if steps is None else (30, 21, 9),
                    output_hash=f"{number}",
                    repeated=0.0,
                )
            )
    return BenchResult(steps, batch, tuple(samples), **more)


FAILED = RequestSample(0, 0.0, 0.0, start_s=0.0, round=0, error="timeout")
SOURCES = agree([from_probe(acceptance([30, 21, 9], 2)), from_meta(result(2, 94).requests, 2)])
SET = MeasurementSet(
    (
        Measurement(result(2, 94.0), (Finding("closure", "ok", "It adds up.", {"difference": 0.01}),), SOURCES),
        Measurement(result(2, 93.0, profiled=True)),
        Measurement(result(None, 89.0)),
        Measurement(BenchResult(5, 1, (FAILED, RequestSample(10, 0.1, 1.0)), wall_s=3.0)),
    ),
    simulated="simulated GPU",
    sglang="0.5.9",
    findings=(Finding("probe-cost", "note", "Measuring costs 1.1 %.", {"cost_percent": 1.1, "what": "x"}),),
)


RING = "NCCL_ALGO=Ring"
VARIED = MeasurementSet(
    tuple(
        Measurement(result(steps, rate, variation=variation, load=f"{steps} {variation}"))
        for steps, rate, variation in [(2, 94.0, ""), (None, 89.0, ""), (2, 95.0, RING), (5, 71.0, RING)]
    ),
    failed=(Failed(5, RING, "out of memory"), Failed(None, RING, "no answer")),
)


def test_what_is_varied_and_what_failed_read_back():
    again = from_json(to_json(VARIED))
    assert again == VARIED
    assert again.measurements[2].result.key == SettingKey(2, RING)
    assert again.measurements[2].result.load == "2 NCCL_ALGO=Ring"


def test_the_probes_cycles_read_back_with_their_phases_and_acceptance():
    (setting,) = summarise(read_records((CASES / "rank0.jsonl").read_text().splitlines())).settings
    measured = MeasurementSet((Measurement(result(2, 93.0, profiled=True), setting=setting),))
    text = to_json(measured)
    again = from_json(text).measurements[0].setting
    assert to_json(from_json(text)) == text
    assert [phase.event.mean for phase in again.phases] == [phase.event.mean for phase in setting.phases]
    assert again.acceptance == setting.acceptance
    assert (again.rate.batch_size, again.cycles, again.dropped) == (1, setting.cycles, setting.dropped)


def test_a_setting_without_timed_cycles_reads_back():
    block = json.loads((CASES / "rank0.jsonl").read_text().splitlines()[1])
    times = {phase: [] for phase in block["event_ms"]}
    bare = {"cycles": 0, "kept_tokens": [], "event_ms": times, "host_ms": times, "correct_hist": [0, 0, 0], "tokens": 0}
    (setting,) = summarise(read_records([json.dumps({**block, **bare})])).settings
    assert (setting.rate, setting.acceptance, setting.phases) == (None, None, ())
    again = from_json(to_json(MeasurementSet((Measurement(result(2, 93.0), setting=setting),))))
    assert again.measurements[0].setting == setting


def test_a_setting_that_failed_is_not_ranked_and_empties_no_round_of_the_others():
    (ranking,) = rankings(VARIED).values()
    assert [entry.key for entry in ranking.entries] == [SettingKey(2, RING), SettingKey(2), SettingKey(None)]
    crashed = Measurement(BenchResult(3, 2, (FAILED,)))
    with_it = MeasurementSet((*VARIED.measurements, crashed), failed=VARIED.failed)
    (again,) = rankings(with_it).values()
    assert (again.rounds, again.entries) == (4, ranking.entries)
    assert again.set_aside == (SettingKey(3),)


def test_loads_are_told_apart_by_their_name_and_by_what_only_a_start_can_change():
    def loads(*measured):
        (ranking,) = rankings(MeasurementSet(tuple(map(Measurement, measured)))).values()
        return ranking.loads

    assert loads(result(2, 94.0), result(3, 93.0)) == 1
    assert loads(result(2, 94.0, load="k2"), result(3, 93.0, load="k3")) == 2
    assert loads(result(2, 94.0), result(None, 89.0)) == 2
    assert loads(result(2, 94.0), result(2, 95.0, variation=RING)) == 2
    # One that is not compared does not count.
    assert loads(result(2, 94.0), result(3, 93.0), BenchResult(None, 2, (FAILED,))) == 1


def test_accept_lengths_are_held_against_each_other_across_loads():
    falling = [Measurement(result(steps, 90.0, load=f"k{steps}")) for steps in (2, 5)]
    assert MeasurementSet(tuple(falling)).across == ()
    worse = replace(falling[1].result, requests=tuple(replace(r, verifies=97) for r in falling[1].result.requests))
    measured = MeasurementSet((falling[0], Measurement(worse)))
    assert [finding.code for finding in measured.across] == ["broken-draft", "accept-length-falls"]
    assert [found["code"] for found in json.loads(to_json(measured))["across"]] == [
        "broken-draft",
        "accept-length-falls",
    ]


def test_a_set_reads_back_as_it_was():
    text = to_json(SET)
    again = from_json(text)
    assert [found.result for found in again.measurements] == [found.result for found in SET.measurements]
    assert again.findings == SET.findings
    assert (again.simulated, again.sglang, again.minimum_relevant) == ("simulated GPU", "0.5.9", 0.005)
    assert to_json(again) == text


def test_the_json_says_what_its_figures_mean_and_ranks_each_concurrency():
    document = json.loads(to_json(SET))
    assert (document["kind"], document["schema"]) == ("eaglelab-measurements", 1)
    assert document["definitions"] == BENCH_DEFINITIONS
    first = document["measurements"][0]
    assert first["summary"]["throughput"]["unit"] == "rounds"
    assert [source["source"] for source in first["sources"]] == ["probe", "meta_info"]
    (ranking,) = document["rankings"]
    assert (ranking["batch"], ranking["ranking"]["winner"]) == (2, {"steps": 2, "variation": ""})
    assert ranking["sentences"][0].startswith("2 steps: 18")


def test_a_concurrency_with_one_setting_or_too_few_rounds_is_not_ranked():
    assert set(rankings(SET)) == {2}
    short = MeasurementSet((Measurement(result(2, 94.0, rounds=1)), Measurement(result(None, 89.0, rounds=1))))
    assert rankings(short) == {}
    assert rankings(MeasurementSet(())) == {}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "cannot be read"),
        ("[]", "cannot be read: AttributeError"),
        ("{}", "not a set of measurements: kind None, schema None"),
        (to_json(SET).replace('"schema": 1', '"schema": 2', 1), "schema 2"),
        (to_json(SET).replace('"ttft_s"', '"ttft"'), "cannot be read: TypeError"),
        (to_json(SET).replace('"batch"', '"size"'), "cannot be read: KeyError 'batch'"),
    ],
)
def test_what_is_no_measurement_set_is_refused_with_the_reason(text, says):
    with pytest.raises(InputError, match=says):
        from_json(text)


def test_a_field_from_a_newer_version_is_passed_over():
    newer = to_json(SET).replace('"rid":', '"colour": "red",\n     "rid":')
    assert from_json(newer).measurements == from_json(to_json(SET)).measurements


def test_csv_has_a_row_a_setting_under_the_names_of_bench_serving():
    rows = list(csv.DictReader(io.StringIO(to_csv(SET))))
    assert tuple(rows[0]) == CSV_COLUMNS
    assert {"mean_ttft_ms", "p99_itl_ms", "std_tpot_ms", "p90_e2e_latency_ms", "output_throughput"} < set(CSV_COLUMNS)
    assert [(row["steps"], row["max_concurrency"], row["profiled"]) for row in rows] == [
        ("2", "2", "False"),
        ("2", "2", "True"),
        ("none", "2", "False"),
        ("5", "1", "False"),
    ]
    first = rows[0]
    samples = SET.measurements[0].result.requests
    assert float(first["mean_ttft_ms"]) == 50.0
    gaps = [1000 * sample.itl_s[0] / 33 for sample in samples for _ in range(99)]
    assert float(first["mean_itl_ms"]) == pytest.approx(statistics.fmean(gaps), abs=1e-5)
    assert float(first["std_itl_ms"]) == pytest.approx(statistics.pstdev(gaps), abs=1e-5)
    assert float(first["mean_chunk_gap_ms"]) == pytest.approx(33 * statistics.fmean(gaps), rel=1e-5)
    assert (
        float(first["output_throughput_low"])
        < float(first["output_throughput"])
        < float(first["output_throughput_high"])
    )
    assert (first["completed"], first["total_output_tokens"], first["output_throughput_count"]) == ("8", "800", "4")
    assert first["survival"] == "0.5;0.15"
    assert first["accept_length"] == "1.65"
    assert float(first["request_throughput"]) == pytest.approx(8 / float(first["duration"]), rel=1e-5)
    last = rows[-1]
    assert (last["failed"], last["completed"], last["std_ttft_ms"], last["accept_length"]) == ("1", "1", "0.0", "")


def test_json_lines_have_a_row_a_request_failed_ones_included():
    rows = [json.loads(line) for line in to_jsonl(SET).splitlines()]
    assert len(rows) == 8 * 3 + 2
    assert rows[0]["steps"] == 2
    assert rows[0]["itl_s"] == list(SET.measurements[0].result.requests[0].itl_s)
    assert rows[-2]["error"] == "timeout"
    assert to_jsonl(MeasurementSet(())) == ""


def test_tables_say_what_is_varied_and_what_failed():
    rows = list(csv.DictReader(io.StringIO(to_csv(VARIED))))
    assert [(row["steps"], row["variation"], row["error"]) for row in rows] == [
        ("2", "", ""),
        ("none", "", ""),
        ("2", RING, ""),
        ("5", RING, ""),
        ("5", RING, "out of memory"),
        ("none", RING, "no answer"),
    ]
    assert {rows[-1][name] for name in CSV_COLUMNS} == {"none", RING, "no answer", ""}
    lines = [json.loads(line) for line in to_jsonl(VARIED).splitlines()]
    assert (lines[-3]["steps"], lines[-3]["variation"]) == (5, RING)
    assert lines[-1] == {"steps": None, "variation": RING, "failed": "no answer"}
