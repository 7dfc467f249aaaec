"""The sweep file that comes with the project."""

from __future__ import annotations

from pathlib import Path

from eaglelab.sweep.nccl_choice import nccl_conflict
from eaglelab.sweep.values import load_sweep

EXAMPLE = Path(__file__).resolve().parents[2] / "playbooks/sweeps/nccl.yaml"


def test_the_example_is_a_matrix_of_four_variations() -> None:
    matrix = load_sweep(EXAMPLE)
    assert [point.steps for point in matrix.points()] == [2, 3] * 4
    assert {variation.env["NCCL_ALGO"] for variation in matrix.variations()} == {"allreduce:Ring", "allreduce:Tree"}
    assert not any(nccl_conflict(each.env, each.flags, world=8, nodes=1, version=None) for each in matrix.variations())
    assert all(variation.flags["disable-custom-all-reduce"] is True for variation in matrix.variations())
