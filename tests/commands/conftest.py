from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fake_host import PROBE_PATH, PROJECT, WORKER, WORKER_PATH, Clock, FakeHost
from invoke import Collection, Program
from sweeping import SMALL, TARGET_CONFIG
from typed import Done

import tasks
from eaglelab.commands import on_hosts
from eaglelab.context import Context

INVENTORY = """
default_host: a
defaults:
  address: 127.0.0.1
  log: /home/u/server.log
  expected_load: 3
  server: {model_path: /models/target, speculative: {draft_model_path: /models/draft}}
groups:
  both: [a, b]
hosts:
  a: {}
  b: {}
"""


@pytest.fixture
def invoke(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command line as the `invoke` program would, in this process."""

    def run(*argv: str) -> Done:
        program = Program(namespace=Collection.from_module(tasks), binary="invoke")
        code = 0
        try:
            program.run(["invoke", *argv])
        except SystemExit as error:
            code = int(error.code or 0)
        return Done(code, *capsys.readouterr())

    return run


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of its own with the hosts `a` and `b`, this project's playbooks and its patch."""
    shutil.copytree(PROJECT / "playbooks", tmp_path / "playbooks")
    (tmp_path / "patches").mkdir()
    (tmp_path / "patches" / "eagle3-profile").symlink_to(PROJECT / "patches" / "eagle3-profile")
    (tmp_path / "inventory.yaml").write_text(INVENTORY)
    monkeypatch.setattr(tasks, "PROJECT", tmp_path)
    # Drawing takes longer than all else that a test does here; test_report_command puts it back.
    monkeypatch.setattr("eaglelab.report.write.write_report", lambda *_: None)
    return tmp_path


@pytest.fixture
def fakes(own: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, FakeHost]:
    """`a` and `b` in memory instead of the machines that the inventory names."""
    hosts = {"a": FakeHost(), "b": FakeHost()}
    clock = Clock()

    @contextmanager
    def connected(
        selection: Any,
        host: Any,
        bundle: Any,
        say: Any,
        options: Any,
        *,
        lock: Any,
        steal: bool = False,
        **_: Any,
    ) -> Iterator[Context]:
        fake = hosts[host.name]
        fake.commands.append((lock, options.check))
        fake.stolen = steal
        yield Context(host=host, client=fake, bundle=bundle, say=say, options=options, clock=clock, sleep=clock.sleep)

    monkeypatch.setattr(on_hosts, "connected", connected)
    return hosts


@pytest.fixture
def fake(fakes: dict[str, FakeHost]) -> FakeHost:
    """A host whose release can hold several step counts in one load."""
    fakes["a"].facts["sglang_version"] = "0.5.12.dev1"
    fakes["a"].files[TARGET_CONFIG] = json.dumps({"vocab_size": 32000, "hidden_size": 4096}).encode()
    return fakes["a"]


@pytest.fixture
def sweep(invoke: Any, own: Path, fake: FakeHost) -> Any:
    """Runs sweep --json with a small load. Whatever becomes of it, the host must be as it was found."""

    def run(*argv: str, code: int = 0) -> Any:
        done = invoke("sweep", *argv, *(() if "--resume" in argv else SMALL), "--json")
        assert done.code == code, done.err[-1500:]
        assert fake.files[WORKER_PATH] == WORKER
        assert PROBE_PATH not in fake.files
        assert (fake.alive, fake.record, fake.manifest) == (False, None, None)
        assert [load.id for load in fake.begun if load.state == "running"] == []
        return done

    return run
