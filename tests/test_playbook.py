from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field

from eaglelab.errors import InputError
from eaglelab.playbook import ActionSpec, Block, Entry, Playbook, load_playbook
from eaglelab.templating import TemplateError

CASES = Path(__file__).parent / "cases" / "playbook"


class Args(BaseModel):
    model_config = ConfigDict(extra="forbid")


class GenerateArgs(Args):
    tokens: int = Field(ge=1)
    prompt: str = "hello"


class StartArgs(Args):
    steps: int | None = None
    env: dict[str, str] = {}
    flags: list[str] | dict[str, str] = []


class WaitArgs(Args):
    timeout: float


ACTIONS = {
    name: ActionSpec(name, args, f"{name}, for the tests")
    for name, args in {
        "facts": Args,
        "stop": Args,
        "generate": GenerateArgs,
        "start": StartArgs,
        "wait": WaitArgs,
    }.items()
}


def read(text: str, folder: Path, **extra_vars: Any) -> Playbook:
    path = folder / "it.yaml"
    path.write_text(text)
    return load_playbook(path, actions=ACTIONS, extra_vars=extra_vars)


def plain(entry: Entry) -> dict[str, Any]:
    """An entry as the expected files write it: what was left out of the task is left out here."""
    out: dict[str, Any] = {"name": entry.name, "where": entry.where}
    out["uses"] = [f"{use.name} {use.where}" for use in entry.uses]
    if isinstance(entry, Block):
        parts = {"block": entry.block, "rescue": entry.rescue, "always": entry.always}
        out |= {key: [plain(item) for item in part] for key, part in parts.items() if part}
    else:
        out |= {entry.action: entry.args}
        out |= {key: getattr(entry, key) for key in ("register", "retries", "delay") if getattr(entry, key)}
    if entry.when is not None:
        out["when"] = entry.when
    if entry.tags:
        out["tags"] = sorted(entry.tags)
    return out


@pytest.mark.parametrize("case", sorted((CASES / "good").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_playbook_is_read_as_the_expected_file_says(case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(case.parent)
    playbook = load_playbook(Path(case.name), actions=ACTIONS, extra_vars={})
    read_as = {"name": playbook.name, "vars": playbook.vars, "tasks": [plain(task) for task in playbook.tasks]}
    assert read_as == json.loads(case.with_suffix(".json").read_text())


@pytest.mark.parametrize("case", sorted((CASES / "bad").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_wrong_playbook_is_refused_with_the_expected_text(case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(case.parent)
    with pytest.raises(InputError) as refused:
        load_playbook(Path(case.name), actions=ACTIONS, extra_vars={})
    assert str(refused.value) == case.with_suffix(".txt").read_text().rstrip("\n")
    assert refused.value.exit_code == 2


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        load_playbook(tmp_path / "none.yaml", actions=ACTIONS, extra_vars={})


def test_extra_variables_override_those_of_the_file_and_are_taken_as_they_are(tmp_path: Path) -> None:
    text = 'name: x\nvars:\n  a: 1\n  b: "{{ a + 1 }}"\n  c: "{{ a + b }}"\ntasks:\n  - stop:\n'
    assert read(text, tmp_path).variables({"host": 0, "run": 0}) == {"host": 0, "run": 0, "a": 1, "b": 2, "c": 3}
    changed = read(text, tmp_path, a=10, c="{{ a }}").variables({})
    assert changed == {"a": 10, "b": 11, "c": "{{ a }}"}


def test_an_extra_variable_that_the_playbook_lacks_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown variable 'token'") as refused:
        read("name: x\nvars: {tokens: 1}\ntasks:\n  - stop:\n", tmp_path, token=5)
    assert refused.value.hint == "did you mean 'tokens'? variables of this playbook: tokens"


def test_a_variable_that_fails_when_it_is_filled_in_says_why(tmp_path: Path) -> None:
    playbook = read('name: x\nvars: {a: "{{ host.nothing }}"}\ntasks:\n  - stop:\n', tmp_path)
    with pytest.raises(TemplateError, match="has no attribute 'nothing'"):
        playbook.variables({"host": {}})


def test_an_argument_is_checked_once_its_template_is_known_and_others_at_once(tmp_path: Path) -> None:
    text = 'name: x\nvars: {n: 0}\ntasks:\n  - start: {steps: "{{ n }}", env: {A: %s}}\n'
    assert next(read(text % '"1"', tmp_path).actions()).args == {"steps": "{{ n }}", "env": {"A": "1"}}
    with pytest.raises(InputError, match=r"'env\.A' must be text, not a list"):
        read(text % "[1]", tmp_path)


def test_an_argument_of_several_types_may_be_a_template(tmp_path: Path) -> None:
    text = "name: x\nvars: {f: [a]}\ntasks:\n  - start: {flags: %s}\n"
    assert next(read(text % '"{{ f }}"', tmp_path).actions()).args == {"flags": "{{ f }}"}
    with pytest.raises(InputError, match="'flags"):
        read(text % "plain", tmp_path)


def test_a_file_may_be_included_twice(tmp_path: Path) -> None:
    (tmp_path / "part.yaml").write_text("name: part\ntasks:\n  - stop:\n")
    playbook = read("name: x\ntasks:\n  - include: part.yaml\n  - include: part.yaml\n", tmp_path)
    assert [task.action for task in playbook.actions()] == ["stop", "stop"]


TAGGED = """
name: x
tasks:
  - {name: first, facts: , register: facts, tags: [look]}
  - {name: last rites, stop: , tags: [always]}
  - name: all of it
    tags: [change]
    block:
      - {name: start, start: , tags: [server]}
      - {name: measure, generate: {tokens: 5}, tags: [measure]}
    rescue:
      - {name: rescue, stop: , tags: [back]}
    always:
      - {name: clean, stop: }
  - {name: end, facts: }
"""


@pytest.mark.parametrize(
    ("tags", "skip", "left"),
    [
        ([], [], ["first", "last rites", "start", "measure", "rescue", "clean", "end"]),
        (["look"], [], ["first", "last rites"]),
        (["server"], [], ["last rites", "start", "rescue", "clean"]),
        (["change"], ["measure"], ["last rites", "start", "rescue", "clean"]),
        (["look", "measure"], ["back"], ["first", "last rites", "measure", "clean"]),
        ([], ["change", "always"], ["first", "end"]),
        (["back"], [], ["last rites"]),
    ],
)
def test_tags_choose_tasks_and_a_block_keeps_its_way_back(
    tmp_path: Path, tags: list[str], skip: list[str], left: list[str]
) -> None:
    chosen = read(TAGGED, tmp_path).select(tags, skip)
    assert [task.name for task in chosen.actions()] == left


def test_a_tag_that_no_task_has_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no task is tagged 'mesure'") as refused:
        read(TAGGED, tmp_path).select(["mesure"], [])
    assert "did you mean 'measure'?" in refused.value.hint


def test_a_choice_that_leaves_out_a_needed_result_is_refused(tmp_path: Path) -> None:
    text = "name: x\ntasks:\n  - {facts: , register: facts}\n  - {name: end, stop: , when: facts.ok, tags: [end]}\n"
    playbook = read(text, tmp_path)
    with pytest.raises(InputError, match="unknown variable 'facts' in task 'end'") as refused:
        playbook.select(["end"], [])
    assert refused.value.where.endswith("it.yaml:4")
