"""Complaints 3, 4, 31, 32 and 35: those who run a command, stop it, or share a host."""

from __future__ import annotations

import signal
import subprocess

import pytest
from machine import Machine
from scene import picture
from serverkit import alive, until

from eaglelab.commands import hosts

pytestmark = pytest.mark.sshd


def serving(machine: Machine) -> bool:
    """Whether a server was started and the run waits for it."""
    return bool(machine.starts()) and "started" in machine.events("wait")


def ended(process: subprocess.Popen[str], seconds: float = 120) -> tuple[int, str]:
    output, _ = process.communicate(timeout=seconds)
    return process.returncode, output


def test_03_ctrl_c_stops_the_server_rolls_back_and_exits_130(machine: Machine) -> None:
    """Ctrl-C leaves work on the host, or hangs."""
    machine.behave(deaf=True)
    process = machine.begin("deploy-profiling")
    until(lambda: serving(machine), "the server loads")
    process.send_signal(signal.SIGINT)
    code, output = ended(process)
    assert code == 130, output
    assert not alive(machine.starts()[0])
    machine.assert_original()
    machine.agent().lock({"by": "me", "run": "next", "command": "test", "since": "now"})  # no agent of it is left


def test_03_a_second_ctrl_c_leaves_at_once_and_prints_the_command_that_mends_the_host(machine: Machine) -> None:
    """Ctrl-C hangs: here because the server takes its time to end."""
    machine.behave(deaf=True, ignore_term=True)
    process = machine.begin("deploy-profiling")
    until(lambda: serving(machine), "the server loads")
    process.send_signal(signal.SIGINT)
    until(lambda: "started" in machine.events("rollback"), "the first Ctrl-C leads to the rollback")

    def left() -> bool:
        process.send_signal(signal.SIGINT)  # again and again: those that come at once with the first are one with it
        return process.poll() is not None

    until(left, "it leaves")
    code, output = ended(process)
    assert alive(machine.starts()[0])  # nobody has waited for its end
    assert code == 130
    assert "invoke rollback --host gpu" in output
    assert picture(machine.package) != machine.before
    (machine.folder / "let-go").touch()
    machine.rollback()
    machine.assert_original()


PLAN = """
name: plan
tasks:
  - {name: Read the host, doctor: {}}
  - {name: Plan, plan: {}}
  - {name: Start, start: {steps: baseline, profile: false}}
  - {name: Wait, wait: , retries: 3, delay: 0}
  - {name: Back up, backup: }
  - {name: Patch, patch: }
"""


def test_04_ctrl_c_ends_the_playbook_and_not_only_its_task(machine: Machine) -> None:
    """Ctrl-C only skips one task, and the play continues."""
    machine.behave(deaf=True)
    (machine.scene.folder / "plan.yaml").write_text(PLAN)
    process = machine.begin("play", "--file", "plan.yaml")
    until(lambda: serving(machine), "the server loads")
    process.send_signal(signal.SIGINT)
    code, output = ended(process)
    assert code == 130, output
    assert machine.events("wait") == ["started", "failed"]
    assert machine.events("backup") == machine.events("patch") == []
    assert picture(machine.package) == machine.before
    assert "attempt 2" not in output
    machine.rollback()
    machine.assert_original()


def test_31_a_second_operator_is_told_who_is_at_work_and_may_take_over(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two operators work on one host, and neither knows."""
    monkeypatch.setattr(hosts, "_LOCK_TRIES", 2)
    machine.behave(deaf=True)
    first = machine.begin("deploy-profiling")
    until(lambda: serving(machine), "the first operator's server loads")
    [run] = [path.name for path in (machine.scene.folder / "logs").iterdir()]
    refused = machine.rollback(code=1)
    assert "another run is at work on this host: " in refused.stderr
    assert "runs deploy-profiling since 20" in refused.stderr
    assert run in refused.stderr
    assert "--steal-lock" in refused.stderr
    assert first.poll() is None
    machine.scene.invoke("rollback", "--host", "gpu", "--steal-lock")
    machine.assert_original()
    stolen = len(machine.journal("steal"))
    written = (machine.state / "journal.jsonl").read_bytes()
    code, output = ended(first)
    assert code == 1, output
    assert stolen == 1
    assert (machine.state / "journal.jsonl").read_bytes() == written  # the robbed one touched nothing more
    machine.assert_original()


def test_32_a_run_that_was_killed_goes_on_without_a_second_load(machine: Machine) -> None:
    """A run cannot be resumed, and what it had registered is lost."""
    machine.behave(load=0.5, canary="EAGLE3_SHAPES active: class=EAGLEWorker rank=0/1")
    words = ("deploy-profiling", "--host", "gpu", "--patch", "verify-shapes", "--tokens", "64")
    assert machine.scene.killed_after(9, *words) == -signal.SIGKILL  # the server has given its first token
    [pid] = machine.starts()
    [run] = [path.name for path in (machine.scene.folder / "logs").iterdir()]
    done = machine.scene.invoke("deploy-profiling", "--resume", run, "--json")
    assert done.json["run"] == run
    assert machine.starts() == [pid]
    assert alive(pid)
    assert machine.events("start").count("ok") == 1
    assert machine.events("generate")[-1] == machine.events("prove")[-1] == "ok"
    machine.rollback()
    machine.assert_original()


def test_35_a_planted_secret_is_nowhere_below_logs(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets are in logs and diffs."""
    secrets = {"key": "s3cr3t-of-the-api", "token": "hf_planted0123456789", "flag": "planted-admin-key"}
    monkeypatch.setenv("THE_KEY", secrets["key"])
    machine.inventory(
        api_key_env="THE_KEY",
        server={"env": {"HF_TOKEN": secrets["token"]}, "flags": {"admin-api-key": secrets["flag"]}},
    )
    worker = machine.worker()
    draft = b"                spec_info = self.draft(batch)\n"
    original = worker.read_bytes()
    worker.write_bytes(original.replace(draft, b"                # " + secrets["key"].encode() + b"\n" + draft))
    checked = machine.command("deploy-profiling", check=True, accept_drift=True)  # the line stands in its diff
    assert "\n                 # ***\n" in checked.stderr
    worker.write_bytes(original)
    machine.behave(tell=True)
    done = machine.serve()
    told = machine.log.read_text()  # the server itself says all of it
    assert all(secret in told for secret in secrets.values())
    machine.rollback()
    machine.behave(tell=True, die=1)
    failed = machine.serve(code=1)  # its last lines are shown, and they are those
    assert "sglang.launch_server" in failed.stderr
    files = [path for path in (machine.scene.folder / "logs").rglob("*") if path.is_file()]
    assert {"server.log", "server.json", "inventory.json", "events.jsonl"} <= {path.name for path in files}
    for secret in secrets.values():
        assert [path.name for path in files if secret.encode() in path.read_bytes()] == []
        assert secret not in checked.stdout + checked.stderr + done.stdout + done.stderr + failed.stderr
        assert secret not in (machine.state / "journal.jsonl").read_text()
    machine.assert_original()
