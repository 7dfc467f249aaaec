"""What doctor looks at: each check with what the rules say of it, or what was found where they say nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, RootModel

from eaglelab.checking import check
from eaglelab.diagnosis.diagnosis import Diagnosis
from eaglelab.diagnosis.expressions import filled, names_in_sentence
from eaglelab.diagnosis.facts import Facts
from eaglelab.diagnosis.names import NAMES
from eaglelab.yamlfile import load

__all__ = ["CHECKS", "Check", "Checked", "checked", "known_checks"]

CHECKS = Path(__file__).parent / "checks.yaml"


class Check(BaseModel):
    """One check: `says` are sentences of which the first whose figures are all known is said, `codes` its rules."""

    model_config = ConfigDict(extra="forbid", strict=True)

    title: str
    says: list[str] = Field(min_length=1)
    codes: list[str]


class _Checks(RootModel[list[Check]]):
    pass


@dataclass(frozen=True)
class Checked:
    """A check with its outcome. `not known`: what it takes could not be read; nothing is wrong for that."""

    title: str
    state: Literal["ok", "note", "warning", "alarm", "not known"]
    sentence: str
    code: str = ""
    certainty: str = ""
    evidence: tuple[str, ...] = ()
    try_next: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "evidence": list(self.evidence), "try_next": list(self.try_next)}


def known_checks() -> list[Check]:
    """The checks of the package, in the order in which they are shown. Raises InputError for a damaged file."""
    document = load(CHECKS)
    return check(_Checks, document.value, document).root


def checked(facts: Facts, found: Sequence[Diagnosis]) -> tuple[Checked, ...]:
    """Every check: a line for each diagnosis of it, else what was found. Diagnoses of no check come last."""
    left = {each.code: each for each in found}
    rows = []
    for each in known_checks():
        spoken = [left.pop(code) for code in each.codes if code in left]
        rows += [_spoken(each.title, diagnosis) for diagnosis in spoken] or [_silent(each, facts)]
    return (*rows, *(_spoken(each.theme.lower(), each) for each in left.values()))


def _spoken(title: str, each: Diagnosis) -> Checked:
    return Checked(title, each.severity, each.sentence, each.code, each.certainty, each.evidence, each.try_next)


def _silent(each: Check, facts: Facts) -> Checked:
    words = {name: NAMES[name].words(fact.value) for name, fact in facts.whole.items()}
    for text in each.says:
        if names_in_sentence(text) <= words.keys():
            return Checked(each.title, "ok", filled(text, words))
    missing = sorted(names_in_sentence(each.says[-1]) - words.keys())
    return Checked(each.title, "not known", f"not read: {', '.join(NAMES[name].meaning for name in missing)}")
