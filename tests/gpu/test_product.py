"""The project's own command through an SSH server on loopback: the way there, and the way that is left afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from gpu.lab_truth import LabTruth
from gpu.validate.budget import Budget
from gpu.validate.experiments import product
from gpu.validate.site import Site
from gpu.validate.workspace import CommandError, Done

LOCAL = {"connection": "local", "server": {"port": 30000}}


class FakeServer:
    version = "an SSH server"

    def __init__(self, _folder: Path) -> None:
        self.ended = False

    def entry(self) -> dict[str, Any]:
        return {"connection": "ssh", "address": "127.0.0.1", "port": 40000}

    def end(self) -> None:
        self.ended = True


class FakeWorkspace:
    def __init__(self, folder: Path, fails: bool) -> None:
        self.folder, self._fails, self.inventories, self.invoked = folder, fails, list[Any](), list[list[str]]()

    def inventory(self, entry: dict[str, Any]) -> None:
        self.inventories.append(entry)

    def invoke(self, *words: str, timeout: float, code: int | None = 0) -> Done:
        self.invoked.append(list(words))
        if self._fails:
            raise CommandError("it took longer than 580 s")
        return Done(0, {"bundle": "/there/logs/20261130-bench"}, "done")


class FakeSite:
    def __init__(self, workspace: FakeWorkspace) -> None:
        self.workspace, self.machine = workspace, self

    def entry(self, _setting: object) -> dict[str, Any]:
        return LOCAL

    def entry_by(self, way: dict[str, Any], _setting: object) -> dict[str, Any]:
        return {**LOCAL, **way}

    def truth(self, acceptance: float) -> LabTruth:
        return LabTruth(acceptance, seed=1, vocabulary=1000)

    def rollback(self, _budget: Budget) -> None: ...


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, part: str, fails: bool = False) -> FakeWorkspace:
    monkeypatch.setattr(product, "loopback_server", FakeServer)
    workspace = FakeWorkspace(tmp_path, fails)
    (wanted,) = (each for each in product.experiment().parts if each.name == part)
    try:
        found = wanted.run(cast("Site", FakeSite(workspace)), Budget(600))
        assert found["sshd"] == ("an SSH server" if part == "product-ssh" else None)
        assert found["bundle"] == "20261130-bench"
    except CommandError:
        assert fails
    return workspace


def test_the_command_goes_through_the_ssh_server_with_the_crafted_prompts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = run(tmp_path, monkeypatch, part="product-ssh")
    assert workspace.inventories[0] == {**LOCAL, "connection": "ssh", "address": "127.0.0.1", "port": 40000}
    assert workspace.invoked[0][0] == "bench"
    prompts = [json.loads(line)["input_ids"] for line in (tmp_path / "prompts.jsonl").read_text().splitlines()]
    assert prompts == LabTruth(0.6, seed=1, vocabulary=1000).prompts(12, 256)


@pytest.mark.parametrize("fails", [False, True])
def test_afterwards_the_inventory_leads_past_the_server_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    assert run(tmp_path, monkeypatch, part="product-ssh", fails=fails).inventories[-1] == LOCAL


def test_the_local_sweep_needs_no_ssh_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeServer, "entry", lambda _self: pytest.fail("asked for the way by SSH"))
    assert run(tmp_path, monkeypatch, part="product-local").inventories == [LOCAL]
