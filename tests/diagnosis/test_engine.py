from __future__ import annotations

import json
from pathlib import Path

import pytest
from rule_cases import as_facts

from eaglelab.diagnosis import Facts, diagnose, not_said_again
from eaglelab.diagnosis.facts import Sheet
from eaglelab.diagnosis.names import NAMES
from eaglelab.diagnosis.rule import Rule, read_rules
from eaglelab.errors import InputError
from eaglelab.profile.findings import Finding

RULE = """\
theme: Test
rules:
  slow:
    severity: warning
    certainty: likely
    when: cycle_ms > 10 and topk == 1
    says: A cycle takes {{ cycle_ms }} at {{ setting }}.
    evidence: [cycle_ms, verify_ms]
    try: ["look at verify, which takes {{ verify_ms }}", look]
    source: [docs/probe.md]
"""


def rules(tmp_path: Path, text: str = RULE) -> tuple[Rule, ...]:
    (tmp_path / "test.yaml").write_text(text, encoding="utf-8")
    return read_rules(tmp_path)


def facts_of(settings: dict[str, dict[str, object]], **whole: object) -> Facts:
    sheets = {}
    for label, values in settings.items():
        sheet = Sheet()
        for name, value in {"setting": label, **values}.items():
            sheet.put(name, value, "profile.json")
        sheets[label] = sheet.facts
    return Facts(as_facts(whole).whole, sheets)


def test_nothing_is_said_of_nothing() -> None:
    assert diagnose(Facts()) == ()


def test_a_rule_that_lacks_a_fact_of_its_condition_or_its_sentence_says_nothing(tmp_path: Path) -> None:
    assert diagnose(facts_of({"a": {"cycle_ms": 20.0}}), rules(tmp_path)) == ()
    assert diagnose(as_facts({"topk": 1}), rules(tmp_path)) == ()


def test_one_diagnosis_names_every_setting_it_holds_for_and_quotes_the_first(tmp_path: Path) -> None:
    settings = {"1 step": {"cycle_ms": 9.0}, "2 steps": {"cycle_ms": 11.0}, "3 steps": {"cycle_ms": 12.0}}
    (found,) = diagnose(facts_of(settings, topk=1), rules(tmp_path))
    assert found.at == ("2 steps", "3 steps")
    assert found.sentence == "A cycle takes 11.00 ms at 2 steps."


def test_evidence_has_the_figure_and_where_it_is_from_and_leaves_out_what_is_not_known(tmp_path: Path) -> None:
    (found,) = diagnose(facts_of({"a": {"cycle_ms": 20.0}}, topk=1), rules(tmp_path))
    assert found.evidence == ("cycle: 20.00 ms (profile.json)",)
    assert found.try_next == ("look",)


def test_a_line_of_what_to_try_is_said_where_its_figure_is_known(tmp_path: Path) -> None:
    (found,) = diagnose(facts_of({"a": {"cycle_ms": 20.0, "verify_ms": 15.0}}, topk=1), rules(tmp_path))
    assert found.try_next == ("look at verify, which takes 15.00 ms", "look")


def test_the_gravest_comes_first_and_of_two_as_grave_the_surer() -> None:
    found = diagnose(
        as_facts(
            {
                "random_prompts": True,  # a certain warning
                "draft_quantisation": "awq",  # a likely warning
                "target_quantisation": "",
                "unknown_flags": ["enable-beta"],  # a likely alarm
                "sglang": "0.5.12",
                "best_steps_differ": True,  # a note
                "best_steps_words": "2 at batch 1; 1 at batch 8",
            }
        )
    )
    assert [each.code for each in found] == [
        "unknown-flags",
        "prompts-of-random-tokens",
        "draft-quantised-alone",
        "optimum-moves-with-batch",
    ]


def test_what_a_diagnosis_supersedes_is_left_out_and_so_are_findings_of_that_code() -> None:
    found = diagnose(
        as_facts({"steps": 3, "batch": 20, "graph_eager": 99, "graph_share": 0.0, "cycles": 99, "captured_batch": 2})
    )
    assert [each.code for each in found] == ["graph-above-ceiling"]
    findings = [Finding("graph-off", "alarm", "99 of 99 cycles ..."), Finding("tokens", "ok", "Counts agree.")]
    assert [finding.code for finding in not_said_again(findings, found)] == ["tokens"]


