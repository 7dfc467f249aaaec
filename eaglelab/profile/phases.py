"""Phase times of one setting, on both clocks, and what they say in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eaglelab.profile.definitions import PHASES
from eaglelab.profile.stats import Stats, describe, rounded

__all__ = ["Phase", "host_sentence", "limit_sentence", "limiting_phase", "summarise_phases"]

# Below this share of the phase's own GPU time the two clocks are said to agree.
_AGREE_PERCENT = 5.0


@dataclass(frozen=True)
class Phase:
    """One phase: the same cycles by CUDA events and by host timers (ms), each with its share of the total (0 to 1)."""

    name: str
    event: Stats
    event_share: float | None
    host: Stats
    host_share: float | None

    @property
    def host_error_ms(self) -> float:
        """Host mean minus event mean; negative where the host timer shows too little."""
        return self.host.mean - self.event.mean

    @property
    def host_error_percent(self) -> float | None:
        """The same in percent of the event mean; None where that is 0."""
        return 100 * self.host_error_ms / self.event.mean if self.event.mean else None

    def to_json(self) -> dict[str, Any]:
        """Both clocks side by side."""
        return {
            "event_ms": {**self.event.to_json(), "share": rounded(self.event_share)},
            "host_ms": {**self.host.to_json(), "share": rounded(self.host_share)},
            "host_error_percent": rounded(self.host_error_percent, 2),
        }


def summarise_phases(
    event_ms: Mapping[str, Sequence[float]], host_ms: Mapping[str, Sequence[float]]
) -> tuple[Phase, ...]:
    """Describe all five phases, `total` last; empty when no cycle was kept."""
    event = {name: stats for name in PHASES if (stats := describe(event_ms[name])) is not None}
    host = {name: stats for name in PHASES if (stats := describe(host_ms[name])) is not None}
    return tuple(
        Phase(name, event[name], _share(event, name), host[name], _share(host, name))
        for name in PHASES
        if name in event
    )


def _share(stats: Mapping[str, Stats], name: str) -> float | None:
    whole = stats["total"].mean
    return stats[name].mean / whole if whole else None


def limiting_phase(phases: Sequence[Phase]) -> Phase | None:
    """The phase with the largest GPU time; None when nothing was kept."""
    parts = [phase for phase in phases if phase.name != "total"]
    return max(parts, key=lambda phase: phase.event.mean, default=None)


def limit_sentence(phases: Sequence[Phase]) -> str:
    """Which phase limits the decode loop, with the figures it rests on."""
    limit = limiting_phase(phases)
    if limit is None:
        return "No cycle was kept for timing, so nothing can be said about what limits the loop."
    share = "" if limit.event_share is None else f" ({100 * limit.event_share:.1f} %)"
    return (
        f"{limit.name} limits the loop: {limit.event.mean:.3f} ms of {phases[-1].event.mean:.3f} ms a cycle{share}, "
        f"by GPU time."
    )


def host_sentence(phases: Sequence[Phase]) -> str:
    """What host timers would have said of the same cycles, and where they put the time that they lose."""
    parts = [phase for phase in phases if phase.name != "total"]
    short = [phase for phase in parts if _percent(phase) < -_AGREE_PERCENT]
    if not parts:
        return ""
    if not short:
        return f"Host timers agree with the GPU's to {_AGREE_PERCENT:.0f} % in every phase of these cycles."
    told = " and ".join(
        f"{phase.name} at {phase.host.mean:.3f} ms where the GPU spent {phase.event.mean:.3f} ms "
        f"({-_percent(phase):.0f} % too little)"
        for phase in short
    )
    gainers = sorted((phase for phase in parts if phase.host_error_ms > 0), key=lambda phase: -phase.host_error_ms)
    charged = " and ".join(f"{phase.name} (+{phase.host_error_ms:.3f} ms)" for phase in gainers)
    return f"Host timers show {told}; they charge the difference to {charged or 'no phase'}."


def _percent(phase: Phase) -> float:
    percent = phase.host_error_percent
    return 0.0 if percent is None else percent
