"""The findings of a run for the page: the grave first, one that several settings share told once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from eaglelab.profile.findings import Finding, Severity
from eaglelab.runs.evidence import RunEvidence

__all__ = ["Told", "run_findings"]

_GRAVEST_FIRST: tuple[Severity, ...] = ("alarm", "warning", "note", "ok")


@dataclass(frozen=True)
class Told:
    """A finding, the settings it is about (empty: several together), and its numbers as text."""

    code: str
    severity: Severity
    sentence: str
    about: str
    numbers: tuple[tuple[str, str], ...]


def run_findings(evidence: RunEvidence, keep: Callable[[Sequence[Finding]], Sequence[Finding]]) -> tuple[Told, ...]:
    """All of them that `keep` leaves in."""
    gathered: dict[tuple[str, Severity, str], tuple[list[str], Finding]] = {}
    for about, finding in _every(evidence):
        if keep([finding]):
            names, _ = gathered.setdefault((finding.code, finding.severity, finding.sentence), ([], finding))
            names += [about] if about and about not in names else []
    told = [_told(finding, names) for names, finding in gathered.values()]
    return tuple(sorted(told, key=lambda each: _GRAVEST_FIRST.index(each.severity)))


def _every(evidence: RunEvidence) -> Iterator[tuple[str, Finding]]:
    if evidence.measured is None:
        return
    yield from (("", finding) for finding in (*evidence.measured.findings, *evidence.measured.across))
    for found in evidence.measured.measurements:
        about = f"{found.result.key.words}, concurrency {found.result.batch}"
        yield from ((about, finding) for finding in found.findings)


def _told(finding: Finding, names: Sequence[str]) -> Told:
    numbers = tuple((name.replace("_", " "), _text(value)) for name, value in finding.numbers.items())
    return Told(finding.code, finding.severity, finding.sentence, "; ".join(names), numbers)


def _text(value: float | int | str | None) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
