"""One fault point of every kind. `make faults` plays all of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from breaking import run
from kinds import FIRE
from kinds.moment import Moment
from points import Point, all_points, sample
from setups import SETUPS
from table import headline, losses

SEED = 0


def test_every_point_has_a_name_of_its_own_a_kind_and_moments_that_can_be_told() -> None:
    points = all_points()
    assert len({point.name for point in points}) == len(points) >= 200
    assert {point.kind for point in points} == FIRE.keys()
    assert {point.setup for point in points} == SETUPS.keys()
    for step in (step for point in points for step in point.steps):
        assert Moment.parse(step["moment"]).name


def test_the_sample_is_one_of_every_kind_and_the_same_every_time() -> None:
    chosen = sample(all_points(), SEED, 1)
    assert {point.kind for point in chosen} == FIRE.keys()
    assert len(chosen) == len(FIRE)
    assert chosen == sample(all_points(), SEED, 1)


@pytest.mark.sshd
def test_a_host_survives_one_fault_of_every_kind(tmp_path: Path) -> None:
    print(f"seed {SEED}")
    points: Sequence[Point] = sample(all_points(), SEED, 1)
    results = run(points, tmp_path, jobs=4, progress=None)
    print(losses(results))
    assert headline(results).endswith(", 0 lost"), losses(results)
    skipped = {result.point.setup for result in results if result.skipped}
    assert skipped <= {"small-disk", "lift-immutable"}  # what needs root
