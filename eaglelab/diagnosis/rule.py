"""A rule, and how the files of rules are read and checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from eaglelab.checking import check
from eaglelab.diagnosis.diagnosis import Certainty
from eaglelab.diagnosis.expressions import names_in_condition, names_in_sentence
from eaglelab.diagnosis.names import NAMES
from eaglelab.nearest import nearest
from eaglelab.templating import TemplateError
from eaglelab.yamlfile import Key, Located, load

__all__ = ["BEFORE_A_LOAD", "RULES", "Rule", "known_rules", "read_rules"]

RULES = Path(__file__).parent / "rules"
"""The files of rules that come with the package."""

BEFORE_A_LOAD = "before-a-load"
"""The file of what can be said before a server is started."""

Line = Annotated[str, Field(min_length=1)]
Code = Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]


@dataclass(frozen=True)
class Rule:
    """One rule. `needs`: the facts without which it does not apply. `about_settings`: it is tried on each setting.
    `asks`: those in its condition. `compares`: it holds a run against another one.

    The other fields are those of the file; docs/diagnosis.md describes them.
    """

    code: str
    theme: str
    severity: Literal["note", "warning", "alarm"]
    certainty: Certainty
    when: str
    says: str
    evidence: tuple[str, ...]
    try_next: tuple[str, ...]
    source: tuple[str, ...]
    supersedes: tuple[str, ...]
    stops: bool
    explains: bool
    needs: frozenset[str]
    asks: frozenset[str]
    about_settings: bool

    @property
    def compares(self) -> bool:
        return any(name.startswith("earlier_") for name in self.needs)

    @staticmethod
    def can_say(text: str, facts: Mapping[str, object]) -> bool:
        """Whether everything that `text` names is known."""
        return names_in_sentence(text) <= facts.keys()


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    severity: Literal["note", "warning", "alarm"]
    certainty: Certainty
    when: Line
    says: Line
    evidence: list[str] = Field(min_length=1)
    try_next: list[Line] = Field(alias="try", min_length=1)
    source: list[Line] = Field(min_length=1)
    supersedes: list[Code] = []
    stops: bool = False
    explains: bool = False


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    theme: Line
    rules: dict[Code, _Entry]


@lru_cache(maxsize=2)
def known_rules(file: str = "*") -> tuple[Rule, ...]:
    """The rules of the package, in the order of their files' names; of one file (`BEFORE_A_LOAD`), where it is named."""
    return read_rules(RULES, file)


def read_rules(folder: Path, file: str = "*") -> tuple[Rule, ...]:
    """The rules in every YAML file of a folder, or in one of them.

    Raises InputError, with file and line, for what is no rule: an unknown key or fact, wrong syntax, a code used twice.
    """
    rules: dict[str, Rule] = {}
    for path in sorted(folder.glob(f"{file}.yaml")):
        document = load(path)
        checked = check(_File, document.value, document)
        for code, entry in checked.rules.items():
            if code in rules:
                raise document.problem(f"there is a rule '{code}' already", "rules", code, hint="give it another code")
            rules[code] = _rule(code, checked.theme, entry, document)
    return tuple(rules.values())


def _rule(code: str, theme: str, entry: _Entry, document: Located) -> Rule:
    place: tuple[Key, ...] = ("rules", code)
    with _placed(document, *place, "when"):
        in_condition, needed = names_in_condition(entry.when)
        _check_names(in_condition)
    with _placed(document, *place, "says"):
        in_sentence = names_in_sentence(entry.says)
        _check_names(in_sentence)
    for number, text in enumerate(entry.try_next):
        with _placed(document, *place, "try", number):
            _check_names(names_in_sentence(text))
    for number, name in enumerate(entry.evidence):
        with _placed(document, *place, "evidence", number):
            _check_names([name])
    return Rule(
        code=code,
        theme=theme,
        severity=entry.severity,
        certainty=entry.certainty,
        when=entry.when,
        says=entry.says,
        evidence=tuple(entry.evidence),
        try_next=tuple(entry.try_next),
        source=tuple(entry.source),
        supersedes=tuple(entry.supersedes),
        stops=entry.stops,
        explains=entry.explains,
        needs=needed | in_sentence,
        asks=in_condition,
        about_settings=any(NAMES[name].each for name in in_condition | in_sentence),
    )


def _check_names(names: Iterable[str]) -> None:
    for name in sorted(names):
        if name not in NAMES:
            near = nearest(name, NAMES)
            hint = f"did you mean '{near}'?" if near else "eaglelab/diagnosis/names.py lists the names"
            raise TemplateError(f"there is no fact '{name}'", hint=hint)


@contextmanager
def _placed(document: Located, *keys: Key) -> Iterator[None]:
    """Gives an error its file and line."""
    try:
        yield
    except TemplateError as error:
        hint = error.hint or "docs/diagnosis.md says how a rule is written"
        raise document.problem(error.what, *keys, hint=hint) from error
