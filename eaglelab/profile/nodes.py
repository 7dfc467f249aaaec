"""What the jobs of one sweep measured on several nodes of a cluster, made one set by the reference that each has measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eaglelab.profile.measurement_set import Failed, Measurement, MeasurementSet
from eaglelab.profile.setting_key import SettingKey
from eaglelab.profile.spread import Spread, merge

__all__ = ["merge_nodes"]


def merge_nodes(
    by_node: Mapping[str, Sequence[Measurement]],
    reference: SettingKey,
    *,
    simulated: str | None,
    sglang: str | None,
    failed: Sequence[Failed] = (),
) -> tuple[MeasurementSet, Spread | None]:
    """One set. Of one node it is as it is; of several, settings whose node has no reference of its own count as failed.

    Where no node has one, the node with most settings keeps its figures: they compare among themselves.
    """
    if len(by_node) < 2:
        of_one = tuple(found for measurements in by_node.values() for found in measurements)
        return MeasurementSet(of_one, simulated, sglang, failed=tuple(failed)), None
    having = {node: found for node, found in by_node.items() if reference in _keys(found)}
    kept = having or dict([max(by_node.items(), key=lambda item: len(_keys(item[1])))])
    known = {key for found in kept.values() for key in _keys(found)} | {each.key for each in failed}
    lost = [
        Failed(
            key.steps, key.variation, f"measured on {node} only, where {reference.words} could not be: not comparable"
        )
        for node, found in by_node.items()
        if node not in kept
        for key in _keys(found)
        if key not in known
    ]
    spread = merge(kept, reference, simulated=simulated, sglang=sglang, failed=[*failed, *lost])
    return spread.measured, spread


def _keys(measurements: Sequence[Measurement]) -> list[SettingKey]:
    return list(dict.fromkeys(found.result.key for found in measurements))
