"""Ctrl-C on the real process against the lab: the host is put back; the second one leaves at once, whatever hangs."""

from __future__ import annotations

import getpass
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from controller import Controller
from scene import Scene, picture
from serverkit import free_port
from sshd import Sshd

DEPLOY = ("deploy-profiling", "--tokens", "400", "--json")
CONNECT_S = 60
RESCUE = {"Fetch what the log says", "Roll back"}


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A project whose lab takes two seconds to load: time to interrupt it."""
    made = Scene.make(tmp_path_factory.mktemp("project"))
    made.invoke("lab-up", "--load-seconds", "2")
    yield made
    made.invoke("lab-down")


@pytest.fixture(scope="module")
def package(slow: Scene) -> Path:
    return slow.folder / ".lab/host/home/sglang/python/sglang"


@pytest.fixture(scope="module")
def original(package: Path) -> dict[str, Any]:
    return picture(package)


def members(scene: Scene) -> list[int]:
    return list(scene.invoke("status", "--json").json["hosts"]["sim"]["members"])


@pytest.mark.parametrize(
    ("task", "number"),
    [
        ("Back up the originals", signal.SIGINT),
        ("Patch", signal.SIGINT),
        ("Start the server with the probe", signal.SIGTERM),
        ("Wait for a token", signal.SIGHUP),
        ("Generate", signal.SIGINT),
        ("Fetch logs and records", signal.SIGINT),
    ],
)
def test_the_first_one_ends_the_task_and_puts_everything_back(
    slow: Scene, package: Path, original: dict[str, Any], task: str, number: int
) -> None:
    controller = Controller(slow, "deploy", *DEPLOY)
    controller.until_begun(task)
    controller.interrupt(number)
    done = controller.end()
    assert done.code == 130, done.stderr
    assert done.json["exit_code"] == 130
    assert done.json["hosts"] == {"sim": {"ok": False}}
    assert f"--resume {done.json['run']}" in done.json["error"]["hint"]
    assert "stopping and rolling back; Ctrl-C again leaves at once" in done.stderr
    begun = [name for name, state in controller.events() if state == "started"]
    assert set(begun[begun.index(task) + 1 :]) - {task} <= RESCUE | _next(task, controller)
    assert begun[-1] == "Roll back"
    assert picture(package) == original
    assert members(slow) == []


def _next(task: str, controller: Controller) -> set[str]:
    """The task may have come to its end just before the signal came."""
    events = controller.events()
    if (task, "ok") not in events:
        return set()
    after = events[events.index((task, "ok")) + 1 :]
    return {name for name, state in after if state == "started"} - RESCUE if len(after) > 1 else set()


def test_one_while_the_host_is_read_changes_nothing(slow: Scene, package: Path, original: dict[str, Any]) -> None:
    controller = Controller(slow, "deploy", *DEPLOY)
    controller.until_begun("Read the host")
    controller.interrupt()
    done = controller.end()
    assert done.code == 130, done.stderr
    assert "Roll back" not in [name for name, _ in controller.events()]
    assert picture(package) == original


def test_one_between_two_settings_of_a_bench_puts_everything_back(
    slow: Scene, package: Path, original: dict[str, Any]
) -> None:
    small = ("--num-prompts", "1", "--repeats", "1", "--output-len", "64", "--no-baseline", "--json")
    controller = Controller(slow, "bench", "bench", "--steps", "2,3", *small)
    controller.until(lambda: controller.events().count(("Read the host", "started")) == 2, "the second setting began")
    controller.interrupt()
    done = controller.end()
    assert done.code == 130, done.stderr
    assert "stopping and rolling back" in done.stderr
    assert "TPOT" in done.stderr  # what was measured is shown
    assert picture(package) == original
    assert members(slow) == []


def test_a_rollback_that_was_interrupted_is_ended_by_the_next(
    slow: Scene, package: Path, original: dict[str, Any]
) -> None:
    slow.invoke(*DEPLOY)
    controller = Controller(slow, "rollback", "rollback", "--json")
    controller.until_begun("Roll back")
    controller.interrupt()
    done = controller.end()
    assert done.code == 130, done.stderr
    assert "invoke rollback --host sim" in done.json["error"]["hint"]
    slow.invoke("rollback")
    assert picture(package) == original
    assert members(slow) == []


@pytest.mark.parametrize("command", ["status", "doctor", "logs", "stop", "rollback"])
def test_one_while_a_host_is_connected_to_ends_any_command(
    slow: Scene, sshd: Sshd, real: tuple[str, ...], command: str
) -> None:
    listener = int((sshd.folder / "pid").read_text())
    os.kill(listener, signal.SIGSTOP)
    controller = Controller(slow, command, command, *real)
    controller.until(lambda: connected_to(controller, sshd.port), "it connects")
    began = time.monotonic()
    controller.interrupt()
    done = controller.end()
    assert time.monotonic() - began < CONNECT_S / 2
    assert done.code == done.json["exit_code"] == 130
    assert "stopping; Ctrl-C again leaves at once" in done.stderr
    os.kill(listener, signal.SIGCONT)


def connected_to(controller: Controller, port: int) -> bool:
    """Whether the command has a TCP connection to a port of this machine."""
    table = Path(f"/proc/{controller.process.pid}/net/tcp").read_text()
    return any(line.split()[2] == f"0100007F:{port:04X}" for line in table.splitlines()[1:])


def test_one_while_the_lock_is_waited_for_leaves_its_holder_alone(
    slow: Scene, package: Path, original: dict[str, Any]
) -> None:
    holder = Controller(slow, "deploy", *DEPLOY)
    holder.until_begun("Wait for a token")
    second = Controller(slow, "rollback", "rollback", "--json")
    second.until_said("waiting a moment: another run is at work on this host")
    assert "runs deploy-profiling since" in second.err
    assert re.search(r"\(run \S+-deploy-profiling-\S+, at [A-Z][a-z]", second.err)
    second.interrupt()
    done = second.end()
    assert done.code == 130, done.stderr
    assert holder.end().code == 0
    assert picture(package) != original
    slow.invoke("rollback")


def test_a_run_whose_lock_is_taken_over_touches_nothing_more(
    slow: Scene, package: Path, original: dict[str, Any]
) -> None:
    robbed = Controller(slow, "deploy", *DEPLOY)
    robbed.until_begun("Wait for a token")
    thief = slow.invoke("rollback", "--steal-lock", "--json")
    assert "taking the lock over: another run is at work on this host" in thief.stderr
    done = robbed.end()
    assert done.code == 1, done.stderr
    assert "the lock of sim was taken over: " in done.json["error"]["what"]
    assert thief.json["run"] in done.json["error"]["what"]
    begun = [name for name, state in robbed.events() if state == "started"]
    # A request that is not sent twice ends as a lost link; the rescue then learns at its first word whose the host is.
    assert "Roll back" not in begun, robbed.err
    assert ("Fetch what the log says", "ok") not in robbed.events()
    assert picture(package) == original
    assert members(slow) == []


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    server = Sshd(tmp_path / "sshd")
    yield server
    server.close()


@pytest.fixture
def real(slow: Scene, sshd: Sshd) -> tuple[str, ...]:
    """Options for the host that is reached through sshd."""
    home = slow.folder / ".lab/host/home"
    entry = {
        "address": "127.0.0.1",
        "port": sshd.port,
        "user": getpass.getuser(),
        "key": str(sshd.key),
        "known_hosts": str(sshd.known_hosts),
        "ssh_config": False,
        "connect_timeout": CONNECT_S,
        "python": str(home / "ml-env/bin/python3"),
        "sglang": str(home / "sglang"),
        "log": str(home / "logs/over-sshd.log"),
        "expected_load": 1,
        "server": {
            "port": free_port(),
            "model_path": str(home / "models/target"),
            "speculative": {"draft_model_path": str(home / "models/draft")},
        },
    }
    (slow.folder / "real.yaml").write_text(yaml.safe_dump({"default_host": "real", "hosts": {"real": entry}}))
    return ("--inventory", "real.yaml", "--host", "real", "--json")


@pytest.mark.sshd
@pytest.mark.parametrize("task", ["Patch", "Wait for a token", "Generate"])
def test_the_second_one_leaves_a_frozen_link_before_that_is_given_up(
    slow: Scene, package: Path, original: dict[str, Any], sshd: Sshd, real: tuple[str, ...], task: str
) -> None:
    controller = Controller(slow, "frozen", "deploy-profiling", *real)
    controller.until_begun(task)
    frozen = sshd.sessions()
    listener = int((sshd.folder / "pid").read_text())
    for pid in (listener, *frozen):
        os.kill(pid, signal.SIGSTOP)
    controller.interrupt()
    controller.until_said("Ctrl-C again leaves at once")
    time.sleep(1.0)
    assert controller.process.poll() is None
    controller.interrupt()
    done = controller.end(20)  # the link would be given up after 25 s, and tried again for two minutes
    assert done.code == 130
    assert done.json["hosts"] == {"real": {"ok": False}}
    assert done.json["error"]["hint"] == "invoke rollback --host real --inventory real.yaml"
    assert "hint: invoke rollback --host real --inventory real.yaml" in done.stderr
    for pid in (listener, *frozen):
        os.kill(pid, signal.SIGCONT)
    slow.invoke("rollback", *real)
    assert picture(package) == original
    assert json.loads(slow.invoke("status", *real).stdout)["hosts"]["real"]["members"] == []


@pytest.mark.sshd
def test_a_session_that_stays_frozen_loses_its_lock_to_whoever_takes_it(
    slow: Scene, package: Path, original: dict[str, Any], sshd: Sshd, real: tuple[str, ...]
) -> None:
    controller = Controller(slow, "frozen", "deploy-profiling", *real)
    controller.until_begun("Wait for a token")
    frozen = sshd.sessions()
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    controller.kill()
    refused = slow.invoke("rollback", *real, code=1)
    assert "--steal-lock" in refused.json["error"]["hint"]
    slow.invoke("rollback", "--steal-lock", *real)
    assert picture(package) == original
    for pid in frozen:
        os.kill(pid, signal.SIGCONT)
