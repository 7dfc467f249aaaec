"""Plays many points on several stages at the same time."""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from play import Result, play
from points import Point
from stage import Stage

__all__ = ["Progress", "run"]

Progress = Callable[[Result, int, int], None]
"""Called after each point, with how many are done and how many of these are lost."""


def run(points: Sequence[Point], folder: Path, jobs: int, progress: Progress | None) -> list[Result]:
    """The results in the order of `points`; every stage is gone when this returns."""
    stages: queue.SimpleQueue[Stage] = queue.SimpleQueue()
    made: list[Stage] = []
    done: list[Result] = []

    def one(point: Point) -> Result:
        stage = stages.get()
        try:
            result = play(stage, point)
        finally:
            stages.put(stage)
        done.append(result)
        if progress is not None:
            progress(result, len(done), sum(bool(other.wrong) for other in done))
        return result

    try:
        for number in range(jobs):
            made.append(Stage(folder / f"stage-{number}"))
            stages.put(made[-1])
        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(one, points))
    finally:
        for stage in made:
            stage.close()
