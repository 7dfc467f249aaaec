from __future__ import annotations

from typing import Any

import pytest

from eaglelab.sweep.progress import Progress
from eaglelab.sweep.rounds import Slot

SLOTS = [
    Slot(1, False, (0,), None),
    Slot(1, False, (1,), None, 16),
    Slot(1, False, (1, 2), 0),
    Slot(1, True, (1, 2), 0),
    Slot(2, True, (3, 4), 1),
]
TOKENS = [100, 16, 100, 100, 100, 100, 100, 100, 1]
REQUESTS = [{"body": {"sampling_params": {"max_new_tokens": tokens}}} for tokens in TOKENS]


def record(tokens: int = 101, verifies: int | None = 50) -> dict[str, Any]:
    return {"meta_info": {"completion_tokens": tokens} | ({"spec_verify_ct": verifies} if verifies else {})}


def line(finished: int, *, failed: int = 0, tokens: int = 0, elapsed_s: float = 0.0, records=(), slots=SLOTS) -> str:
    told = {"finished": finished, "failed": failed, "tokens": tokens, "elapsed_s": elapsed_s, "tok_s": 800.0}
    return Progress(slots, REQUESTS, 2, clock_rate=8.0).line(told, records)


def test_before_the_first_news_the_load_begins() -> None:
    assert Progress(SLOTS, REQUESTS, 2, 1.0).line(None, ()) == "the load begins"


@pytest.mark.parametrize(
    ("ended", "what"),
    [
        (0, "warming up"),
        (1, "switching"),
        (2, "k1, round 1 of 2"),
        (5, "k1, round 1 of 2"),
        (6, "k2, round 2 of 2"),
    ],
)
def test_it_names_the_setting_and_the_round_at_work(ended: int, what: str) -> None:
    assert line(ended) == f"concurrency 2, {what}, {ended} of 9 requests, 100.0 tok/s"


def test_after_the_last_slot_there_is_none_at_work() -> None:
    assert line(8) == "concurrency 2, 8 of 9 requests, 100.0 tok/s"


def test_requests_that_failed_have_ended_too_and_are_told() -> None:
    assert line(5, failed=1) == "concurrency 2, k2, round 2 of 2, 5 of 9 requests, 100.0 tok/s, 1 failed"


def test_the_servers_own_step_count_is_not_named() -> None:
    assert "round 1 of 1" in line(0, slots=[Slot(None, True, (0,), 0)])
    assert "baseline" not in line(0, slots=[Slot(None, True, (0,), 0)])


def test_the_accept_length_is_that_of_the_newest_requests() -> None:
    old, new = [record(verifies=100)] * 8, [record(verifies=50)] * 8
    assert "accept length 2.00" in line(3, records=[*old, *new])
    assert "accept length" not in line(3, records=[record(verifies=None)])


def test_what_is_left_goes_by_tokens_once_enough_are_there() -> None:
    assert "left" not in line(3, tokens=99, elapsed_s=5.0)
    assert "left" not in line(3, tokens=200, elapsed_s=1.9)
    assert line(3, tokens=217, elapsed_s=7.0).endswith("about 16 s left")  # 500 of 717 tokens to go
