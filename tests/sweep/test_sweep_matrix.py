"""Settings made of values: crossed, zipped, each once."""

from __future__ import annotations

import pytest

from eaglelab.errors import InputError
from eaglelab.sweep.matrix import Matrix, Point, Variation


def test_step_counts_alone_give_the_baseline_and_each_count_once_in_order() -> None:
    points = Matrix(steps=(2, 5, 2, 1)).points()
    assert [point.steps for point in points] == [None, 2, 5, 1]
    assert [point.name for point in points] == ["baseline", "k2", "k5", "k1"]


def test_every_value_meets_every_other_in_a_cross() -> None:
    matrix = Matrix(
        steps=(2, 3), env={"NCCL_ALGO": ("Ring", "Tree")}, flags={"disable-custom-all-reduce": (True, False)}
    )
    names = [variation.name for variation in matrix.variations()]
    assert names == [
        "NCCL_ALGO=Ring disable-custom-all-reduce",
        "NCCL_ALGO=Ring no disable-custom-all-reduce",
        "NCCL_ALGO=Tree disable-custom-all-reduce",
        "NCCL_ALGO=Tree no disable-custom-all-reduce",
    ]
    assert len(matrix.points()) == 4 * 3


def test_a_zip_takes_the_nth_of_each_together() -> None:
    matrix = Matrix(steps=(2,), env={"A": ("1", "2"), "B": ("x", "y")}, combine="zip", baseline=False)
    assert [(p.steps, dict(p.variation.env)) for p in matrix.points()] == [
        (2, {"A": "1", "B": "x"}),
        (2, {"A": "2", "B": "y"}),
    ]


def test_a_zip_of_unequal_lengths_is_refused_with_the_lengths() -> None:
    with pytest.raises(InputError, match="A has 2, B has 1"):
        Matrix(steps=(2,), env={"A": ("1", "2"), "B": ("x",)}, combine="zip").points()


def test_a_variation_that_comes_up_twice_is_measured_once() -> None:
    matrix = Matrix(steps=(2,), env={"A": ("1", "1"), "B": ("x", "x")}, combine="zip")
    assert len(matrix.variations()) == 1


def test_the_order_of_names_does_not_make_another_setting() -> None:
    one = Point(2, Variation(env={"A": "1", "B": "2"}, flags={"x": 1}))
    other = Point(2, Variation(env={"B": "2", "A": "1"}, flags={"x": 1}))
    assert one.key == other.key
    assert one.key != Point(3, one.variation).key
    assert one.key != Point(2, Variation(env={"A": "1", "B": "2"}, flags={"x": "1"})).key
