"""The runner with actions that only note what happened; nothing waits and nothing is contacted."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from eaglelab.actions.base import Action, Arguments, NoArguments
from eaglelab.errors import AttentionError, EaglelabError, HostError, InputError, Interrupted, LockLost
from eaglelab.playbook import load_playbook
from eaglelab.runner import Runner, check_arguments

sys.path.insert(0, str(Path(__file__).parent / "actions"))
from fake_host import FakeHost, make_context, said


class Note(Arguments):
    text: str = ""
    number: int = Field(default=1, ge=1)


class Bench:
    """A playbook given as text, and the actions it can name. `done` is what ran, `errors` what to raise by text."""

    def __init__(self, folder: Path, *, check: bool = False) -> None:
        self.folder = folder
        self.done: list[str] = []
        self.errors: dict[str, list[BaseException]] = {}
        self.context = make_context(FakeHost(), folder / "bundle", check=check)
        self.actions = {
            "note": Action("note", Note, "", self._note),
            "change": Action("change", Note, "", self._note, self._preview),
            "undo": Action("undo", Note, "", self._note, restores=True),
            "fail": Action("fail", NoArguments, "", self._fail),
        }

    def _note(self, _: Any, args: Note) -> dict[str, Any]:
        self.done.append(args.text)
        if self.errors.get(args.text):
            raise self.errors[args.text].pop(0)
        return {"text": args.text, "yes": True}

    def _preview(self, _: Any, args: Note) -> dict[str, Any]:
        self.done.append(f"would {args.text}")
        return {}

    def _fail(self, _: Any, __: Any) -> dict[str, Any]:
        raise HostError("the playbook says so")

    def load(self, tasks: str, variables: str = "{}", **extra: Any) -> Any:
        path = self.folder / "p.yaml"
        path.write_text(f"name: p\nvars: {variables}\ntasks:\n{tasks}")
        return load_playbook(path, actions=self.actions, extra_vars=extra)

    def run(self, tasks: str, variables: str = "{}", **extra: Any) -> dict[str, Any]:
        return Runner(self.context, self.actions, clock=self.context.clock).run(self.load(tasks, variables, **extra))

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "bundle" / "events.jsonl").read_text().splitlines()]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def note(text: str, more: str = "") -> str:
    return f"  - note: {{text: {text}}}\n{more}"


BLOCK = """
  - block:
      - note: {text: work}
      - note: {text: more}
    rescue:
      - note: {text: evidence}
      - undo: {text: undo}
      - fail:
    always:
      - note: {text: always}
  - note: {text: after}
