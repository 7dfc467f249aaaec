"""Where a cycle's time goes at every step count, by CUDA events, and how much of it the GPU only waits for the host."""

from __future__ import annotations

from collections.abc import Mapping

from eaglelab.model.polyline import Polyline
from eaglelab.model.prediction import Prediction

__all__ = ["PARTS", "PhaseCurves"]

PARTS = ("draft", "verify", "extend", "other")
_MORE_WORK = ("verify", "extend")
"""Phases in which a higher step count gives the GPU at least as much to do."""


class PhaseCurves:
    """Each phase straight between the measured counts, and all of them scaled to the predicted cycle.

    On host timers only where `by_host` says so; waits are never told from those. `known` is False where no phase was
    measured. One measured count tells the draft's slope by its K - 1 forwards; the
    other phases are then taken as they are there.
    """

    def __init__(self, prediction: Prediction, *, by_host: bool = False) -> None:
        self._prediction = prediction
        clock = [(each.steps, each.host_ms if by_host else each.event_ms) for each in prediction.seen]
        timed = [(steps, times) for steps, times in clock if all(name in times for name in PARTS)]
        self._events = {} if by_host else dict(timed)
        self.known = bool(timed)
        self._curves = {
            name: Polyline([(float(steps), times[name]) for steps, times in timed]) for name in PARTS if timed
        }
        if len(timed) == 1 and timed[0][0] > 1:
            steps, times = timed[0]
            self._curves["draft"] = Polyline([(1.0, 0.0), (float(steps), times["draft"])])

    def at(self, steps: int) -> dict[str, float]:
        """ms of each phase; they add up to the predicted cycle. Empty where nothing is known."""
        parts = {name: max(curve.at(steps), 0.0) for name, curve in self._curves.items()}
        whole = sum(parts.values())
        scale = self._prediction.cycle.at(steps) / whole if whole else 0.0
        return {name: time * scale for name, time in parts.items()}

    def waits(self, steps: int) -> Mapping[str, float]:
        """ms of each phase in which the GPU at least idles at a measured count, within the times of `at`.

        Events take in what the GPU idles between them. A higher step count has no less to compute, so what a phase takes
        longer than at a higher count is idle time. The highest count tells nothing of itself: 0 there.
        """
        here = self._events.get(steps)
        if here is None:
            return {}
        scale = self._prediction.cycle.at(steps) / sum(here[name] for name in PARTS)
        higher = [events for count, events in self._events.items() if count >= steps]
        return {name: scale * (here[name] - min(events[name] for events in higher)) for name in _MORE_WORK}
