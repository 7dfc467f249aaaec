"""The accept length at every step count, from survival and the accept lengths that were measured.

    AL(K) = 1 + S_1 + ... + S_K

The histogram of the highest step count knows S_1 to S_Kmax, but reads low for small K: with more steps a bigger share of
drafts starts in the hard stretch just after a rejection. So the ratio of measured to read AL is taken at each measured K
and interpolated in log K; below the lowest measured K it is held. Above the highest, S falls on as it did on average.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from eaglelab.model.isotonic import rising
from eaglelab.model.polyline import Polyline
from eaglelab.model.seen import Seen, by_steps

__all__ = ["AcceptCurve", "one_alpha"]

_OWN = 0.005
_BETWEEN = 0.03
_OUTSIDE = 0.05
"""Half-widths (shares): at a measured count, between two, outside of them. See docs/model.md for what they rest on."""


class AcceptCurve:
    """AL(K) for K >= 1, never falling. `guessed`: no survival was measured, so it is that of one chance for all positions."""

    def __init__(self, seen: Sequence[Seen]) -> None:
        self._seen = by_steps(seen)
        top = max((each for each in self._seen if each.survival), key=lambda each: each.steps, default=None)
        self.guessed = top is None
        base = self._seen[-1] if top is None else top
        alpha = one_alpha(base.accept_length, base.steps)
        measured = () if top is None else tuple(top.survival[: top.steps])
        self._survival = measured or tuple(alpha**k for k in range(1, base.steps + 1))
        self._alpha = alpha
        # What is measured to fall is noise: neighbours that do are taken at their mean.
        lengths = rising([each.accept_length for each in self._seen])
        logs = [
            (math.log(each.steps), math.log(length / self._read(each.steps)))
            for each, length in zip(self._seen, lengths, strict=True)
        ]
        self._bias = Polyline(logs)
        self._lengths = [1.0]

    def at(self, steps: int) -> float:
        """Tokens per verify and request, bonus included; 1 for no step."""
        for k in range(len(self._lengths), steps + 1):
            self._lengths.append(max(self._lengths[-1], min(k + 1, self._corrected(k))))
        return self._lengths[steps]

    def step(self, steps: int) -> float:
        """S_K after the correction: what the K-th step adds."""
        return self.at(steps) - self.at(steps - 1)

    def band(self, steps: int) -> tuple[float, float]:
        """How far AL may lie below and above `at`, as shares of it."""
        lowest, highest = self._seen[0].steps, self._seen[-1].steps
        if any(each.steps == steps for each in self._seen):
            return _OWN, _OWN
        if steps <= highest:
            half = _BETWEEN if steps > lowest and not self.guessed else _OUTSIDE
            return half, half
        length = self.at(steps)
        known = self.at(highest)
        return _OUTSIDE + 1 - known / length, _OUTSIDE + (steps - highest) * self._tail() / length

    def _corrected(self, steps: int) -> float:
        inside = min(max(steps, self._seen[0].steps), self._seen[-1].steps)
        return self._read(steps) * math.exp(self._bias.at(math.log(inside)))

    def _read(self, steps: int) -> float:
        known = self._survival[:steps]
        beyond = (self._survival[-1] * self._alpha**k for k in range(1, steps - len(self._survival) + 1))
        return 1 + math.fsum(known) + math.fsum(beyond)

    def _tail(self) -> float:
        """S at the highest measured count: more than that no further step can add."""
        return self._survival[-1]


def one_alpha(accept_length: float, steps: int) -> float:
    """The chance a that gives 1 + a + ... + a^K = AL: Leviathan et al., 2211.17192. A last resort: real S_k falls faster."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if math.fsum(middle**k for k in range(steps + 1)) < accept_length:
            low = middle
        else:
            high = middle
    return (low + high) / 2
