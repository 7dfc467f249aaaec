"""Tries every rule on what is known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from eaglelab.diagnosis.derive import derived
from eaglelab.diagnosis.diagnosis import Diagnosis, gravest_first
from eaglelab.diagnosis.expressions import filled, holds
from eaglelab.diagnosis.facts import Fact, Facts
from eaglelab.diagnosis.names import NAMES
from eaglelab.diagnosis.rule import Rule, known_rules

__all__ = ["diagnose"]

_Places = tuple[str, ...]


def diagnose(facts: Facts, rules: Iterable[Rule] | None = None) -> tuple[Diagnosis, ...]:
    """What the rules (those of the package, unless others are given) say of the facts, the gravest first.

    A rule that needs a fact that is not there does not apply. A rule about settings is tried on each of them and gives
    one diagnosis for all that it holds for. What another rule supersedes, at the same settings, is left out.
    """
    facts = derived(facts)
    views = dict(facts.views())
    holding = {
        rule.code: (rule, places)
        for rule in (known_rules() if rules is None else rules)
        if (places := _places(rule, facts.whole, views)) is not None
    }
    found = []
    for rule, places in holding.values():
        left = _left(rule, places, holding)
        if left is not None:
            found.append(replace(_said(rule, views[left[0]] if left else facts.whole), at=left))
    return gravest_first(found)


def _places(rule: Rule, whole: Mapping[str, Fact], views: Mapping[str, Mapping[str, Fact]]) -> _Places | None:
    """The settings that a rule holds for, none for one about the whole; None where it does not hold."""
    if not rule.about_settings:
        return () if _applies(rule, whole) else None
    return tuple(label for label, view in views.items() if _applies(rule, view)) or None


def _left(rule: Rule, places: _Places, holding: Mapping[str, tuple[Rule, _Places]]) -> _Places | None:
    """Where a rule still has something to say once others say it better; None: nowhere."""
    better = [at for other, at in holding.values() if rule.code in other.supersedes and other.code != rule.code]
    if not better:
        return places
    if not places or not all(better):  # one of the two is about the whole
        return None
    return tuple(label for label in places if not any(label in at for at in better)) or None


def _applies(rule: Rule, facts: Mapping[str, Fact]) -> bool:
    return rule.needs <= facts.keys() and holds(rule.when, {name: fact.value for name, fact in facts.items()})


def _said(rule: Rule, facts: Mapping[str, Fact]) -> Diagnosis:
    words = {name: NAMES[name].words(fact.value) for name, fact in facts.items()}
    return Diagnosis(
        code=rule.code,
        severity=rule.severity,
        certainty=rule.certainty,
        sentence=filled(rule.says, words),
        evidence=tuple(_lines(rule.evidence, facts, words)),
        try_next=tuple(filled(text, words) for text in rule.try_next if rule.can_say(text, facts)),
        source=rule.source,
        theme=rule.theme,
        supersedes=rule.supersedes,
        stops=rule.stops,
    )


def _lines(names: Iterable[str], facts: Mapping[str, Fact], words: Mapping[str, str]) -> Iterator[str]:
    for name in names:
        if name in facts:
            yield f"{NAMES[name].meaning}: {words[name]} ({facts[name].source})"
