"""Measurements of one sweep from several equal hosts, made one set. Each host has measured the same reference.

Hosts are never quite equal: how far their references are apart is what a difference between settings of two hosts
cannot be told from. The set's smallest relevant difference is raised to that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eaglelab.profile.bench import summarise_bench
from eaglelab.profile.findings import Finding
from eaglelab.profile.measurement_set import Failed, Measurement, MeasurementSet
from eaglelab.profile.ranking import MINIMUM_RELEVANT
from eaglelab.profile.setting_key import SettingKey
from eaglelab.profile.stats import rounded

__all__ = ["APART", "Placed", "Spread", "merge"]

APART = 0.03
"""References further apart than this (a share) are a warning: something is wrong with one of the hosts."""


@dataclass(frozen=True)
class Placed:
    """A setting's throughput (tok/s, probe off) on the host that measured it; `ratio` to that host's own reference."""

    host: str
    key: SettingKey
    batch: int
    tok_s: float
    ratio: float | None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        ratio = None if self.ratio is None else rounded(self.ratio)
        return {
            **self.key.to_json(),
            "host": self.host,
            "batch": self.batch,
            "tok_s": rounded(self.tok_s),
            "ratio": ratio,
        }


@dataclass(frozen=True)
class Spread:
    """`measured`: one set in which the reference is that of the first host. `placed`: every setting, on every host."""

    measured: MeasurementSet
    placed: tuple[Placed, ...]
    reference: SettingKey

    def to_json(self) -> dict[str, Any]:
        """Plain values; settings by their ratio to the reference of their host, the best first."""
        return {"reference": self.reference.to_json(), "settings": [each.to_json() for each in self.placed]}


def merge(
    by_host: Mapping[str, Sequence[Measurement]],
    reference: SettingKey,
    *,
    simulated: str | None,
    sglang: str | None,
    failed: Sequence[Failed] = (),
) -> Spread:
    """The measurements of hosts (in this order), each of which has `reference`. Loads are named by host: `h1/k2`."""
    placed = tuple(sorted(_placed(by_host, reference), key=lambda each: (each.batch, -(each.ratio or 0.0))))
    findings, widest = _references(placed, reference)
    seen: set[tuple[SettingKey, int, bool]] = set()
    kept = []
    for host, measurements in by_host.items():
        for found in measurements:
            result = found.result
            about = (result.key, result.batch, result.profiled)
            if about not in seen:
                kept.append(replace(found, result=replace(result, load=f"{host}/{result.load}")))
            seen.add(about)
    measured = MeasurementSet(
        tuple(kept), simulated, sglang, tuple(findings), max(MINIMUM_RELEVANT, widest), tuple(failed)
    )
    return Spread(measured, placed, reference)


def _placed(by_host: Mapping[str, Sequence[Measurement]], reference: SettingKey) -> Iterator[Placed]:
    for host, measurements in by_host.items():
        rates = {}
        for found in measurements:
            result, rate = found.result, summarise_bench(found.result).tok_s_in_all
            if not result.profiled and rate is not None:
                rates[result.key, result.batch] = rate
        for (key, batch), rate in rates.items():
            own = rates.get((reference, batch))
            yield Placed(host, key, batch, rate, rate / own if own else None)


def _references(placed: Sequence[Placed], reference: SettingKey) -> tuple[list[Finding], float]:
    """What the hosts' references say of each other, and how far (a share) they are apart at most."""
    findings, widest = [], 0.0
    for batch in sorted({each.batch for each in placed}):
        rates = {each.host: each.tok_s for each in placed if each.key == reference and each.batch == batch}
        if len(rates) < 2:
            continue
        slow, fast = min(rates, key=rates.__getitem__), max(rates, key=rates.__getitem__)
        apart = rates[fast] / rates[slow] - 1
        widest = max(widest, apart)
        sentence = (
            f"the settings come from {len(rates)} hosts. Their reference ({reference.words}) gave from "
            f"{rates[slow]:.1f} tok/s on {slow} to {rates[fast]:.1f} on {fast} at concurrency {batch}, {100 * apart:.1f} % "
            "apart: settings of different hosts that are no further apart count as equal"
        )
        numbers = {"hosts": len(rates), "batch": batch, "apart_percent": rounded(100 * apart)}
        findings.append(Finding("reference-across-hosts", "warning" if apart > APART else "note", sentence, numbers))
    return findings, widest
