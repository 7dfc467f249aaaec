"""The reverse of `Setting.to_json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eaglelab.profile.acceptance import acceptance
from eaglelab.profile.phases import Phase
from eaglelab.profile.stats import Stats
from eaglelab.profile.summary import Rank, Rate, Setting

__all__ = ["setting_of"]


def setting_of(found: Mapping[str, Any]) -> Setting:
    """One entry of `settings` in profile.json, its figures as they were rounded there.

    Raises KeyError or TypeError for what is none.
    """
    cycles, accepted, rate = found["cycles"], found["acceptance"], found["tok_s"]
    return Setting(
        worker=found["worker"],
        steps=found["steps"],
        batch_size=found["batch_size"],
        sync=found["sync"],
        rank=found["rank"],
        world=found["world"],
        cycles=cycles["kept"],
        decode_cycles=cycles["decode"],
        dropped=dict(cycles["dropped"]),
        skipped=cycles["skipped"],
        unknown=cycles["unknown"],
        graph=None if cycles["graph"] is None else dict(cycles["graph"]),
        tokens=found["tokens"],
        phases=tuple(_phase(name, phase) for name, phase in found["phases"].items()),
        acceptance=None if accepted is None else acceptance(accepted["correct_hist"], found["steps"]),
        rate=None
        if rate is None
        else Rate(rate["in_all"], _ends(rate["in_all_ci95"]), found["batch_size"], rate["cycles"]),
        ranks=tuple(Rank(rank["rank"], rank["cycles"], dict(rank["event_ms"])) for rank in found["ranks"]),
    )


def _phase(name: str, found: Mapping[str, Any]) -> Phase:
    event, host = found["event_ms"], found["host_ms"]
    return Phase(name, _stats(event), event["share"], _stats(host), host["share"])


def _stats(found: Mapping[str, Any]) -> Stats:
    known = {name: found[name] for name in ("count", "mean", "median", "p90", "p95", "p99", "stdev")}
    return Stats(**known, ci95=_ends(found["ci95"]))


def _ends(found: list[float] | None) -> tuple[float, float] | None:
    return None if found is None else (found[0], found[1])
