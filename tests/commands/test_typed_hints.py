"""What a hint says is typed as it stands: it must lead to the same host of the same inventory."""

from __future__ import annotations

import json

import pytest
from fake_host import refusal
from test_resume import SMALL, killed, run_of

from eaglelab.context import complete


@pytest.fixture
def elsewhere(own, monkeypatch):
    """The inventory under another name, in a folder of its own, from which commands are typed."""
    folder = own / "my folder"
    folder.mkdir()
    (own / "inventory.yaml").rename(folder / "inv.yaml")
    (own / "inventory.yaml").write_text("hosts: {a: {address: 127.0.0.2}}\n")
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("argv", [["deploy-profiling"], ["bench", *SMALL]])
def test_after_an_interrupt_the_hint_names_the_inventory(invoke, own, fakes, elsewhere, argv) -> None:
    fakes["a"].fail["poll"] = KeyboardInterrupt()
    done = invoke(*argv, "--inventory", "inv.yaml", "--json")
    assert done.code == 130
    assert "invoke rollback --host a --inventory inv.yaml puts it back" in done.json["error"]["hint"]


@pytest.mark.parametrize(
    ("op", "code", "hint"),
    [
        ("start", "running", "invoke stop --host a --inventory inv.yaml ends the server that eaglelab started"),
        ("apply", "not-reverted", "then: invoke rollback --host a --inventory inv.yaml"),
        ("generate", "broken", "invoke logs --host a --inventory inv.yaml shows what the server says"),
    ],
)
def test_hints_of_every_origin_name_host_and_inventory(invoke, own, fakes, elsewhere, op, code, hint) -> None:
    fakes["a"].fail[op] = refusal(code, "it did not work")
    done = invoke("deploy-profiling", "--inventory", "inv.yaml", "--json")
    assert hint in done.json["error"]["hint"]


def test_lines_that_name_a_command_name_the_inventory(invoke, own, fakes, elsewhere) -> None:
    done = invoke("bench", *SMALL, "--keep", "--inventory", "inv.yaml")
    assert done.code == 0, done.err
    assert "invoke rollback --host a --inventory inv.yaml puts everything back" in done.out


def test_a_run_goes_on_from_another_folder(invoke, own, fakes, elsewhere, monkeypatch) -> None:
    killed(invoke, fakes["a"], monkeypatch, "poll", "deploy-profiling", "--inventory", "inv.yaml")
    run = run_of(own)
    recorded = json.loads((own / "logs" / run / "request.json").read_text())["inventory"]
    assert recorded == str(elsewhere / "inv.yaml")
    assert invoke("deploy-profiling", "--resume", run, "--inventory", "inv.yaml", "--check").code == 2  # --check only
    monkeypatch.chdir("/")
    assert invoke("deploy-profiling", "--resume", run).code == 0


@pytest.mark.parametrize(
    ("hint", "whole"),
    [
        ("invoke stop ends it", "invoke stop --host a --inventory 'm y' ends it"),
        ("invoke rollback --host b, then", "invoke rollback --host b --inventory 'm y', then"),
        ("invoke rollback --host a --inventory x", "invoke rollback --host a --inventory x"),
        ("invoke bench --resume last goes on", "invoke bench --resume last goes on"),
        ("invoke lab-up", "invoke lab-up"),
        ("then invoke rollback", "then invoke rollback --host a --inventory 'm y'"),
    ],
)
def test_a_command_in_a_hint_is_completed_once(hint: str, whole: str) -> None:
    assert complete(hint, "a", "m y") == whole


def test_without_an_inventory_only_the_host_is_added() -> None:
    assert complete("invoke rollback", "a", None) == "invoke rollback --host a"


def test_a_command_that_was_completed_stays_as_it_is() -> None:
    once = complete("invoke rollback", "kimi", "lost.yaml")
    assert once == "invoke rollback --host kimi --inventory lost.yaml"
    assert complete(once, "kimi", "lost.yaml") == once
