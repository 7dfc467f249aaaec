"""Settings measured with SGLang's bench_serving: its rows, what repeats make of them, and the speed-up over the baseline.

`kind: eaglelab-serving`, schema 1. Keys are stable within a schema; new ones may be added.

    simulated       null or the label of the simulated GPU; times are then wall times, not its own
    sglang          version, null where not known
    definitions     figure -> sentence
    settings[]      one per setting and concurrency: steps variation concurrency runs, `figures` (mean, stdev, count and
                    ci95 over the runs), and speed_up: the same of the ratio to the baseline, null where there is none
    runs[]          one per run of bench_serving: steps variation concurrency repeat seed asked, `row` as it wrote it
    failed[]        settings that came to nothing: steps, variation, what

The unit of every interval is the run. Runs of one load do not tell what another load of the same setting would give.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import Any

from eaglelab.profile.measurement_set import Failed
from eaglelab.profile.serving_row import SERVING_DEFINITIONS, SERVING_FIGURES, ServingRow
from eaglelab.profile.setting_key import SettingKey
from eaglelab.profile.stats import Stats, describe, rounded, rounded_pair

__all__ = ["ServingRun", "ServingSet", "ServingSetting", "run_from_json", "serving_csv", "serving_json"]

_KIND, _SCHEMA = "eaglelab-serving", 1
_RATE = "output_throughput"


@dataclass(frozen=True)
class ServingRun:
    """One run of bench_serving. `asked`: how many requests it was to send."""

    key: SettingKey
    concurrency: int
    repeat: int
    seed: int
    asked: int
    row: ServingRow

    def to_json(self) -> dict[str, Any]:
        """With the row as it was written."""
        about = {"concurrency": self.concurrency, "repeat": self.repeat, "seed": self.seed, "asked": self.asked}
        return {**self.key.to_json(), **about, "row": self.row.to_json()}


@dataclass(frozen=True)
class ServingSetting:
    """The runs of one setting at one concurrency. `speed_up`: ratio of output throughput to the baseline's.

    Runs are paired by their repeat, which has the same seed and so the same prompts for both. None without a pair.
    """

    key: SettingKey
    concurrency: int
    runs: tuple[ServingRun, ...]
    speed_up: Stats | None

    def figure(self, name: str) -> Stats | None:
        """A figure over the runs that have it."""
        values = [run.row[name] for run in self.runs]
        return describe([value for value in values if value is not None])


@dataclass(frozen=True)
class ServingSet:
    """All runs on one host. `ranked` False: requests came at a rate, so that throughput is that rate and no speed-up."""

    runs: tuple[ServingRun, ...]
    simulated: str | None = None
    sglang: str | None = None
    failed: tuple[Failed, ...] = ()
    ranked: bool = True

    @property
    def settings(self) -> list[ServingSetting]:
        """By concurrency, then as they were measured."""
        keys = list(dict.fromkeys((run.concurrency, run.key) for run in self.runs))
        return [self._setting(key, concurrency) for concurrency, key in sorted(keys, key=lambda each: each[0])]

    def _setting(self, key: SettingKey, concurrency: int) -> ServingSetting:
        runs = self._of(key, concurrency)
        return ServingSetting(key, concurrency, runs, self._speed_up(key, concurrency) if self.ranked else None)

    def _of(self, key: SettingKey, concurrency: int) -> tuple[ServingRun, ...]:
        return tuple(run for run in self.runs if (run.key, run.concurrency) == (key, concurrency))

    def _speed_up(self, key: SettingKey, concurrency: int) -> Stats | None:
        """Over the baseline with the same flags and variables."""
        if key.steps is None:
            return None
        base = {run.repeat: run.row[_RATE] for run in self._of(SettingKey(None, key.variation), concurrency)}
        pairs = [(run.row[_RATE], base.get(run.repeat)) for run in self._of(key, concurrency)]
        return describe([rate / other for rate, other in pairs if rate is not None and other])


def run_from_json(found: dict[str, Any]) -> ServingRun:
    """What `ServingRun.to_json` gave."""
    row = found["row"]
    figures = {name: row[name] for name in SERVING_FIGURES}
    more = {name: value for name, value in row.items() if name not in figures}
    numbers = (found["concurrency"], found["repeat"], found["seed"], found["asked"])
    return ServingRun(SettingKey(found["steps"], found["variation"]), *numbers, ServingRow(figures, more))


def serving_json(measured: ServingSet) -> dict[str, Any]:
    """The document that the module describes."""
    return {
        "kind": _KIND,
        "schema": _SCHEMA,
        "simulated": measured.simulated,
        "sglang": measured.sglang,
        "definitions": dict(SERVING_DEFINITIONS),
        "settings": [_setting_json(setting) for setting in measured.settings],
        "runs": [run.to_json() for run in measured.runs],
        "failed": [failed.to_json() for failed in measured.failed],
    }


def _setting_json(setting: ServingSetting) -> dict[str, Any]:
    figures = {name: _spread(setting.figure(name)) for name in SERVING_FIGURES}
    about = {"concurrency": setting.concurrency, "runs": len(setting.runs)}
    return {**setting.key.to_json(), **about, "figures": figures, "speed_up": _spread(setting.speed_up)}


def _spread(stats: Stats | None) -> dict[str, Any] | None:
    if stats is None:
        return None
    spread = {"stdev": rounded(stats.stdev), "count": stats.count, "ci95": rounded_pair(stats.ci95)}
    return {"mean": rounded(stats.mean), **spread}


def serving_csv(measured: ServingSet) -> str:
    """A row a run under bench_serving's own names, then one a setting that failed, with its `error`."""
    columns = ["steps", "variation", "max_concurrency", "repeat", "seed", "num_prompts", *SERVING_FIGURES]
    target = io.StringIO()
    writer = csv.DictWriter(target, [*columns, "simulated", "sglang", "error"], lineterminator="\n")
    writer.writeheader()
    server = {"simulated": measured.simulated or "", "sglang": measured.sglang or ""}
    for run in measured.runs:
        about = {"max_concurrency": run.concurrency, "repeat": run.repeat, "seed": run.seed, "num_prompts": run.asked}
        writer.writerow({**run.key.to_json(), **about, **run.row.figures, **server})
    for failed in measured.failed:
        writer.writerow({**failed.key.to_json(), **server, "error": failed.what})
    return target.getvalue()
