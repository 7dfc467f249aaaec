"""A run as a row of a table, and its settings as rows of another: what the index holds and an export writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from eaglelab.profile.setting_key import SettingKey

__all__ = ["EXPORTED", "RunRow", "SettingRow", "flat"]


@dataclass(frozen=True)
class SettingRow:
    """One setting at one concurrency. Rates in tokens/s, times in ms (GPU, mean a cycle), None where not measured.

    `source` is what tok/s comes from: `requests` (without the probe), `bench_serving`, or `profile` (the probe's own cycles,
    which are no throughput to rank by). `baseline_ratio`: tok/s over that of the baseline.
    """

    source: str
    steps: int | None
    variation: str
    batch: int
    tok_s: float | None = None
    tok_s_low: float | None = None
    tok_s_high: float | None = None
    accept_length: float | None = None
    draft_ms: float | None = None
    verify_ms: float | None = None
    extend_ms: float | None = None
    other_ms: float | None = None
    total_ms: float | None = None
    baseline_ratio: float | None = None
    simulated: str | None = None

    @property
    def key(self) -> SettingKey:
        return SettingKey(self.steps, self.variation)


@dataclass(frozen=True)
class RunRow:
    """A run on a host. `began` in Unix seconds; `finished`: it came to its end; `bundle` is the host's folder. `workload`:
    what was asked for of the requests, empty for the playbook's defaults."""

    run: str
    host: str
    command: str
    began: float | None
    finished: bool
    model: str | None
    draft: str | None
    sglang: str | None
    gpu: str | None
    driver: str | None
    tp: int | None
    workload: str
    simulated: str | None
    headline: str
    bundle: str
    settings: tuple[SettingRow, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def _columns(row: type, without: str) -> dict[str, str]:
    """Each column and the kind of its values: str, int, float or bool."""
    return {field.name: str(field.type).partition(" |")[0] for field in fields(row) if field.name != without}


_OF_RUN = _columns(RunRow, "settings")
_OF_SETTING = _columns(SettingRow, "simulated")

EXPORTED = {**_OF_RUN, **_OF_SETTING}
"""The columns of `flat`, with the kind of their values."""


def flat(rows: Sequence[RunRow]) -> Iterator[dict[str, Any]]:
    """A row for each setting with its run's columns; one without a setting's for a run that measured none."""
    for row in rows:
        about = {name: getattr(row, name) for name in _OF_RUN}
        for setting in row.settings:
            yield {**about, **{name: getattr(setting, name) for name in _OF_SETTING}}
        if not row.settings:
            yield {**about, **dict.fromkeys(_OF_SETTING)}
