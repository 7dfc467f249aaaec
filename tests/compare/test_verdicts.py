"""When a gate holds, and what becomes of its verdict in JUnit XML and Markdown."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import Any

import pytest
from evidence_kit import measurement, run

from eaglelab.compare.comparison import Comparison, Side, compare
from eaglelab.compare.gate import parse_gate
from eaglelab.compare.junit import junit_xml
from eaglelab.compare.markdown import markdown
from eaglelab.compare.verdicts import Verdict, judge
from eaglelab.profile.measurement_set import Failed

STEADY = (100.0, 102.0, 98.0, 101.0)
BASE = (90.0, 90.5, 89.5, 90.0)


def comparison(share: float = 0.97, **more: Any) -> Comparison:
    """2 steps slower by a share, the baseline as it was, verify 0.9 ms longer."""
    first = run("a", measurement(None, BASE), measurement(2, STEADY, phases={}))
    second = run(
        "b", measurement(None, BASE), measurement(2, [rate * share for rate in STEADY], phases={"verify": 16.7}), **more
    )
    return compare(Side("A", (first,)), Side("B", (second,)))


def noisy() -> Comparison:
    """-2 %, and an interval from about -7 to +4 %."""
    first = run("a", measurement(2, (100.0, 100.0, 100.0)))
    second = run("b", measurement(2, (96.0, 98.0, 100.0)))
    return compare(Side("A", (first,)), Side("B", (second,)))


def verdicts(gate: str, found: Comparison, how: Any = "estimate") -> list[tuple[str, bool]]:
    return [(verdict.place, verdict.held) for verdict in judge([parse_gate(gate)], found, how)]


@pytest.mark.parametrize(
    ("gate", "expected"),
    [
        ("tok_s >= -3.1%", [("the baseline, concurrency 1", True), ("2 steps, concurrency 1", True)]),
        ("tok_s >= -2.9%", [("the baseline, concurrency 1", True), ("2 steps, concurrency 1", False)]),
        ("tok_s@2 >= -2.9%", [("2 steps, concurrency 1", False)]),
        ("tok_s@baseline >= -0.1%", [("the baseline, concurrency 1", True)]),
        ("tok_s@2 >= -3.1", [("2 steps, concurrency 1", True)]),
        ("tok_s@2 >= -2.9", [("2 steps, concurrency 1", False)]),
        ("verify_ms <= +0.95", [("2 steps, concurrency 1", True)]),
        ("verify_ms <= +0.85", [("2 steps, concurrency 1", False)]),
        ("verify_ms <= +5%", [("2 steps, concurrency 1", False)]),
        ("accept_length >= 0", [("2 steps, concurrency 1", True)]),
        ("tok_s@batch=1,steps=2 >= -5%", [("2 steps, concurrency 1", True)]),
    ],
)
def test_a_gate_is_judged_at_every_setting_that_it_concerns(gate: str, expected: list[tuple[str, bool]]) -> None:
    assert verdicts(gate, comparison()) == expected


@pytest.mark.parametrize("gate", ["tok_s@3 >= -3%", "tok_s@2,batch=4 >= -3%", "tok_s@with=X=1 >= -3%"])
def test_what_was_not_measured_is_missed(gate: str) -> None:
    assert verdicts(gate, comparison()) == [("", False)]


def test_a_figure_that_a_setting_lacks_is_missed() -> None:
    assert verdicts("verify_ms@baseline <= +1", comparison()) == [("the baseline, concurrency 1", False)]
    (verdict,) = judge([parse_gate("draft_ms <= +1")], noisy())
    assert (verdict.held, verdict.what) == (False, "not measured in both runs, so missed")


def test_a_setting_that_failed_in_the_candidate_is_missed() -> None:
    second = run("b", measurement(None, BASE), failed=(Failed(2, "", "out of memory"),))
    first = run("a", measurement(None, BASE), measurement(2, STEADY))
    found = compare(Side("A", (first,)), Side("B", (second,)))
    assert verdicts("tok_s >= -3%", found) == [("the baseline, concurrency 1", True), ("2 steps", False)]


@pytest.mark.parametrize(
    ("limit", "estimate", "strict", "lenient"),
    [("-10%", True, True, True), ("-3%", True, False, True), ("-1%", False, False, True), ("+5%", False, False, False)],
)
def test_noise_counts_for_neither_the_strict_or_the_lenient_way(
    limit: str, estimate: bool, strict: bool, lenient: bool
) -> None:
    for how, expected in (("estimate", estimate), ("strict", strict), ("lenient", lenient)):
        assert verdicts(f"tok_s >= {limit}", noisy(), how) == [("2 steps, concurrency 1", expected)], how


def test_without_an_interval_the_strict_way_misses() -> None:
    first, second = (run(name, measurement(2, rates)) for name, rates in (("a", (100.0,)), ("b", (100.0,))))
    found = compare(Side("A", (first,)), Side("B", (second,)))
    assert [verdicts("tok_s >= -3%", found, how)[0][1] for how in ("estimate", "strict", "lenient")] == [
        True,
        False,
        True,
    ]


def judged(*gates: str, found: Comparison | None = None) -> tuple[Comparison, tuple[Verdict, ...]]:
    found = found or comparison()
    return found, judge([parse_gate(gate) for gate in gates], found)


def test_junit_has_a_case_for_each_gate_and_setting() -> None:
    root = ET.fromstring(junit_xml([judged("tok_s >= -2%", "verify_ms@2 <= +1")]))
    (suite,) = root
    assert (root.tag, suite.tag) == ("testsuites", "testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "0")
    cases = suite.findall("testcase")
    assert [case.get("name") for case in cases] == [
        "tok_s >= -2% at the baseline, concurrency 1",
        "tok_s >= -2% at 2 steps, concurrency 1",
        "verify_ms@2 <= +1 at 2 steps, concurrency 1",
    ]
    assert [case.get("classname") for case in cases] == ["eaglelab.compare.tok_s"] * 2 + ["eaglelab.compare.verify_ms"]
    assert [[each.tag for each in case] for case in cases] == [["system-out"], ["failure"], ["system-out"]]
    failure = cases[1].find("failure")
    assert failure is not None
    assert (failure.get("message") or "").startswith("-3.00 % (")
    assert [each.get("name") for each in suite.findall("properties/property")] == ["reference", "candidate"]


HOSTILE = "b <&>\"']]>\x1b[31m\x00|\ud800`*_<b>\n# x"


def hostile() -> tuple[Comparison, tuple[Verdict, ...]]:
    found = comparison()
    bad = replace(found.candidate.runs[0], run=HOSTILE, host="h|\x07")
    second = replace(bad, facts={"machine": HOSTILE})
    first = replace(found.reference.runs[0], facts={"machine": "x"})
    return judged("tok_s >= -2%", found=compare(Side("A", (first,)), Side("B", (second,))))


def test_junit_of_hostile_names_can_be_read_and_has_no_control_character() -> None:
    text = junit_xml([hostile()])
    text.encode("utf-8")
    (suite,) = ET.fromstring(text)
    assert "\\x1b[31m\\x00|\\xd800" in (suite.get("name") or "")
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f]", text)


def test_markdown_of_hostile_names_stays_in_its_cells() -> None:
    lines = markdown([hostile()], [()]).splitlines()
    tables = [line for line in lines if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in tables} == {4, 9}
    assert not any("<b>" in line for line in lines)
    assert not any(line.startswith("# ") for line in lines)
    assert any("\\<b\\>" in line for line in lines)
    markdown([hostile()], [()]).encode("utf-8")


def test_markdown_has_the_gates_the_figures_and_what_changed() -> None:
    text = markdown([judged("tok_s@2 >= -2%")], [()])
    assert "| tok\\_s\\@2 \\>= -2% at 2 steps, concurrency 1 | **missed** | -3.00 % (-3.00 to -3.00) |" in text
    assert re.search(
        r"\| 2 steps, concurrency 1 \| verify \(ms\) \| 15\.800 \| 16\.700 \| \+0\.900 \| \+5\.70 \|", text
    )
    assert "(tie)" in text