def test_what_is_superseded_at_some_settings_stays_at_the_others() -> None:
    slow = {"tok_s": 60.0, "plain_tok_s": 90.0, "steps": 3}
    settings = {"broken": {**slow, "accept_length": 1.0}, "sound": {**slow, "accept_length": 2.4, "tok_s": 80.0}}
    found = {each.code: each for each in diagnose(facts_of(settings))}
    assert found["broken-draft"].at == ("broken",)
    assert found["slower-than-plain"].at == ("sound",)
    assert "80.0 tok/s" in found["slower-than-plain"].sentence


def test_what_is_superseded_by_something_about_the_whole_is_left_out_everywhere() -> None:
    settings = {"a": {"steps": 2, "graph_share": 0.0, "cycles": 100}}
    assert [each.code for each in diagnose(facts_of(settings, graph_disabled=True))] == ["graph-disabled"]


def test_a_finding_of_the_same_code_is_not_said_again() -> None:
    found = diagnose(as_facts({"steps": 3, "accept_length": 1.01}))
    assert [each.code for each in found] == ["broken-draft"]
    assert not_said_again([Finding("broken-draft", "alarm", "the same")], found) == ()


def test_it_can_be_written_as_json() -> None:
    (found,) = diagnose(as_facts({"steps": 3, "accept_length": 1.01, "accept_verifies": 10}))
    written = json.loads(json.dumps(found.to_json()))
    assert written["evidence"][0] == "accept length (bonus included): 1.01 (a test)"
    assert {"code", "severity", "certainty", "sentence", "at", "try_next", "source", "stops"} <= written.keys()


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("first_draft_right", 0.194, "19.4 %"),
        ("cycle_ms", 31.744, "31.74 ms"),
        ("tok_s", 62.38, "62.4 tok/s"),
        ("draft_aux_layers", [2, 30, 58], "[2, 30, 58]"),
        ("patched_files", ["a.py", "b.py"], "a.py, b.py"),
        ("gpu_memory_total", 150754820096, "140.4 GiB"),
        ("adaptive", True, "yes"),
    ],
)
def test_a_figure_is_written_with_its_unit(name: str, value: object, words: str) -> None:
    assert NAMES[name].words(NAMES[name].checked(value)) == words


@pytest.mark.parametrize(("name", "value"), [("cycle_ms", "2"), ("steps", 2.5), ("steps", True), ("adaptive", 1)])
def test_a_value_of_the_wrong_kind_is_refused(name: str, value: object) -> None:
    with pytest.raises(TypeError):
        Sheet().put(name, value, "a test")


def test_the_first_source_of_a_fact_counts_and_none_is_no_fact() -> None:
    sheet = Sheet()
    sheet.put("steps", None, "nowhere")
    sheet.put("steps", 2, "profile.json")
    sheet.put("steps", 3, "the log")
    assert (sheet.value("steps"), sheet.facts["steps"].source) == (2, "profile.json")


@pytest.mark.parametrize(
    ("old", "new", "what", "line"),
    [
        ("cycle_ms > 10", "cycle_msec > 10", "there is no fact 'cycle_msec'", 6),
        ("{{ setting }}", "{{ settings }}", "there is no fact 'settings'", 7),
        ("[cycle_ms, verify_ms]", "[cycle_ms, verify]", "there is no fact 'verify'", 8),
        ("cycle_ms > 10 and", "cycle_ms > and", "is no condition", 6),
        ("{{ setting }}", "{{ setting | upper }}", "has braces that hold no name", 7),
        ("severity: warning", "severity: grave", "must be 'note', 'warning' or 'alarm'", 4),
        ("    certainty: likely\n", "", "'rules.slow.certainty' is missing", 3),
        ("    source: [docs/probe.md]", "    sources: [docs/probe.md]", "'rules.slow.source' is missing", 3),
        ("evidence: [cycle_ms, verify_ms]", "evidence: []", "evidence", 8),
    ],
)
def test_a_rule_that_is_wrong_is_refused_with_its_line(
    tmp_path: Path, old: str, new: str, what: str, line: int
) -> None:
    with pytest.raises(InputError, match=what) as caught:
        rules(tmp_path, RULE.replace(old, new))
    assert caught.value.where == f"{tmp_path / 'test.yaml'}:{line}"


def test_a_code_in_two_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(RULE, encoding="utf-8")
    with pytest.raises(InputError, match="there is a rule 'slow' already") as caught:
        rules(tmp_path)
    assert caught.value.where == f"{tmp_path / 'test.yaml'}:3"


def test_a_mistyped_fact_is_told_the_one_that_was_meant(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        rules(tmp_path, RULE.replace("cycle_ms > 10", "cycel_ms > 10"))
    assert caught.value.hint == "did you mean 'cycle_ms'?"