"""


def test_tasks_run_in_order_and_return_what_they_registered(bench: Bench) -> None:
    found = bench.run(note("a", "    register: first\n") + note("b"))
    assert bench.done == ["a", "b"]
    assert found == {"first": {"text": "a", "yes": True}}


def test_a_result_is_a_variable_of_later_tasks(bench: Bench) -> None:
    bench.run(note("a", "    register: first\n") + '  - note: {text: "{{ first.text }}b"}\n')
    assert bench.done == ["a", "ab"]


def test_when_leaves_a_task_out_and_its_result_says_so(bench: Bench) -> None:
    tasks = note("a", "    when: go\n    register: first\n") + note("b", "    when: first.skipped\n")
    bench.run(tasks, "{go: false}")
    assert bench.done == ["b"]
    assert [(event["state"], event["action"]) for event in bench.events() if event["state"] != "started"] == [
        ("skipped", "note"),
        ("ok", "note"),
    ]


def test_a_block_that_is_left_out_gives_the_results_of_its_tasks_as_skipped(bench: Bench) -> None:
    tasks = "  - block:\n      - note: {text: a}\n        register: inner\n    when: false\n"
    bench.run(tasks + note("b", "    when: inner.skipped\n"))
    assert bench.done == ["b"]


def test_a_condition_that_cannot_be_worked_out_names_the_task(bench: Bench) -> None:
    with pytest.raises(EaglelabError, match="when: ") as caught:
        bench.run(note("a", "    register: first\n") + note("b", "    when: first.nothing\n"))
    assert caught.value.where.endswith("p.yaml:6")


def test_variables_can_be_given_from_outside(bench: Bench) -> None:
    bench.run('  - note: {text: "{{ word }}"}\n', "{word: inside}", word="outside")
    assert bench.done == ["outside"]


def test_tags_choose_tasks(bench: Bench) -> None:
    book = bench.load(note("a", "    tags: [x]\n") + note("b")).select(["x"], [])
    Runner(bench.context, bench.actions).run(book)
    assert bench.done == ["a"]


def test_included_tasks_run_in_their_place(bench: Bench) -> None:
    (bench.folder / "other.yaml").write_text("name: other\ntasks:\n" + note("inner"))
    bench.run(note("a") + "  - include: other.yaml\n" + note("b"))
    assert bench.done == ["a", "inner", "b"]


def test_a_task_is_tried_again_after_its_delay(bench: Bench) -> None:
    bench.errors["a"] = [HostError("busy"), HostError("still busy")]
    began = bench.context.clock()
    bench.run(note("a", "    retries: 2\n    delay: 30\n"))
    assert bench.done == ["a", "a", "a"]
    assert bench.context.clock() - began == 60
    assert "  busy; attempt 2 of 3\n  still busy; attempt 3 of 3\n" in said(bench.context)


def test_after_the_last_retry_the_failure_itself_is_raised(bench: Bench) -> None:
    bench.errors["a"] = [HostError("busy")] * 5
    with pytest.raises(HostError, match="busy"):
        bench.run(note("a", "    retries: 1\n"))
    assert bench.done == ["a", "a"]


@pytest.mark.parametrize("error", [AttentionError("look"), InputError("no"), KeyError("bug")])
def test_what_another_attempt_cannot_mend_is_not_tried_again(bench: Bench, error: Exception) -> None:
    bench.errors["a"] = [error]
    with pytest.raises(type(error)):
        bench.run(note("a", "    retries: 3\n"))
    assert bench.done == ["a"]


def test_without_a_failure_rescue_is_left_out_and_always_runs(bench: Bench) -> None:
    bench.run(BLOCK)
    assert bench.done == ["work", "more", "always", "after"]


def test_fail_in_a_rescue_raises_the_failure_that_led_there(bench: Bench) -> None:
    bench.errors["work"] = [HostError("first", hint="type this")]
    with pytest.raises(HostError, match="first") as caught:
        bench.run(BLOCK)
    assert caught.value.hint == "type this"
    assert bench.done == ["work", "evidence", "undo", "always"]


def test_without_fail_a_rescued_playbook_goes_on(bench: Bench) -> None:
    bench.errors["work"] = [HostError("first")]
    bench.run(BLOCK.replace("      - fail:\n", ""))
    assert bench.done == ["work", "evidence", "undo", "always", "after"]


def test_a_rescue_that_failed_itself_does_not_let_the_playbook_go_on(bench: Bench) -> None:
    bench.errors = {"work": [HostError("first")], "evidence": [HostError("no log")]}
    with pytest.raises(HostError, match="first"):
        bench.run(BLOCK.replace("      - fail:\n", ""))
    assert bench.done == ["work", "evidence", "undo", "always"]


def test_a_fail_that_is_not_wanted_is_left_out(bench: Bench) -> None:
    bench.errors["work"] = [HostError("first")]
    bench.run(BLOCK.replace("      - fail:\n", "      - fail:\n        when: false\n"))
    assert bench.done[-1] == "after"


def test_a_task_of_rescue_that_fails_does_not_keep_the_next_from_running(bench: Bench) -> None:
    bench.errors = {"work": [HostError("first")], "evidence": [HostError("no log")]}
    with pytest.raises(HostError, match="first"):
        bench.run(BLOCK)
    assert bench.done == ["work", "evidence", "undo", "always"]
    assert "no log" in said(bench.context)


def test_a_bug_in_a_task_leads_into_rescue_too(bench: Bench) -> None:
    bench.errors["work"] = [KeyError("steps")]
    with pytest.raises(HostError, match="unexpected: KeyError: 'steps'"):
        bench.run(BLOCK)
    assert bench.done == ["work", "evidence", "undo", "always"]


def test_a_bug_in_a_task_of_rescue_does_not_keep_the_next_from_running(bench: Bench) -> None:
    bench.errors = {"work": [HostError("first")], "evidence": [ZeroDivisionError()]}
    with pytest.raises(HostError, match="first"):
        bench.run(BLOCK)
    assert "undo" in bench.done


def test_a_rollback_that_fails_needs_attention_and_names_the_command(bench: Bench) -> None:
    bench.errors = {"work": [HostError("first")], "undo": [HostError("disk full")]}
    with pytest.raises(AttentionError, match="first\nthen putting things back failed too: disk full") as caught:
        bench.run(BLOCK)
    assert caught.value.exit_code == 3
    assert caught.value.hint == "invoke rollback --host fake"
    assert bench.done[-1] == "always"


def test_a_rollback_that_knows_the_command_itself_keeps_its_own(bench: Bench) -> None:
    bench.errors = {"work": [HostError("first")], "undo": [AttentionError("foreign", hint="cp a b")]}
    with pytest.raises(AttentionError) as caught:
        bench.run(BLOCK)
    assert caught.value.hint == "cp a b"


def test_a_failed_rollback_is_not_forgotten_where_fail_is_missing(bench: Bench) -> None:
    bench.errors = {"work": [HostError("first")], "undo": [HostError("disk full")]}
    with pytest.raises(AttentionError):
        bench.run(BLOCK.replace("      - fail:\n", ""))
    assert bench.done[-1] == "always"


def test_ctrl_c_during_a_task_puts_things_back_and_exits_130(bench: Bench) -> None:
    bench.errors["work"] = [KeyboardInterrupt()]
    with pytest.raises(Interrupted) as caught:
        bench.run(BLOCK)
    assert caught.value.exit_code == 130
    assert bench.done == ["work", "evidence", "undo", "always"]


def test_ctrl_c_ends_the_playbook_even_where_rescue_does_not_fail(bench: Bench) -> None:
    bench.errors["work"] = [KeyboardInterrupt()]
    with pytest.raises(Interrupted):
        bench.run(BLOCK.replace("      - fail:\n", ""))
    assert bench.done == ["work", "evidence", "undo", "always"]


def test_ctrl_c_while_things_are_put_back_after_a_failure_ends_what_restores_nothing(bench: Bench) -> None:
    bench.errors = {"work": [HostError("first")], "evidence": [KeyboardInterrupt()]}
    with pytest.raises(Interrupted, match="interrupted, after: first"):
        bench.run(BLOCK)
    assert bench.done == ["work", "evidence", "undo", "always"]


def test_ctrl_c_while_things_are_put_back_has_what_restores_done_nevertheless(bench: Bench) -> None:
    bench.errors = {"work": [HostError("first")], "undo": [KeyboardInterrupt()]}
    with pytest.raises(Interrupted) as caught:
        bench.run(BLOCK.replace("      - fail:\n", ""))
    assert caught.value.exit_code == 130
    assert bench.done == ["work", "evidence", "undo", "undo", "always"]


def test_what_restores_and_cannot_end_needs_attention(bench: Bench) -> None:
    bench.errors = {"work": [HostError("first")], "undo": [KeyboardInterrupt(), KeyboardInterrupt()]}
    with pytest.raises(AttentionError) as caught:
        bench.run(BLOCK)
    assert caught.value.hint == "invoke rollback --host fake"
    assert bench.done[-1] == "always"


def test_ctrl_c_during_always_puts_things_back(bench: Bench) -> None:
    bench.errors = {"always": [KeyboardInterrupt()]}
    with pytest.raises(Interrupted):
        bench.run(BLOCK)
    assert bench.done == ["work", "more", "always", "evidence", "undo"]


@pytest.mark.parametrize("where", ["work", "evidence", "always"])
def test_whoever_lost_the_hosts_lock_does_nothing_more_there(bench: Bench, where: str) -> None:
    bench.errors = {"more": [HostError("first")] if where == "evidence" else [], where: [LockLost("taken over")]}
    with pytest.raises(LockLost):
        bench.run(BLOCK)
    assert bench.done[-1] == where
    assert "undo" not in bench.done


def test_a_context_says_whether_an_interrupt_would_put_things_back(bench: Bench) -> None:
    guarded = []
    action = bench.actions["note"]
    bench.actions["note"] = replace(action, run=lambda context, args: guarded.append(context.guarded) or {})
    bench.run(note("a") + BLOCK)
    assert guarded == [0, 1, 1, 1, 0]
    assert bench.context.guarded == 0


def test_ctrl_c_outside_a_block_exits_130(bench: Bench) -> None:
    bench.errors["a"] = [KeyboardInterrupt()]
    with pytest.raises(Interrupted) as caught:
        bench.run(note("a") + note("b"))
    assert caught.value.hint.startswith("invoke status --host fake shows what is there")
    assert bench.done == ["a"]


def test_ctrl_c_while_a_retry_is_waited_for_is_an_interrupt(bench: Bench) -> None:
    bench.errors["a"] = [HostError("busy")]

    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    bench.context.sleep = interrupted
    with pytest.raises(Interrupted):
        bench.run(note("a", "    retries: 1\n    delay: 5\n"))


def test_a_failure_of_always_does_not_hide_the_failure_before_it(bench: Bench) -> None:
    bench.errors = {"work": [HostError("first")], "always": [HostError("second")]}
    with pytest.raises(HostError, match="first"):
        bench.run(BLOCK)
    assert "second" in said(bench.context)


def test_a_failure_of_always_alone_is_a_failure(bench: Bench) -> None:
    bench.errors = {"always": [HostError("second")]}
    with pytest.raises(HostError, match="second"):
        bench.run(BLOCK)


def test_an_inner_block_that_puts_itself_back_leaves_the_outer_one_to_go_on(bench: Bench) -> None:
    inner = """
  - block:
      - block:
          - note: {text: work}
        rescue:
          - note: {text: inner}
      - note: {text: outer}
    rescue:
      - note: {text: never}
