"""Settings dealt out to loads."""

from __future__ import annotations

from eaglelab.sweep.matrix import Matrix, Variation
from eaglelab.sweep.plan import plan_loads


def one_load(_: Variation) -> str | None:
    return None


def old(_: Variation) -> str | None:
    return "SGLang 0.5.9 holds one step count a load"


def test_five_step_counts_and_the_baseline_are_two_loads_where_the_release_can() -> None:
    plan = plan_loads(Matrix(steps=(1, 2, 3, 5, 10)).points(), one_load, 900.0)
    assert [load.steps for load in plan.loads] == [None, (1, 2, 3, 5, 10)]
    assert [load.one_load for load in plan.loads] == [False, True]
    assert plan.loading_s == 1800.0
    assert plan.saved_s == 3600.0


def test_an_older_release_gets_a_load_each_and_each_says_why() -> None:
    plan = plan_loads(Matrix(steps=(1, 2, 3)).points(), old, 900.0)
    assert [load.steps for load in plan.loads] == [None, (1,), (2,), (3,)]
    assert {load.why for load in plan.loads[1:]} == {"SGLang 0.5.9 holds one step count a load"}
    assert plan.saved_s == 0.0


def test_one_step_count_needs_no_reason() -> None:
    (load,) = plan_loads(Matrix(steps=(3,), baseline=False).points(), old, 1.0).loads
    assert (load.steps, load.why, load.one_load) == ((3,), "", False)


def test_every_variation_has_its_own_baseline_and_its_own_load() -> None:
    matrix = Matrix(steps=(2, 3), env={"NCCL_ALGO": ("Ring", "Tree")})
    plan = plan_loads(matrix.points(), one_load, 10.0)
    assert [load.name for load in plan.loads] == [
        "baseline NCCL_ALGO=Ring",
        "k2,3 NCCL_ALGO=Ring",
        "baseline NCCL_ALGO=Tree",
        "k2,3 NCCL_ALGO=Tree",
    ]
    assert [point.key for point in plan.points] == [point.key for point in matrix.points()]


def test_one_variation_may_need_loads_that_another_does_not() -> None:
    def with_overlap(variation: Variation) -> str | None:
        return None if variation.flags.get("disable-overlap-schedule") else "only without overlap"

    matrix = Matrix(steps=(1, 2), baseline=False, flags={"disable-overlap-schedule": (True, False)})
    assert [load.steps for load in plan_loads(matrix.points(), with_overlap, 1.0).loads] == [(1, 2), (1,), (2,)]


def test_separate_loads_can_be_asked_for() -> None:
    plan = plan_loads(Matrix(steps=(1, 2), baseline=False).points(), one_load, 1.0, separate=True)
    assert [load.steps for load in plan.loads] == [(1,), (2,)]
