"""Whole commands on three labs at once, over SSH: done, failed on one, interrupted."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from controller import Controller
from fleet import Fleet

NAMES = ("one", "two", "three")
DEPLOY = ("deploy-profiling", "--tokens", "64", "--json")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    made = Fleet.up(tmp_path_factory.mktemp("project"), NAMES)
    yield made
    made.down()


@pytest.fixture(scope="module")
def original(fleet: Fleet) -> dict[str, Any]:
    return fleet.pictures()


def left_of(fleet: Fleet) -> dict[str, int]:
    """Processes of our servers, by host."""
    found = fleet.scene.invoke("status", "--json").json["hosts"]
    return {name: len(host["members"]) for name, host in found.items()}


def test_all_hosts_are_deployed_at_once_and_put_back_at_once(fleet: Fleet, original: dict[str, Any]) -> None:
    done = fleet.scene.invoke(*DEPLOY)
    assert {name: host["ok"] for name, host in done.json["hosts"].items()} == dict.fromkeys(NAMES, True)
    for name in NAMES:
        assert done.json["hosts"][name]["profile"]["simulated"]
        assert (Path(done.json["bundle"]) / name / "profile.json").exists()
        assert fleet.pictures()[name] != original[name]
    assert min(left_of(fleet).values()) > 0
    fleet.scene.invoke("rollback")
    assert fleet.pictures() == original
    assert left_of(fleet) == dict.fromkeys(NAMES, 0)


def test_a_host_that_fails_has_all_put_back_where_that_is_asked_for(fleet: Fleet, original: dict[str, Any]) -> None:
    draft = Path(fleet.labs["two"].home) / "models/draft"
    draft.rename(draft.with_name("away"))
    done = fleet.scene.invoke(*DEPLOY, "--on-failure", "rollback", code=1)
    draft.with_name("away").rename(draft)
    assert not any(host["ok"] for host in done.json["hosts"].values())
    assert "draft_model_path: there is no" in done.json["hosts"]["two"]["error"]["what"]
    assert fleet.pictures() == original
    assert left_of(fleet) == dict.fromkeys(NAMES, 0)


def test_ctrl_c_puts_every_host_back(fleet: Fleet, original: dict[str, Any]) -> None:
    controller = Controller(fleet.scene, "deploy", *DEPLOY)
    for name in NAMES:
        controller.until(lambda name=name: f"{name:<5} | Start the server" in controller.err, f"{name} starts a server")
    controller.interrupt()
    done = controller.end()
    assert done.code == done.json["exit_code"] == 130, done.stderr
    assert "stopping and rolling back; Ctrl-C again leaves at once" in done.stderr
    for name in NAMES:
        assert f"{name:<5} | Roll back" in done.stderr
    assert fleet.pictures() == original
    assert left_of(fleet) == dict.fromkeys(NAMES, 0)


def test_the_second_ctrl_c_leaves_at_once_and_says_what_mends_each_host(fleet: Fleet, original: dict[str, Any]) -> None:
    frozen = fleet.labs["one"].pid
    controller = Controller(fleet.scene, "deploy", *DEPLOY)
    for name in NAMES:
        controller.until(lambda name=name: f"{name:<5} | Start the server" in controller.err, f"{name} starts a server")
    os.kill(frozen, signal.SIGSTOP)
    try:
        controller.interrupt()
        for name in NAMES[1:]:
            controller.until(lambda name=name: f"{name:<5} | error: " in controller.err, f"{name} is put back")
        controller.interrupt()
        done = controller.end(20)  # the frozen link would be given up after 25 s
    finally:
        os.kill(frozen, signal.SIGCONT)
    assert done.code == 130
    assert "invoke rollback --host one" in done.json["error"]["hint"].split("; ")
    fleet.scene.invoke("rollback", "--steal-lock")
    assert fleet.pictures() == original


def test_a_sweep_is_spread_over_the_hosts_and_leaves_them_as_they_were(fleet: Fleet, original: dict[str, Any]) -> None:
    small = ("--num-prompts", "2", "--repeats", "2", "--output-len", "32", "--no-probe")
    done = fleet.scene.invoke("sweep", "--spread", "--steps", "2,3", *small, "--json")
    rows = {(row["host"], row["steps"]) for row in done.json["spread"]["settings"]}
    assert {host for host, steps in rows if steps is None} == set(NAMES)
    assert sorted(steps for _, steps in rows if steps is not None) == [2, 3]
    assert fleet.pictures() == original
    assert left_of(fleet) == dict.fromkeys(NAMES, 0)
