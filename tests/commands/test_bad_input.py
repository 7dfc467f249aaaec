"""Bad input: exit 2, one sentence and a hint, and nothing is contacted."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest
import yaml
from fake_host import CASES, PROJECT, WORKER

INHERITS = (CASES / "patching" / "nothing-frozen-v2-that-inherits" / "before.py").read_bytes()


@pytest.fixture(autouse=True)
def nothing_is_contacted(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("something was contacted")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(subprocess.Popen, "__init__", refuse)


def inventory(own: Path, old: str, new: str) -> None:
    path = own / "inventory.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def refused(done, what: str, hint: str = "") -> None:
    assert done.code == 2
    assert what in done.err
    assert hint in done.err
    assert "\n  hint: " in done.err
    assert "Traceback" not in done.err
    assert done.json["ok"] is False
    assert done.json["exit_code"] == 2
    assert done.json["bundle"] is None


@pytest.mark.parametrize(
    "command",
    ["deploy-profiling", "bench", "rollback", "doctor", "status", "logs", "stop", "play deploy-profiling"],
)
@pytest.mark.parametrize(
    ("name", "what"), [("c", "unknown host or group 'c'"), ("a,", "a host name is empty"), ("", "empty")]
)
def test_an_unknown_host_is_refused_by_every_command(invoke, own, command: str, name: str, what: str) -> None:
    refused(invoke(*command.split(), "--host", name, "--json"), what, "both")


def test_an_unknown_host_of_the_environment_is_refused(invoke, own, monkeypatch) -> None:
    monkeypatch.setenv("EAGLELAB_HOST", "boht")
    refused(invoke("status", "--json"), "EAGLELAB_HOST: unknown host or group 'boht'", "'both'")


@pytest.mark.parametrize(
    ("old", "new", "what", "hint"),
    [
        ("expected_load: 3", "expected_laod: 3", "inventory.yaml:6: unknown key 'expected_laod'", "'expected_load'"),
        ("both: [a, b]", "both: [a, c]", "names an unknown host 'c'", ""),
        ("hosts:\n  a: {}", "hosts:\n  a: {server: {port: 70000}}", "inventory.yaml:11: ", "port"),
        ("hosts:\n  a: {}", "hosts:\n  a: {server: {port: 0}}", "a port is between 1 and 65535", ""),
        ("both: [a, b]", "both: [a, b", "inventory.yaml:", ""),
        ("  b: {}", "\tb: {}", "inventory.yaml:12", "spaces"),
        ("server: {", "server: {speculative: {num_steps: 0}, ", "speculative", ""),
        ("default_host: a", "default_host: c", "default_host names an unknown host or group 'c'", ""),
    ],
)
def test_an_inventory_that_is_wrong_is_refused_with_file_and_line(invoke, own, old, new, what, hint) -> None:
    inventory(own, old, new)
    refused(invoke("status", "--json"), what, hint)


def test_an_inventory_that_is_not_there_is_refused(invoke, own) -> None:
    refused(invoke("status", "--json", "--inventory", "none.yaml"), "none.yaml")


PLAYBOOKS = {
    "an unknown action": ("- docter:", "unknown action 'docter'", "'doctor'"),
    "an unknown key": ("- doctor:\n    regsiter: x", "unknown key 'regsiter'", "'register'"),
    "an unknown argument": ("- plan: {ptach: x}", "unknown key 'ptach'", "'patch'"),
    "an unknown variable": ('- plan: {patch: "{{ pacth }}"}', "unknown variable 'pacth'", "known here"),
    "yaml that does not parse": ("- plan: {patch: x", "p.yaml:", ""),
    "an unknown patch": ("- plan: {patch: eagle-profile}", "there is no patch 'eagle-profile'", "eagle3-profile"),
    "a value that cannot be": ("- start: {steps: 0}", "p.yaml:4: 'steps' must be a step count (1 or more)", ""),
    "a variable that cannot be": ('- start: {steps: "{{ n }}"}', "start: steps cannot be 0", "variables"),
    "an include of itself": ("- include: p.yaml", "the include goes round in a loop: p.yaml -> p.yaml", ""),
}


@pytest.mark.parametrize("task", PLAYBOOKS)
def test_a_playbook_that_is_wrong_is_refused_with_file_and_line(invoke, own, task: str) -> None:
    text, what, hint = PLAYBOOKS[task]
    (own / "p.yaml").write_text(f"name: p\nvars: {{n: 0}}\ntasks:\n  {text}\n")
    refused(invoke("play", str(own / "p.yaml"), "--json"), what, hint)


def test_an_include_loop_over_two_files_is_refused(invoke, own) -> None:
    (own / "p.yaml").write_text("name: p\ntasks:\n  - include: q.yaml\n")
    (own / "q.yaml").write_text("name: q\ntasks:\n  - include: p.yaml\n")
    refused(invoke("play", str(own / "p.yaml"), "--json"), "loop: p.yaml -> q.yaml -> p.yaml")


def test_a_playbook_that_does_not_exist_is_refused_with_those_that_do(invoke, own) -> None:
    refused(invoke("play", "deploy", "--json"), "there is no playbook 'deploy'", "deploy-profiling")


@pytest.mark.parametrize(
    ("argv", "what"),
    [
        (["--var", "nope=1"], "unknown variable 'nope'"),
        (["--var", "steps"], "'steps' is no variable"),
        (["--var", "steps=[1"], "the value of 'steps' cannot be read"),
        (["--var", "steps=two"], "check_owner: steps cannot be 'two'"),
        (["--var", "steps=0"], "check_owner: steps cannot be 0"),
        (["--var", "tokens=none"], "generate: max_new_tokens cannot be 'none'"),
        (["--tags", "nope"], "no task is tagged 'nope'"),
    ],
)
def test_options_of_play_that_cannot_be_are_refused(invoke, own, argv: list[str], what: str) -> None:
    refused(invoke("play", "deploy-profiling", *argv, "--json"), what)


@pytest.mark.parametrize("steps", ["0", "-1", "x", "", "2,", "1.5"])
@pytest.mark.parametrize("command", ["bench", "deploy-profiling"])
def test_steps_that_cannot_be_are_refused(invoke, own, command: str, steps: str) -> None:
    refused(invoke(command, f"--steps={steps}", "--json"), "--steps: ", "--steps 2")


def test_deploy_takes_one_step_count_and_says_who_takes_several(invoke, own) -> None:
    refused(invoke("deploy-profiling", "--steps=2,3", "--json"), "one step count is wanted", "invoke bench")


@pytest.mark.parametrize(
    ("argv", "what"),
    [
        (["deploy-profiling", "--tokens=x"], "--tokens: 'x' is not a whole number"),
        (["deploy-profiling", "--tokens=0"], "--tokens: 0 is too small: 32 or more"),
        (["deploy-profiling", "--tokens="], "--tokens: '' is not a whole number"),
        (["deploy-profiling", "--patch=nope"], "there is no patch 'nope'"),
        (["bench", "--num-prompts=0"], "--num-prompts: 0 is too small: 1 or more"),
        (["bench", "--output-len=1e3"], "--output-len: '1e3' is not a whole number"),
        (["bench", "--warmup=-1"], "--warmup: -1 is too small: 0 or more"),
        (["bench", "--temperature=warm"], "--temperature: 'warm' is not a number"),
        (["bench", "--temperature=nan"], "--temperature: nan is not usable"),
        (["bench", "--request-rate=0"], "--request-rate: 0 is not usable: more than 0"),
        (["lab-up", "--clock-rate=0"], "--clock-rate: 0 is not usable: more than 0"),
        (["logs", "--lines=-5"], "--lines: -5 is too small"),
        (["lab-up", "--port=x"], "--port: 'x' is not a whole number"),
        (["lab-up", "--load-seconds=-1"], "--load-seconds: -1 is not usable"),
        (["report", "--log=none.log"], "none.log: there is no such file"),
        (["report", "--run=none"], "there is no run 'none'"),
        (["logs", "--runs", "--export=x.doc"], "--export: '.doc' is no format"),
        (["report"], "no run here has a profile yet"),
        (["patch-check"], "--file: no file is named"),
        (["patch-check", "--file=none.py"], "none.py: cannot read it: No such file or directory"),
        (["patch-check", "--file=.", "--patch=nope"], "there is no patch 'nope'"),
    ],
)
def test_an_option_that_cannot_be_is_refused(invoke, own, argv: list[str], what: str) -> None:
    refused(invoke(*argv, "--json"), what)


def test_a_patched_file_that_cannot_be_written_is_refused(invoke, own) -> None:
    (own / "w.py").write_bytes(WORKER)
    refused(
        invoke("patch-check", "--file", str(own / "w.py"), "--out", str(own / "no" / "w.py"), "--json"),
        "cannot write it",
    )


def test_a_run_without_a_profile_is_refused(invoke, own) -> None:
    (own / "logs" / "r").mkdir(parents=True)
    refused(invoke("report", "--run", "r", "--json"), "run 'r' has no profile")


@pytest.mark.parametrize("command", ["deploy-profiling", "bench", "doctor", "play deploy-profiling"])
def test_the_default_host_with_its_paths_unset_is_refused_and_nothing_is_contacted(invoke, command: str) -> None:
    refused(invoke(*command.split(), "--json"), "server.model_path", "inventory.yaml")


def test_the_lab_that_is_not_up_is_refused(invoke, own) -> None:
    inventory(own, "  a: {}", "  a: {connection: lab}")
    refused(invoke("status", "--json"), "a: the embedded lab is not up", "invoke lab-up")


def test_an_api_key_that_is_not_given_is_refused_where_it_is_needed(invoke, own) -> None:
    inventory(own, "  a: {}", "  a: {api_key_env: NOT_THERE}")
    refused(
        invoke("deploy-profiling", "--json"), "NOT_THERE, which holds the API key of host 'a', is not set", "export"
    )


def test_a_worker_without_a_place_for_the_patch_is_refused_with_the_lines_looked_at(invoke, own) -> None:
    path = own / "w.py"
    path.write_bytes(WORKER.replace(b"self.verify(", b"self.check("))
    done = invoke("patch-check", "--file", str(path), "--json")
    assert done.code == 1
    assert "w.py" in done.json["error"]["where"]
    assert " | " in done.err


def test_a_worker_that_inherits_its_entry_is_refused_with_the_reason(invoke, own) -> None:
    folder = own / "patches" / "second"
    folder.mkdir()
    spec = yaml.safe_load((PROJECT / "patches" / "eagle3-profile" / "patch.yaml").read_text())
    spec |= {"targets": [{"path": "srt/speculative/w.py", "may_inherit": True}], "modules": []}
    (folder / "patch.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    (own / "w.py").write_bytes(INHERITS)
    done = invoke("patch-check", "--file", str(own / "w.py"), "--patch", "second", "--json")
    assert done.code == 1
    assert "there is nothing to patch" in done.err


def test_invokes_own_refusals_are_one_line(invoke) -> None:
    for argv, what in (
        (["bench", "--stepz", "2"], "No idea what '--stepz' is!"),
        (["bench", "--steps"], "needed value and was not given one"),
        (["play"], "'play' did not receive required positional arguments: 'file'"),
        (["benhc"], "No idea what 'benhc' is!"),
    ):
        done = invoke(*argv)
        assert done.code == 1
        assert what in done.err
        assert len(done.err.splitlines()) == 1


def test_the_playbooks_of_this_project_are_all_good() -> None:
    from eaglelab.actions import ACTIONS
    from eaglelab.context import Options
    from eaglelab.playbook import load_playbook
    from eaglelab.runner import check_arguments

    for path in (PROJECT / "playbooks").glob("*.yaml"):
        book = load_playbook(path, actions=ACTIONS, extra_vars={})
        check_arguments(book, ACTIONS, {"host": {}, "run": ""}, Options(project=PROJECT))
