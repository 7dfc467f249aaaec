"""What ended servers left in their places: kept for whoever has not looked yet, and not for ever."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from eaglelab.remote.agent.ended import KEPT_RUNS, KEPT_S, Ended
from eaglelab.remote.agent.journal import Journal
from eaglelab.remote.agent.lock import Lock
from eaglelab.remote.agent.places import Places, heartbeat
from eaglelab.remote.agent.state import StateFolder

NOW = 2_000_000_000.0
DAY = 86400.0
GONE = {"there": False, "alive": False, "unknown": None, "damaged": None}


def beat(_: dict[str, Any]) -> None: ...


@dataclass
class Seen:
    """A server of which nothing is left, but for what `more` says."""

    more: dict[str, Any]

    def status(self) -> dict[str, Any]:
        return {**GONE, **self.more}


@dataclass
class Host:
    """`left` leaves a place behind; `seen` says of a task what is seen of its server."""

    home: Journal
    seen: dict[str, dict[str, Any]]

    def __post_init__(self) -> None:
        self.places = Places(self.home, self.server_of)
        self.ended = Ended(self.places, self.server_of, clock=lambda: NOW)

    def server_of(self, place: StateFolder) -> Seen:
        return Seen(self.seen.get(Path(place.folder).name, {}))

    def left(self, run: str, task: str, days: float, log: str = "what it said\n") -> StateFolder:
        place = self.places.enter(run, task)
        for path in (Path(place.folder, "server.log"), Path(heartbeat(place))):
            path.write_text(log)
            os.utime(path, (NOW - days * DAY, NOW - days * DAY))
        return place

    def due(self) -> list[tuple[str, str]]:
        return [(each["run"], each["task"]) for each in self.ended.all("run-now", beat) if each["due"]]

    def there(self) -> list[str]:
        base = Path(self.home.folder, "tasks")
        return sorted(str(path.relative_to(base)) for path in base.glob("*/*"))


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(Journal(str(tmp_path / "state")), {})


def test_what_a_server_left_is_kept_for_two_weeks(host: Host) -> None:
    host.left("run-1", "k1", days=13.9)
    host.left("run-2", "k1", days=14.1)
    assert host.due() == [("run-2", "k1")]
    first, second = host.ended.all(None, beat)
    assert (first["log"], first["size"]) == (f"{host.home.folder}/tasks/run-1/k1/server.log", 13)
    assert second["quiet"] == pytest.approx(14.1 * DAY)
    assert KEPT_S == 14 * DAY


def test_of_more_runs_only_those_of_the_last_few_are_kept(host: Host) -> None:
    for number in range(KEPT_RUNS + 2):
        host.left(f"run-{number}", "k1", days=number / 10)
        host.left(f"run-{number}", "k2", days=number / 10 + 0.05)
    assert host.due() == [(f"run-{number}", task) for number in (KEPT_RUNS, KEPT_RUNS + 1) for task in ("k1", "k2")]


def test_the_heartbeat_of_who_worked_there_last_counts_as_the_log_does(host: Host) -> None:
    place = host.left("run-1", "k1", days=20)
    os.utime(heartbeat(place), (NOW - DAY, NOW - DAY))
    assert host.due() == []


def test_only_what_is_asked_for_and_due_is_removed_and_the_journal_says_so(host: Host) -> None:
    for run, days in (("run-1", 15.0), ("run-2", 16.0), ("run-3", 1.0)):
        host.left(run, "k1", days)
    wanted = [["run-1", "k1"], ["run-3", "k1"], ["run-9", "k1"]]
    assert host.ended.remove("run-now", wanted, beat) == [["run-1", "k1"]]
    assert host.there() == ["run-2/k1", "run-3/k1"]
    assert not Path(host.home.folder, "tasks/run-1").exists()
    noted = json.loads(Path(host.home.folder, "journal.jsonl").read_text().splitlines()[-1])
    assert (noted["op"], noted["run"], noted["tasks"]) == ("remove-tasks", "run-now", ["run-1/k1"])


@pytest.mark.parametrize(
    "seen",
    [
        {"there": True, "alive": True},
        {"there": True, "alive": False},
        {"unknown": "slurmctld is away", "there": True},
        {"damaged": "not a JSON object"},
    ],
)
def test_one_whose_server_may_be_there_is_not_ended_however_long_it_says_nothing(
    host: Host, seen: dict[str, Any]
) -> None:
    host.left("run-1", "k1", days=400)
    host.seen["k1"] = seen
    assert host.ended.all(None, beat) == []
    assert host.ended.remove("run-now", [["run-1", "k1"]], beat) == []
    assert host.there() == ["run-1/k1"]


def test_one_whose_record_was_damaged_is_left_to_a_person(host: Host) -> None:
    Path(host.left("run-1", "k1", days=400).folder, "server.json.damaged").write_text("half of")
    assert host.ended.all(None, beat) == []


def test_one_that_somebody_is_in_is_not_ended(host: Host) -> None:
    place = host.left("run-1", "k1", days=400)
    lock = Lock(place)
    lock.take({"run": "run-1"})
    assert host.ended.all(None, beat) == []
    lock.let_go()
    assert host.due() == [("run-1", "k1")]


def test_the_places_of_a_run_that_is_taken_up_again_are_its_own_business(host: Host) -> None:
    host.left("run-1", "k1", days=400)
    assert host.ended.all("run-1", beat) == []
    assert host.ended.remove("run-1", [["run-1", "k1"]], beat) == []
    assert host.there() == ["run-1/k1"]
