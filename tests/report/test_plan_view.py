from __future__ import annotations

import io

import pytest
from rich.console import Console

from eaglelab.report.plan_view import duration, plan_table
from eaglelab.sweep.matrix import Matrix
from eaglelab.sweep.plan import SweepPlan, plan_loads


def shown(plan: SweepPlan, width: int = 80) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(plan_table(plan))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_one_load_for_several_step_counts_says_what_it_saves() -> None:
    plan = plan_loads(Matrix((1, 2, 5)).points(), lambda _: None, 900.0)
    assert shown(plan, 120) == [
        "load  steps     varied  why",
        "1     baseline  -       without speculation: a load of its own",
        "2     1, 2, 5   -       one load: requests choose among the step counts captured at start",
        "  2 loads of about 15 min: 30 min of loading, then the measuring",
        "  30 min less than a load for each setting",
    ]


def test_a_load_for_each_has_its_reason_and_saves_nothing() -> None:
    plan = plan_loads(Matrix((1, 2), baseline=False).points(), lambda _: "too old", 45.0)
    assert shown(plan) == [
        "load  steps  varied  why",
        "1     1      -       too old",
        "2     2      -       too old",
        "  2 loads of about 45 s: 90 s of loading, then the measuring",
    ]


def test_a_single_load_needs_no_reason() -> None:
    assert shown(plan_loads(Matrix((2,), baseline=False).points(), lambda _: None, 3.0))[1:] == [
        "1     2      -       -",
        "  1 load of about 3 s: 3 s of loading, then the measuring",
    ]


def test_what_is_varied_is_named_and_control_characters_are_not_sent_to_the_terminal() -> None:
    plan = plan_loads(Matrix((2,), baseline=False, env={"A": ["x\x1b[31m"]}, flags={"f": [True]}).points(), str, 3.0)
    (row,) = [line for line in shown(plan) if line.startswith("1 ")]
    assert "A=x" in row
    assert row.isprintable()


def test_a_long_name_is_folded_and_nothing_of_it_is_lost_at_80_columns() -> None:
    env = {"NCCL_ALGO": ["Ring"], "NCCL_PROTO": ["Simple"], "NCCL_MIN_NCHANNELS": ["16"]}
    lines = shown(plan_loads(Matrix((2, 5), env=env).points(), lambda _: None, 900.0))
    assert max(map(len, lines)) <= 80
    text = "".join("".join(lines).split())
    for name, (value,) in env.items():
        assert f"{name}={value}" in text


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.0, "0 s"), (99.4, "99 s"), (100.0, "2 min"), (900.0, "15 min"), (3599.0, "1 h 0 min"), (4500.0, "1 h 15 min")],
)
def test_a_duration_is_as_exact_as_it_need_be(seconds: float, words: str) -> None:
    assert duration(seconds) == words
