"""Whole commands on a server of two (once three) nodes, over SSH: done, refused, a node killed, a link cut, interrupted."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from controller import Controller
from fleet import Fleet
from scene import Done
from serverkit import free_port

sys.path.insert(0, str(Path(__file__).parents[1] / "remote"))
from slowlink import SlowLink

NODES = ("one", "two")
DEPLOY = ("deploy-profiling", "--tokens", "64", "--json")
SMALL = ("--num-prompts", "2", "--repeats", "2", "--output-len", "32", "--json")


def one_server(fleet: Fleet, *names: str, ports: dict[str, int] | None = None, **flags: Any) -> None:
    """The inventory with the group `all`, which is one server, whose ranks are `names`."""
    count = len(names)
    server = {"nnodes": count, "tp_size": count, "dist_init_port": free_port(), "flags": flags}
    fleet.write_inventory({"all": {"hosts": list(names), "server": server}}, ports)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    made = Fleet.up(tmp_path_factory.mktemp("project"), (*NODES, "three"), sglang="0.5.12")
    yield made
    made.down()


@pytest.fixture
def fleet(three: Fleet) -> Fleet:
    one_server(three, *NODES)
    return three


@pytest.fixture(scope="module")
def original(three: Fleet) -> dict[str, Any]:
    return three.pictures()


def state_of(fleet: Fleet, name: str) -> dict[str, Any] | None:
    """The host's record of its server."""
    path = Path(fleet.labs[name].home) / ".local/state/eaglelab/server.json"
    return dict(json.loads(path.read_text())) if path.exists() else None


def kill(fleet: Fleet, name: str) -> None:
    record = state_of(fleet, name)
    assert record is not None
    os.kill(record["pid"], signal.SIGKILL)


def as_before(fleet: Fleet, original: dict[str, Any]) -> bool:
    return fleet.pictures() == original and all(state_of(fleet, name) is None for name in fleet.labs)


def died_with(done: Done, name: str) -> str:
    """What is said of the node that died first; the others say that they follow it."""
    assert done.code == 1, done.stderr
    for other, host in done.json["hosts"].items():
        if other != name:
            assert f"ended, because the server died with node {NODES.index(name)}, {name}" in host["error"]["what"]
    assert done.json["error"]["where"] == name
    return str(done.json["hosts"][name]["error"]["what"])


def test_a_server_on_two_nodes_is_patched_profiled_kept_and_put_back(fleet: Fleet, original: dict[str, Any]) -> None:
    done = fleet.scene.invoke(*DEPLOY)
    assert done.json["server"] == {"name": "all", "nodes": ["one", "two"]}
    assert [rank["rank"] for rank in done.json["hosts"]["one"]["profile"]["settings"][0]["ranks"]] == [0, 1]
    for rank, name in enumerate(NODES):
        assert fleet.pictures()[name] != original[name]
        bundle = Path(done.json["bundle"]) / name
        command = json.loads((bundle / "server.json").read_text())["command"]
        assert command[command.index("--node-rank") + 1] == str(rank)
        assert f"rank={rank}/2" in (bundle / "server.log").read_text()
        assert len(list(bundle.glob(f"probe/rank{rank}.*.jsonl"))) == 1
    assert set(fleet.scene.invoke("stop", "--json").json["hosts"]) == set(NODES)
    fleet.scene.invoke("rollback")
    assert as_before(fleet, original)


def test_where_one_node_refuses_the_patch_nothing_is_changed_on_any(fleet: Fleet, original: dict[str, Any]) -> None:
    worker = next(Path(fleet.labs["two"].home).glob("sglang/python/sglang/srt/speculative/eagle_worker_v2.py"))
    before = worker.read_bytes()
    worker.write_bytes(before.replace(b"self.verify(", b"self.verify_all("))
    try:
        done = fleet.scene.invoke(*DEPLOY, code=1)
    finally:
        worker.write_bytes(before)
    assert done.json["error"]["where"].startswith("two")
    assert done.json["hosts"]["one"]["error"]["what"] == "ended, because two failed"
    assert "Back up" not in done.stderr
    assert as_before(fleet, original)


