"""Runs over time: which are asked for, and whether the newest of a setting is better or worse than those before.

The newest is held against the median of the earlier ones. From three earlier runs on, noise is what differs between them:
the newest is a tie inside their 95 % prediction interval (Student's t on the logarithms, n - 1 degrees of freedom, times
the square root of 1 + 1/n). With fewer, its own interval decides, which does not cover what differs between loads.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from eaglelab.profile.ranking import MINIMUM_RELEVANT
from eaglelab.profile.setting_key import SettingKey
from eaglelab.profile.stats import rounded, t_975
from eaglelab.runs.rows import RunRow, SettingRow

__all__ = ["Asked", "Point", "Series", "trends"]

_ENOUGH = 3

_Place = tuple[str, str | None, str | None, int | None, str, str, SettingKey, int, str | None]

Judged = Literal["better", "worse", "tie", "unsure", "first"]
_WORDS: Mapping[bool, Judged] = {True: "better", False: "worse"}


@dataclass(frozen=True)
class Asked:
    """Which runs: all that are None pass.

    `host` is one or several with commas between, `model` a part of the model's path, `sglang` a version or the beginning of
    one (`0.5` is 0.5.12 and not 0.50), `since` in Unix seconds.
    """

    model: str | None = None
    host: str | None = None
    sglang: str | None = None
    since: float | None = None

    def passes(self, row: RunRow) -> bool:
        return (
            (self.host is None or row.host in self.host.split(","))
            and (self.model is None or self.model.casefold() in (row.model or "").casefold())
            and (self.sglang is None or f"{row.sglang or ''}.".startswith(f"{self.sglang.rstrip('.')}."))
            and (self.since is None or (row.began is not None and row.began >= self.since))
        )


@dataclass(frozen=True)
class Point:
    """One run's figure (tokens/s), and the release that it ran."""

    run: str
    began: float | None
    sglang: str | None
    tok_s: float
    ci95: tuple[float, float] | None


@dataclass(frozen=True)
class Series:
    """One setting on one host under one workload, its runs from old to new. What a run is as in `RunRow`, `source` as in
    `SettingRow`."""

    host: str
    model: str | None
    gpu: str | None
    tp: int | None
    workload: str
    source: str
    key: SettingKey
    batch: int
    simulated: str | None
    points: tuple[Point, ...]

    @property
    def release(self) -> str:
        """`0.5.9 -> 0.5.12` where the newest ran another release than the one before; else empty."""
        newest, before = self.points[-1].sglang, self.points[-2].sglang if len(self.points) > 1 else None
        return f"{before} -> {newest}" if newest and before and newest != before else ""

    @property
    def before(self) -> float | None:
        """Median of all but the newest."""
        earlier = [point.tok_s for point in self.points[:-1]]
        return statistics.median(earlier) if earlier else None

    @property
    def percent(self) -> float | None:
        """The newest against that."""
        return None if self.before is None else 100 * (self.points[-1].tok_s / self.before - 1)

    @property
    def noise(self) -> float | None:
        """Percent, up and down, within which the newest is no news; None where fewer than three earlier runs tell it."""
        logs = [math.log(point.tok_s) for point in self.points[:-1]]
        if len(logs) < _ENOUGH:
            return None
        return 100 * math.expm1(t_975(len(logs) - 1) * statistics.stdev(logs) * math.sqrt(1 + 1 / len(logs)))

    @property
    def judged(self) -> Judged:
        """`unsure`: fewer than three earlier runs, and no interval of its own."""
        if self.before is None or self.percent is None:
            return "first"
        newest, word = self.points[-1], _WORDS[self.percent > 0]
        if abs(self.percent) < 100 * MINIMUM_RELEVANT:
            return "tie"
        if self.noise is not None:
            away = 100 * math.expm1(abs(math.log(newest.tok_s / self.before)))
            return "tie" if away <= self.noise else word
        if newest.ci95 is None:
            return "unsure"
        return "tie" if newest.ci95[0] <= self.before <= newest.ci95[1] else word

    def to_json(self) -> dict[str, Any]:
        return {
            "host": self.host,
            "model": self.model,
            "gpu": self.gpu,
            "tp": self.tp,
            "workload": self.workload,
            "source": self.source,
            **self.key.to_json(),
            "batch": self.batch,
            "simulated": self.simulated,
            "tok_s": [rounded(point.tok_s) for point in self.points],
            "runs": [point.run for point in self.points],
            "sglang": [point.sglang for point in self.points],
            "median_before": rounded(self.before),
            "percent": rounded(self.percent),
            "noise_percent": rounded(self.noise),
            "judged": self.judged,
        }


def trends(rows: Iterable[RunRow]) -> tuple[Series, ...]:
    """A series for each host, model and setting, by host, then concurrency, then the simplest setting first.

    Figures that are not like with like are series of their own: of other GPUs, of another number of them, of other
    requests, of another client, simulated ones.
    """
    found: dict[_Place, list[Point]] = {}
    for row in sorted(rows, key=lambda each: (each.began or 0.0, each.run)):
        for setting in row.settings:
            if setting.tok_s:
                about = (row.host, row.model, row.gpu, row.tp, row.workload)
                place = (*about, setting.source, setting.key, setting.batch, setting.simulated)
                found.setdefault(place, []).append(_point(row, setting, setting.tok_s))
    return tuple(Series(*place, tuple(found[place])) for place in sorted(found, key=_order))


def _point(row: RunRow, setting: SettingRow, tok_s: float) -> Point:
    low, high = setting.tok_s_low, setting.tok_s_high
    return Point(row.run, row.began, row.sglang, tok_s, None if low is None or high is None else (low, high))


def _order(place: _Place) -> tuple[Any, ...]:
    host, model, gpu, tp, workload, source, key, batch, simulated = place
    return (host, model or "", gpu or "", tp or 0, workload, source, simulated or "", batch, *key.simplicity)
