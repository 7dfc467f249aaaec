"""Rounds in which all step counts of one load take turns: unmeasured requests for the figures, measured ones beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gpu.validate.client import Ask
from gpu.validate.probe import Mark
from gpu.validate.results import Data
from gpu.validate.site import Server

__all__ = ["CALIBRATED", "OneLoad"]

CALIBRATED = (2, 5, 8)
"""Step counts that are measured too. Not 1: without a second draft forward it is off the line of the others."""


@dataclass
class OneLoad:
    """One server with several candidates. `steps`: unmeasured answers by step count, `measured`: the same with the probe on,
    for the step counts that are `calibrated`."""

    server: Server
    tokens: int
    calibrated: Sequence[int] = CALIBRATED
    steps: dict[str, list[Data]] = field(default_factory=dict)
    measured: dict[str, list[Data]] = field(default_factory=dict)
    _mark: Mark = field(default_factory=dict)

    def begin(self) -> None:
        self._mark = self.server.probe.mark()

    def turns(self, number: int, prompt: Sequence[int]) -> Iterator[None]:
        """A round, a request a turn. Each round has another count first; measured and not are first as often."""
        counts = self.server.setting.candidates
        turn = number % len(counts)
        for steps in counts[turn:] + counts[:turn]:
            self.server.lead(steps)
            both = (0, 1) if number % 2 else (1, 0)
            for measured in both if steps in self.calibrated else (0,):
                ask = Ask(f"k={steps}/p={measured}/round-{number}", prompt, self.tokens)
                answer = self.server.client.ask(ask).to_json()
                (self.measured if measured else self.steps).setdefault(str(steps), []).append(answer)
                yield

    def data(self) -> Data:
        """What the rounds found; of what the probe counted and timed, the sums over all of them."""
        window = self.server.probe.since(self._mark).rank(0)
        calibration = {}
        for steps in self.calibrated:
            own = window.steps(steps)
            times = own.times
            calibration[str(steps)] = {
                "event_ms": times.means(times.event_ms),
                "host_ms": times.means(times.host_ms),
                "correct_hist": own.histograms.get(steps, []),
            }
        ordered = {str(steps): self.steps[str(steps)] for steps in self.server.setting.candidates}
        return {"steps": ordered, "measured": self.measured, "calibration": calibration}