def test_a_node_that_is_killed_while_it_loads_ends_the_load_on_all(fleet: Fleet, original: dict[str, Any]) -> None:
    one_server(fleet, *NODES, **{"load-seconds": 600})
    controller = Controller(fleet.scene, "loading", *DEPLOY)
    controller.until_said("one | Wait for a token")
    controller.until(lambda: "Load weight begin" in log_of(fleet, "two"), "node 1 loads")
    kill(fleet, "two")
    controller.until_said("Roll back")  # which it is given two minutes for: the ten of the load were not waited out
    what = died_with(controller.end(), "two")
    assert what.startswith("node 1 died: the server was killed by signal 9")
    assert "last lines of its log" in what
    assert as_before(fleet, original)


def log_of(fleet: Fleet, name: str) -> str:
    record = state_of(fleet, name)
    if record is None:
        return ""
    with Path(record["log"]).open() as file:
        file.seek(record["log_offset"])
        return file.read()


def test_a_node_that_is_killed_while_rank_0_measures_is_said_and_all_are_put_back(
    fleet: Fleet, original: dict[str, Any]
) -> None:
    words = ("--steps", "2,3", "--separate-loads", "--no-baseline", "--num-prompts", "200", "--json")
    controller = Controller(fleet.scene, "measuring", "sweep", *words)
    controller.until_said("one | Measure")
    kill(fleet, "two")
    controller.until_said("two |   k2 failed: node 1 died: the server was killed by signal 9")
    controller.until_said("Load 2 of 2: k3")
    controller.until(lambda: controller.err.count("one | Measure") == 2, "the next load is measured")
    controller.interrupt()
    done = controller.end()
    assert done.code == 130, done.stderr
    assert "one |   k2 failed: ended, because the server died with node 1, two" in done.stderr
    assert as_before(fleet, original)


def test_a_link_that_is_lost_for_a_while_costs_nothing(three: Fleet, original: dict[str, Any]) -> None:
    with SlowLink(three.labs["two"].port) as way:
        one_server(three, *NODES, ports={"two": way.port}, **{"load-seconds": 4})
        known = Path(three.labs["two"].known_hosts)
        text = known.read_text()
        known.write_text(text + text.replace(str(three.labs["two"].port), str(way.port)))
        controller = Controller(three.scene, "link", *DEPLOY)
        controller.until_said("one | Wait for a token")
        way.refuse()
        way.cut()
        controller.until_said("one |   ready after")
        way.accept()
        done = controller.end()
        assert done.code == 0, done.stderr
        three.scene.invoke("rollback")
    assert as_before(three, original)


def test_ctrl_c_puts_every_node_back(fleet: Fleet, original: dict[str, Any]) -> None:
    one_server(fleet, *NODES, **{"load-seconds": 600})
    controller = Controller(fleet.scene, "interrupted", *DEPLOY)
    controller.until_said("one | Wait for a token")
    controller.interrupt()
    done = controller.end()
    assert done.code == done.json["exit_code"] == 130, done.stderr
    for name in NODES:
        assert f"{name} | Roll back" in done.stderr
    assert as_before(fleet, original)


def test_the_steps_of_one_load_are_chosen_on_all_of_three_nodes_and_measured_once(
    three: Fleet, original: dict[str, Any]
) -> None:
    ranks = ("three", "one", "two")
    one_server(three, *ranks)
    done = three.scene.invoke("sweep", "--steps", "2,3", *SMALL)
    for name in ranks:
        assert done.stderr.count(f"{name:<5} | Start the server") == 2
    measured = {(each["steps"], each["profiled"]) for each in done.json["hosts"]["three"]["measurements"]}
    assert measured == {(None, False), (2, False), (2, True), (3, False), (3, True)}
    assert done.json["hosts"]["one"] == done.json["hosts"]["two"] == {"ok": True}
    for rank, name in enumerate(ranks):
        records = next((Path(done.json["bundle"]) / name / "k2-3/probe").glob(f"rank{rank}.*.jsonl")).read_text()
        assert {"2", "3"} <= set(re.findall(r'"steps": ?(\d+)', records))
    assert as_before(three, original)


def test_a_run_whose_controller_was_killed_goes_on_with_the_server_that_runs(
    fleet: Fleet, original: dict[str, Any]
) -> None:
    controller = Controller(fleet.scene, "killed", *DEPLOY)
    controller.until_said("one | Generate")
    controller.kill()
    done = fleet.scene.invoke("deploy-profiling", "--resume", "last", "--json")
    assert done.stderr.count("no load is needed") == 2
    assert "one | Start" not in done.stderr
    assert len(done.json["hosts"]["one"]["profile"]["settings"][0]["ranks"]) == 2
    fleet.scene.invoke("rollback")
    assert as_before(fleet, original)
