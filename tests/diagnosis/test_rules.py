from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rule_cases import all_cases, as_facts

from eaglelab.diagnosis import diagnose
from eaglelab.diagnosis.derive import derived
from eaglelab.diagnosis.rule import known_rules

CASES = all_cases()
RULES = {rule.code: rule for rule in known_rules()}
PROJECT = Path(__file__).parents[2]


def test_every_rule_has_a_case_for_it_and_one_against_it_and_every_case_a_rule() -> None:
    assert RULES.keys() == CASES.keys()
    for code, case in CASES.items():
        assert case["fires"], code
        assert case["silent"], code


@pytest.mark.parametrize(("code", "case"), CASES.items(), ids=CASES.keys())
def test_a_rule_speaks_of_its_case(code: str, case: dict[str, Any]) -> None:
    found = {each.code: each for each in diagnose(as_facts(case["fires"]))}
    assert code in found
    assert case["says"] in found[code].sentence
    assert found[code].evidence, "a diagnosis without a figure"
    assert found[code].try_next
    assert not found.keys() & set(case.get("quiet", ()))


@pytest.mark.parametrize(("code", "case"), CASES.items(), ids=CASES.keys())
def test_a_rule_is_silent_where_its_condition_does_not_hold(code: str, case: dict[str, Any]) -> None:
    changed = {**case["fires"], **case["silent"]}
    facts = derived(as_facts(changed))
    known = {name for _, view in facts.views() for name in view} | set(facts.whole)
    if None not in case["silent"].values():
        assert RULES[code].needs <= known, "it is silent only because a fact is missing"
    assert code not in {each.code for each in diagnose(facts)}


@pytest.mark.parametrize("code", sorted(RULES))
def test_a_rule_says_where_its_knowledge_is_from(code: str) -> None:
    for source in RULES[code].source:
        page, _, part = source.partition("#")
        if not page.startswith("https://"):
            text = (PROJECT / page).read_text(encoding="utf-8")
            headings = {line.lstrip("# ").lower().replace(" ", "-") for line in text.splitlines() if line[:1] == "#"}
            assert not part or part in headings


@pytest.mark.parametrize("code", sorted(RULES))
def test_the_manual_lists_the_rule(code: str) -> None:
    rule = RULES[code]
    text = (PROJECT / "docs" / "diagnosis.md").read_text(encoding="utf-8")
    assert f"| `{code}` | {rule.severity}, {rule.certainty} |" in text


def test_each_public_report_in_the_manual_is_the_source_of_one_of_its_rules() -> None:
    manual = (PROJECT / "docs" / "diagnosis.md").read_text(encoding="utf-8")
    table = manual.partition("## Public reports")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 28
    for reports, _, codes in rows:
        sources = [source for code in codes.split(", ") for source in RULES[code.strip("`")].source]
        for report in reports.split(", "):
            project, _, number = report.partition("#")
            assert any(f"/{project}/" in source and source.endswith(f"/{number}") for source in sources), report


def test_the_manual_lists_no_rule_that_is_not_there() -> None:
    manual = (PROJECT / "docs" / "diagnosis.md").read_text(encoding="utf-8")
    listed = {
        line.split("`")[1] for line in manual.partition("\n## The rules")[2].splitlines() if line.startswith("| `")
    }
    assert listed == RULES.keys()
