"""What a rule found: a sentence, how grave and how sure it is, what it rests on, and what to try next."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from eaglelab.profile.findings import Finding, Severity

__all__ = ["Certainty", "Diagnosis", "gravest_first", "not_said_again"]

Certainty = Literal["certain", "likely", "possible"]
"""certain: what was read says so by itself. likely: it explains the figures best. possible: it fits, and so do others."""

_CERTAINTIES: tuple[Certainty, ...] = get_args(Certainty)
_SEVERITIES: tuple[Severity, ...] = tuple(reversed(get_args(Severity)))


@dataclass(frozen=True)
class Diagnosis:
    """One thing found.

    `evidence`: a line for each figure behind it, with where it is from. `try_next`: what to do, the cheapest first.
    `source`: pages that describe it. `at`: the settings that it holds for, such as `2 steps, batch 1` (the sentence and
    the evidence are those of the first); empty where it is about the whole. `supersedes`: codes of findings and
    diagnoses that say the same with less, which a view leaves out. `stops`: a load is pointless before this is mended.
    """

    code: str
    severity: Severity
    certainty: Certainty
    sentence: str
    evidence: tuple[str, ...] = ()
    try_next: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
    theme: str = ""
    at: tuple[str, ...] = ()
    supersedes: tuple[str, ...] = ()
    stops: bool = False

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "code": self.code,
            "theme": self.theme,
            "severity": self.severity,
            "certainty": self.certainty,
            "sentence": self.sentence,
            "at": list(self.at),
            "evidence": list(self.evidence),
            "try_next": list(self.try_next),
            "source": list(self.source),
            "supersedes": list(self.supersedes),
            "stops": self.stops,
        }


def gravest_first(found: Iterable[Diagnosis]) -> tuple[Diagnosis, ...]:
    """By severity, then by certainty; else in the order given."""
    return tuple(sorted(found, key=lambda each: (_SEVERITIES.index(each.severity), _CERTAINTIES.index(each.certainty))))


def not_said_again(findings: Iterable[Finding], diagnoses: Iterable[Diagnosis]) -> tuple[Finding, ...]:
    """The findings that no diagnosis says already: for a view that shows both."""
    said = {code for each in diagnoses for code in (each.code, *each.supersedes)}
    return tuple(finding for finding in findings if finding.code not in said)
