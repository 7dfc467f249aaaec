"""Whether gates hold, setting by setting.

By default the measured difference is judged: a gate is missed when that lies beyond the limit, however wide its interval.
`strict` calls it held only where the whole 95 % interval lies within, `lenient` missed only where all of it lies beyond.
What was not measured is missed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

from eaglelab.compare.comparison import Compared, Comparison
from eaglelab.compare.difference import Change, Difference
from eaglelab.compare.gate import Gate
from eaglelab.compare.metrics import signed
from eaglelab.compare.words import interval_words

__all__ = ["JUDGES", "Judge", "Verdict", "judge"]

Judge = Literal["estimate", "strict", "lenient"]
JUDGES: tuple[Judge, ...] = get_args(Judge)


@dataclass(frozen=True)
class Verdict:
    """A gate at one setting (`place` empty: at none). `what` says in a sentence what was found."""

    gate: Gate
    place: str
    difference: Difference | None
    held: bool
    what: str

    @property
    def name(self) -> str:
        """`tok_s >= -3% at 2 steps, concurrency 1`."""
        return f"{self.gate.text.strip()} at {self.place}" if self.place else self.gate.text.strip()

    def to_json(self) -> dict[str, Any]:
        return {
            "gate": self.gate.text,
            "metric": self.gate.metric.name,
            "setting": self.place or None,
            "held": self.held,
            "what": self.what,
            "difference": None if self.difference is None else self.difference.to_json(),
        }


def judge(gates: Iterable[Gate], comparison: Comparison, how: Judge = "estimate") -> tuple[Verdict, ...]:
    """A verdict for each gate and setting that it concerns; one that concerns none is missed."""
    return tuple(verdict for gate in gates for verdict in _of_gate(gate, comparison, how))


def _of_gate(gate: Gate, comparison: Comparison, how: Judge) -> Iterator[Verdict]:
    settings = [each for each in comparison.settings if gate.concerns(each.place.key, each.place.batch)]
    for each in settings:
        yield _at(gate, each, how)
    measured = {each.place.key for each in settings}
    lost = [each for each in comparison.failed if each.key not in measured and gate.concerns(each.key, None)]
    for failure in lost:
        what = f"{comparison.candidate.label} failed there: {failure.what}"
        yield Verdict(gate, failure.key.words, None, held=False, what=what)
    if not settings and not lost:
        what = "no setting that both runs measured is concerned, and what was not measured is missed"
        yield Verdict(gate, "", None, held=False, what=what)


def _at(gate: Gate, compared: Compared, how: Judge) -> Verdict:
    place, difference = compared.place.words, compared.differences.get(gate.metric.name)
    change = None if difference is None else difference.percent if gate.relative else difference.absolute
    if difference is None or change is None:
        return Verdict(gate, place, difference, held=False, what="not measured in both runs, so missed")
    held = _held(gate, change, how)
    unit = " %" if gate.relative else f" {gate.metric.unit}".rstrip()
    decimals = 2 if gate.relative else gate.metric.decimals
    spread = f" ({interval_words(change, decimals)})" if change.ci95 else ", with no interval"
    return Verdict(gate, place, difference, held, f"{signed(change.value, decimals)}{unit}{spread}")


def _held(gate: Gate, change: Change, how: Judge) -> bool:
    if how == "estimate" or (change.ci95 is None and how == "lenient"):
        return gate.allows(change.value)
    if change.ci95 is None:
        return False
    ends = [gate.allows(end) for end in change.ci95]
    return all(ends) if how == "strict" else any(ends)
