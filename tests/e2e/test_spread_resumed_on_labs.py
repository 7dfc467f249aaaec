"""A sweep spread over labs whose controller is killed in mid-load, and `--resume`: every load once, also with a host dead."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from controller import Controller
from fleet import Fleet

NAMES = ("one", "two")
SWEEP = ("sweep", "--spread", "--steps", "2,3", "--num-prompts", "4", "--repeats", "2", "--output-len", "64")
MORE = ("--no-probe", "--json")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    made = Fleet.up(tmp_path_factory.mktemp("project"), NAMES)
    yield made
    made.down()


def started(fleet: Fleet, name: str) -> int:
    """How many servers a host has ever been asked to start."""
    journal = Path(fleet.labs[name].home) / ".local/state/eaglelab/journal.jsonl"
    lines = journal.read_text().splitlines() if journal.exists() else []
    return [json.loads(line)["op"] for line in lines].count("start")


def done_loads(run: Path) -> dict[str, set[str]]:
    return {name: {path.parent.name for path in (run / name).glob("*/done.json")} for name in NAMES}


def at_load(run: Path, name: str) -> str | None:
    path = run / name / "at-load.json"
    return json.loads(path.read_text())["load"] if path.exists() else None


def under_way(fleet: Fleet, run: Path, name: str) -> bool:
    """Whether a host sends the requests of a load of its share."""
    load = at_load(run, name)
    home = Path(fleet.labs[name].home) / ".local/state/eaglelab"
    return load is not None and any(home.rglob(f"{load}-c1.progress.json"))


def killed_in_mid_load(fleet: Fleet) -> Path:
    """The run, killed while both hosts are in the middle of a load of their share."""
    logs = fleet.scene.folder / "logs"
    controller = Controller(fleet.scene, "sweep", *SWEEP, *MORE)
    found: list[Path] = []

    def all_under_way() -> bool:
        found[:] = list(logs.glob("*-sweep-*"))
        return bool(found) and all(under_way(fleet, found[0], name) for name in NAMES)

    controller.until(all_under_way, "both are in the middle of a load of their share")
    controller.kill()
    return found[0]


def steps_of(run: Path) -> list[int]:
    found: list[dict[str, Any]] = json.loads((run / "measurements.json").read_text())["measurements"]
    return sorted(each["steps"] or 0 for each in found)


def placed(run: Path) -> list[tuple[str, int | None]]:
    return [(row["host"], row["steps"]) for row in json.loads((run / "spread.json").read_text())["settings"]]


def members(fleet: Fleet) -> list[int]:
    return [len(host["members"]) for host in fleet.scene.invoke("status", "--json").json["hosts"].values()]


def test_a_killed_sweep_goes_on_without_a_host_that_is_dead_by_then_which_is_put_back_later(fleet: Fleet) -> None:
    original = fleet.pictures()
    run = killed_in_mid_load(fleet)
    mine, given = at_load(run, "one"), at_load(run, "two")
    assert list(done_loads(run).values()) == [{"baseline"}, {"baseline"}]
    written = {path: path.stat().st_mtime_ns for path in run.glob("*/baseline/measurements-c1.json")}
    assert fleet.pictures() != original

    frozen = fleet.labs["two"].pid
    os.kill(frozen, signal.SIGSTOP)
    try:
        done = fleet.scene.invoke("sweep", "--resume", run.name, "--json", code=None)
    finally:
        os.kill(frozen, signal.SIGCONT)
    assert done.code != 0
    assert [host["ok"] for host in done.json["hosts"].values()] == [True, False], done.stderr
    assert f"going on with the load {mine}-c1" in done.stderr
    assert {path: path.stat().st_mtime_ns for path in written} == written  # neither reference is measured again
    assert {name: started(fleet, name) for name in NAMES} == {"one": 3, "two": 2}  # the load of two is made on one
    assert steps_of(run) == [0, 2, 3]
    assert sorted(placed(run), key=str) == [("one", 2), ("one", 3), ("one", None), ("two", None)]
    assert fleet.pictures()["two"] != original["two"]

    again = fleet.scene.invoke("sweep", "--resume", run.name, "--json")
    assert again.json["spread"]["left"] == []
    assert {name: started(fleet, name) for name in NAMES} == {"one": 3, "two": 2}
    assert steps_of(run) == [0, 2, 3]
    assert given in done_loads(run)["one"]
    assert (run / "report.html").is_file()
    assert fleet.pictures() == original
    assert members(fleet) == [0, 0]