"""
    bench.errors["work"] = [HostError("first")]
    bench.run(inner)
    assert bench.done == ["work", "inner", "outer"]


def test_check_previews_what_changes_and_runs_what_only_looks(tmp_path: Path) -> None:
    bench = Bench(tmp_path, check=True)
    bench.run("  - change: {text: a}\n" + note("b"))
    assert bench.done == ["would a", "b"]
    assert all(event["check"] for event in bench.events() if event["state"] == "started")


def test_a_check_that_fails_has_nothing_to_put_back(tmp_path: Path) -> None:
    bench = Bench(tmp_path, check=True)
    bench.errors["work"] = [HostError("first")]
    with pytest.raises(HostError, match="first"):
        bench.run(BLOCK)
    assert bench.done == ["work", "always"]


def test_events_say_what_began_and_how_it_ended_and_how_long_it_took(bench: Bench) -> None:
    clock = bench.context.clock
    bench.actions["slow"] = Action("slow", NoArguments, "", lambda c, _: clock.sleep(2.5) or {"n": 1})  # type: ignore[attr-defined]
    bench.errors["a"] = [HostError("first")]
    with pytest.raises(HostError):
        bench.run(note("never", "    when: false\n") + "  - slow:\n" + note("a"))
    found = [
        {key: event.get(key) for key in ("action", "state", "seconds", "error", "result")} for event in bench.events()
    ]
    assert [tuple(event.values()) for event in found] == [
        ("note", "skipped", None, None, None),
        ("slow", "started", None, None, None),
        ("slow", "ok", 2.5, None, {"n": 1}),
        ("note", "started", None, None, None),
        ("note", "failed", 0.0, "first", None),
    ]


def test_a_value_that_only_a_result_gives_is_refused_when_it_comes(bench: Bench) -> None:
    tasks = note("a", "    register: first\n") + '  - note: {number: "{{ first.text }}"}\n'
    with pytest.raises(EaglelabError, match="note: number cannot be 'a'") as caught:
        bench.run(tasks)
    assert caught.value.exit_code == 1
    assert bench.done == ["a"]


@pytest.mark.parametrize("value", ["x", "0", "-1", "''"])
def test_a_value_that_cannot_work_is_refused_before_anything_runs(bench: Bench, value: str) -> None:
    book = bench.load(note("a") + '  - note: {number: "{{ n }}"}\n', f"{{n: {value}}}")
    with pytest.raises(InputError, match="note: number cannot be") as caught:
        check_arguments(book, bench.actions, {"host": {}, "run": ""}, bench.context.options)
    assert caught.value.where.endswith("p.yaml:5")


def test_arguments_that_wait_for_a_result_are_not_checked_before(bench: Bench) -> None:
    book = bench.load(note("a", "    register: first\n") + '  - note: {number: "{{ first.text }}"}\n')
    check_arguments(book, bench.actions, {"host": {}, "run": ""}, bench.context.options)


def test_what_an_action_itself_refuses_is_refused_before_anything_runs(bench: Bench) -> None:
    def refuse(_: Any, args: Note) -> None:
        raise InputError(f"there is no '{args.text}'")

    bench.actions["picky"] = Action("picky", Note, "", bench._note, check=refuse)
    book = bench.load("  - picky: {text: x}\n")
    with pytest.raises(InputError, match="there is no 'x'"):
        check_arguments(book, bench.actions, {"host": {}, "run": ""}, bench.context.options)
    assert bench.done == []
