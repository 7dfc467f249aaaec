"""Why two sides differ: what rules find when one is held against the other, and what they find in one of them only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from eaglelab.compare.comparison import Compared, Comparison
from eaglelab.compare.difference import Difference
from eaglelab.compare.metrics import METRICS
from eaglelab.diagnosis.diagnosis import Diagnosis, gravest_first
from eaglelab.diagnosis.engine import diagnose
from eaglelab.diagnosis.facts import Facts
from eaglelab.diagnosis.of_cycles import words_of
from eaglelab.diagnosis.of_log import LOG_FACTS
from eaglelab.diagnosis.of_run import facts_of_run
from eaglelab.diagnosis.rule import Rule, known_rules
from eaglelab.profile.log_report import LogReport
from eaglelab.runs.evidence import RunEvidence

__all__ = ["Explanation", "explanations"]

_DIFFERS = 3.0
"""Percent from where on a difference without an interval is one that asks for an explanation."""

LogOf = Callable[[RunEvidence], LogReport | None]


@dataclass(frozen=True)
class Explanation:
    """One cause. `of`: the side in which alone it was found; `both` where it was found by holding the two against each other."""

    of: Literal["both", "reference", "candidate"]
    diagnosis: Diagnosis

    def words(self, comparison: Comparison) -> str:
        """The sentence, and the side that it is about."""
        label = {"reference": comparison.reference.label, "candidate": comparison.candidate.label}.get(self.of)
        return self.diagnosis.sentence if label is None else f"Only in {label}: {self.diagnosis.sentence}"

    def to_json(self) -> dict[str, Any]:
        """The diagnosis as elsewhere, and `of`."""
        return {"of": self.of, **self.diagnosis.to_json()}


def explanations(comparison: Comparison, log_of: LogOf) -> tuple[Explanation, ...]:
    """What may explain the differences, at the settings that do differ; none where nothing does.

    Of several runs on a side all must say it. What only one side says counts where the other one knows enough to have said
    it too, and where that side is the worse one. `log_of` reads a run's server log.
    """
    worse = _labels(comparison.settings, worse=True)
    better = _labels(comparison.settings, worse=False)
    if not (worse or better):
        return ()
    logs = {id(run): log_of(run) for side in (comparison.reference, comparison.candidate) for run in side.runs}
    reference = [_Known(run, logs[id(run)]) for run in comparison.reference.runs]
    candidate = [_Known(run, logs[id(run)]) for run in comparison.candidate.runs]
    found = [Explanation("both", each) for each in _held_against(reference[0], candidate, {*worse, *better})]
    said = {code for each in found for code in each.diagnosis.supersedes}
    found += [Explanation("candidate", each) for each in _only_in(candidate, reference, worse) if each.code not in said]
    found += [
        Explanation("reference", each) for each in _only_in(reference, candidate, better) if each.code not in said
    ]
    order = [id(each) for each in gravest_first(each.diagnosis for each in found)]
    return tuple(sorted(found, key=lambda each: order.index(id(each.diagnosis))))


@dataclass(frozen=True)
class _Known:
    """A run and what its server's log says."""

    run: RunEvidence
    log: LogReport | None

    def facts(self, labels: Iterable[str], earlier: RunEvidence | None = None) -> Facts:
        """Its facts, of the settings named."""
        found = facts_of_run(self.run, self.log, earlier)
        return Facts(found.whole, {label: found.settings[label] for label in labels if label in found.settings})

    def could_say(self, rule: Rule, facts: Facts) -> bool:
        """Whether it is known whether the rule holds of it."""
        names = set(facts.whole).union(*facts.settings.values())
        return rule.asks - LOG_FACTS <= names and (self.log is not None or rule.asks & LOG_FACTS <= names)


def _held_against(reference: _Known, candidate: Sequence[_Known], labels: Iterable[str]) -> list[Diagnosis]:
    rules = [rule for rule in known_rules() if rule.compares]
    wanted = sorted(labels)
    return _in_all([diagnose(each.facts(wanted, reference.run), rules) for each in candidate])


def _only_in(those: Sequence[_Known], others: Sequence[_Known], labels: Iterable[str]) -> list[Diagnosis]:
    wanted = sorted(labels)
    if not wanted:
        return []
    rules = {rule.code: rule for rule in known_rules() if rule.explains}
    of_others = [(each, facts, diagnose(facts, rules.values())) for each in others for facts in [each.facts(wanted)]]
    said = {diagnosis.code for *_, found in of_others for diagnosis in found}
    return [
        each
        for each in _in_all([diagnose(known.facts(wanted), rules.values()) for known in those])
        if each.code not in said and all(other.could_say(rules[each.code], facts) for other, facts, _ in of_others)
    ]


def _in_all(found: Sequence[Sequence[Diagnosis]]) -> list[Diagnosis]:
    """What all runs of a side say, in the words of the first."""
    codes = [{each.code for each in of_run} for of_run in found]
    return [each for each in found[0] if all(each.code in others for others in codes)]


def _labels(settings: Iterable[Compared], *, worse: bool) -> set[str]:
    """The settings at which some figure of the candidate is worse (or better), as facts name them."""
    return {
        words_of(each.place.key.steps, each.place.batch, each.place.key.variation)
        for each in settings
        if any(_is(name, each.differences, worse) for name in each.differences)
    }


def _is(name: str, differences: Mapping[str, Difference], worse: bool) -> bool:
    difference = differences[name]
    verdict: str = difference.verdict
    if verdict == "unsure" and difference.percent is not None and abs(difference.percent.value) >= _DIFFERS:
        verdict = "higher" if difference.percent.value > 0 else "lower"
    return verdict == ("lower" if METRICS[name].more_is_better == worse else "higher")
