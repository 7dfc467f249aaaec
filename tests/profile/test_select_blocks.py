from __future__ import annotations

import json
from pathlib import Path

from eaglelab.profile.records import read_records
from eaglelab.profile.select_blocks import as_asked, at_batch

CASES = Path(__file__).parents[1] / "cases" / "profile"
BLOCK = json.loads((CASES / "rank0.jsonl").read_text().splitlines()[1])


def blocks(*changes):
    return read_records(json.dumps({**BLOCK, **change}) for change in changes).blocks


def asked(wanted, why=None, cycles=5, active=2):
    return {"wanted": wanted, "active": active, "cycles": cycles, "why": why}


def test_blocks_of_another_batch_size_are_left_out_and_told():
    selected = at_batch(blocks({"batch_size": 2}, {}, {"batch_size": 2}), 2)
    assert [block.batch_size for block in selected.blocks] == [2, 2]
    assert (selected.cycles, selected.left_out) == (10, 5)
    (finding,) = selected.findings
    assert (finding.code, finding.severity) == ("wrong-concurrency", "note")
    assert finding.numbers == {
        "wanted": 2,
        "cycles": 15,
        "other_cycles": 5,
        "foreign_cycles": 0,
        "cycles_at_1": 5,
        "cycles_at_2": 10,
    }
    assert finding.sentence == "33.3 % of the cycles were not at concurrency 2 and are left out: 1 (5)."


def test_up_to_five_per_cent_elsewhere_is_left_out_in_silence():
    selected = at_batch(blocks(*[{"batch_size": 2}] * 19, {}), 2)
    assert (selected.left_out, selected.findings) == (5, ())


def test_mostly_elsewhere_is_a_warning():
    assert at_batch(blocks({"batch_size": 2}, {}, {}), 2).findings[0].severity == "warning"


def test_more_requests_than_were_sent_are_someone_elses_however_few():
    (finding,) = at_batch(blocks(*[{}] * 39, {"batch_size": 3}), 1).findings
    assert (finding.code, finding.severity) == ("foreign-requests", "warning")
    assert finding.sentence == (
        "5 of 200 cycles ran with more requests than the 1 sent: someone else uses this server."
    )


def test_no_cycle_at_the_wanted_concurrency_is_an_alarm():
    assert at_batch(blocks({}), 4).findings[0].severity == "alarm"
    assert at_batch([], 4).findings == ()


def test_cycles_are_counted_once_however_many_ranks_report_them():
    selected = at_batch(blocks({}, {"rank": 1}, {"batch_size": 2}, {"batch_size": 2, "rank": 1}), 1)
    assert len(selected.blocks) == 2
    assert (selected.cycles, selected.left_out) == (5, 5)


def test_only_blocks_whose_requests_got_the_steps_they_asked_for_count():
    selected = as_asked(
        blocks(
            {"steps_from_rid": [asked(2)]},
            {"steps_from_rid": [asked(2, cycles=4), asked(5, "not yet", cycles=1)]},
            {"steps_from_rid": [asked(7, "not captured")]},
            {"steps_from_rid": [asked(None)]},
        )
    )
    assert len(selected.blocks) == 1
    assert (selected.cycles, selected.left_out) == (5, 15)
    assert {(each.numbers["wanted"], each.numbers["why"], each.numbers["cycles"]) for each in selected.findings} == {
        ("5", "not yet", 1),
        ("7", "not captured", 5),
        ("no one count", "nothing said", 5),
    }
    assert {each.severity for each in selected.findings} == {"warning"}
    assert "5 cycles ran with 2 steps where the requests asked for 7 (not captured)" in selected.findings[1].sentence


def test_a_block_that_does_not_say_does_not_count():
    selected = as_asked(blocks({}))
    assert selected.blocks == ()
    (finding,) = selected.findings
    assert finding.severity == "alarm"
    assert "no steps_from_rid" in finding.sentence


def test_nothing_wrong_is_nothing_said():
    assert as_asked(blocks({"steps_from_rid": [asked(2)]})).findings == ()
