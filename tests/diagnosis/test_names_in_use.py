"""The words that rules are written in: each is used, and each comes from somewhere or is on the manual's list."""

from __future__ import annotations

import re
from pathlib import Path

from eaglelab.diagnosis.checks import known_checks
from eaglelab.diagnosis.expressions import names_in_condition, names_in_sentence
from eaglelab.diagnosis.names import NAMES
from eaglelab.diagnosis.rule import known_rules

PROJECT = Path(__file__).parents[2]
MADE_OF_PARTS = re.compile(r"(draft|target)_(architecture|vocab_size|max_positions|dtype|quantisation)|\w+_ms")


def used() -> set[str]:
    names: set[str] = set()
    for rule in known_rules():
        names |= names_in_condition(rule.when)[0] | names_in_sentence(rule.says) | set(rule.evidence)
        names |= {name for text in rule.try_next for name in names_in_sentence(text)}
    return names | {name for check in known_checks() for text in check.says for name in names_in_sentence(text)}


def test_every_name_is_used() -> None:
    assert set(NAMES) - used() == set()


def test_every_name_is_given_by_something_or_listed_as_not_given_yet() -> None:
    sources = [path for path in (PROJECT / "eaglelab" / "diagnosis").glob("*.py") if path.name != "names.py"]
    text = "".join(path.read_text(encoding="utf-8") for path in sources)
    manual = (PROJECT / "docs" / "diagnosis.md").read_text(encoding="utf-8")
    listed = {name for name in NAMES if f"| `{name}` |" in manual} | {
        name for name in NAMES if name.startswith("earlier_")
    }
    given = {name for name in NAMES if f'"{name}"' in text or MADE_OF_PARTS.fullmatch(name)}
    assert set(NAMES) - given - listed == set()
