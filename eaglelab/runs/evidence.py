"""All that one run left behind of one host, as it is read back from its bundle, whichever command made it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eaglelab.profile.measurement_set import MeasurementSet
from eaglelab.profile.summary import Profile, Setting

__all__ = ["LoadEvidence", "RunEvidence"]

Json = Mapping[str, Any]


@dataclass(frozen=True)
class LoadEvidence:
    """One load of the server.

    `name` is its folder in the bundle, empty for a run that has one load only. `steps`: the counts it could run; empty
    for the baseline, None where nothing says. `fingerprint` is fingerprint.json (versions, GPUs, driver, patch, workers,
    flags, env, command), `server` server.json, `gpus` each gpus.json (clocks and temperatures, before and after) by the
    folder it is in. `workloads`: what was sent, by concurrency (`args` of measured-c*.json). Files are there or not: `log`
    the server's log, `probe_files` the probe's records of every rank.
    """

    name: str
    steps: tuple[int, ...] | None = None
    fingerprint: Json = field(default_factory=dict)
    server: Json = field(default_factory=dict)
    gpus: Mapping[str, Json] = field(default_factory=dict)
    workloads: Mapping[int, Json] = field(default_factory=dict)
    profile: Profile | None = None
    log: Path | None = None
    probe_files: tuple[Path, ...] = ()


@dataclass(frozen=True)
class RunEvidence:
    """A run on a host.

    `began` is in Unix seconds, None where nothing says. `request` is request.json (empty for runs of early versions).
    `measured` is there for bench and sweep; `serving` (serving.json) where SGLang's own client measured. `problems` names
    what is damaged and was left out, a sentence each.
    """

    run: str
    host: str
    command: str
    folder: Path
    finished: bool
    began: float | None = None
    simulated: str | None = None
    sglang: str | None = None
    request: Json = field(default_factory=dict)
    inventory: Json = field(default_factory=dict)
    facts: Json = field(default_factory=dict)
    server_info: Json = field(default_factory=dict)
    serving: Json | None = None
    measured: MeasurementSet | None = None
    loads: tuple[LoadEvidence, ...] = ()
    problems: tuple[str, ...] = ()

    def settings(self, batch: int | None = None) -> Iterator[Setting]:
        """The probe's cycles of each setting at a batch size (of all without one): those at the wanted concurrency
        where requests were measured, else all of a load."""
        measured = [] if self.measured is None else [each.setting for each in self.measured.measurements]
        profiled = [setting for load in self.loads if load.profile for setting in load.profile.settings]
        for setting in [each for each in measured if each is not None] or profiled:
            if batch in (None, setting.batch_size):
                yield setting

    @property
    def empty(self) -> bool:
        """Whether nothing in it says anything about speed."""
        return self.measured is None and self.serving is None and not any(load.profile for load in self.loads)
