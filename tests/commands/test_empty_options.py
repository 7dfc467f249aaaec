"""An option whose value is empty, as a script's unset variable leaves it, is refused and never taken for not given."""

from __future__ import annotations

import pytest

HOST_COMMANDS = ("deploy-profiling", "bench", "rollback", "play rollback", "doctor", "status", "logs", "stop")
CASES = [
    *[(command, option) for command in HOST_COMMANDS for option in ("--host", "--inventory")],
    *[(command, "--resume") for command in ("deploy-profiling", "bench", "play rollback")],
    *[("deploy-profiling", option) for option in ("--steps", "--tokens", "--patch")],
    *[("bench", option) for option in ("--steps", "--num-prompts", "--output-len", "--warmup", "--temperature")],
    *[("play rollback", option) for option in ("--tags", "--skip-tags", "--var")],
    ("play", "--file"),
    ("logs", "--lines"),
    *[("report", option) for option in ("--log", "--run")],
    *[("patch-check --file worker.py", option) for option in ("--out", "--patch")],
    ("patch-check", "--file"),
    *[("lab-up", option) for option in ("--sglang", "--load-seconds", "--clock-rate", "--model", "--port")],
]


@pytest.mark.parametrize("value", ["", " "])
@pytest.mark.parametrize(("command", "option"), CASES)
def test_an_empty_value_is_refused(invoke, own, fakes, monkeypatch, command: str, option: str, value: str) -> None:
    monkeypatch.setattr("eaglelab.lab.lab.up", lambda *_: pytest.fail("the lab was begun"))
    (own / "worker.py").write_text("class EAGLEWorker: pass\n")
    monkeypatch.chdir(own)
    done = invoke(*command.split(), option, value, "--json")
    assert done.code == 2, done.err
    assert done.json["error"]["hint"]
    assert not fakes["a"].calls
    assert not (own / "logs").exists()
