"""The order of parts, what is skipped, what is tried in vain, what the table says of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gpu.validate.__main__ import Session, main, wanted_parts
from gpu.validate.budget import Budget, OutOfTimeError
from gpu.validate.client import ServerError
from gpu.validate.clocks import Unwatched
from gpu.validate.experiments import experiments
from gpu.validate.part import Part, in_order
from gpu.validate.results import Check, Results, table
from gpu.validate.setting import Setting, merged, server_entry
from gpu.validate.site import Site
from gpu.validate.workspace import NoServerError


def nothing(site: Site, budget: Budget) -> dict[str, Any]:
    return {}


def part(name: str, setting: Setting | None = None, **more: Any) -> Part:
    return Part(name, 10.0, nothing, setting, **more)


V1, V2 = Setting(worker="v1"), Setting()


def test_parts_of_one_setting_follow_each_other() -> None:
    given = [part("a", V2), part("b", V1), part("c"), part("d", V2), part("e", V2, alone=True), part("f", V1)]
    assert [each.name for each in in_order(given)] == ["a", "d", "b", "f", "c", "e"]


def test_names_and_patterns_choose_parts_in_their_order() -> None:
    available = experiments(10_000)
    chosen = wanted_parts(available, "sweep-k3-v2,truth-v2-*,tp2-v2-nccl")
    assert [each.name for each in chosen] == [
        "sweep-k3-v2",
        "truth-v2-p0.6-b1",
        "truth-v2-p0.6-b8",
        "truth-v2-p0.8-b1",
        "truth-v2-p0.8-b8",
        "tp2-v2-nccl",
    ]
    with pytest.raises(SystemExit, match="no experiment or part 'truht'"):
        wanted_parts(available, "truht")


@pytest.mark.parametrize("gpus", [2, 8])
def test_every_part_has_a_name_of_its_own(gpus: int) -> None:
    names = [each.name for experiment in experiments(10_000, gpus) for each in experiment.parts]
    assert len(set(names)) == len(names)


def test_settings_say_what_differs() -> None:
    assert Setting(candidates=(1, 2)).name == "v2-p0.6-k1.2"
    assert Setting(worker="v1", steps=5, patched=False, probe=False).name == "v1-p0.6-k5-unpatched"
    assert Setting(probe=False, tp_size=2, sync=True).name == "v2-p0.6-k3-tp2-sync-off"
    rings = Setting(tp_size=4, flags=(("disable-custom-all-reduce", True),), env=(("NCCL_ALGO", "Ring"),))
    assert rings.name == "v2-p0.6-k3-tp4-disable-custom-all-reduce-Ring"


def test_a_setting_becomes_flags_and_variables() -> None:
    entry = server_entry(Setting(worker="v1", candidates=(1, 5), device_timer=True), "/steps.json")
    assert entry["flags"] == {
        "speculative-adaptive": True,
        "speculative-adaptive-config": "/steps.json",
        "enable-metrics": True,
    }
    assert entry["env"] == {
        "SGLANG_ENABLE_SPEC_V2": "0",
        "EAGLE3_STEPS_FROM_RID": "1",
        "SGLANG_ENABLE_METRICS_DEVICE_TIMER": "1",
    }
    assert server_entry(Setting(), "x") == {"tp_size": 1, "speculative": {"num_steps": 3}, "flags": {}, "env": {}}


def test_entries_are_merged_key_by_key() -> None:
    assert merged({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"c": 4}, "e": 5}) == {"a": {"b": 1, "c": 4}, "d": 3, "e": 5}


class FakeMachine:
    patience = 3.0

    def why_not(self, setting: Setting) -> str | None:
        return "not here" if setting.device_timer else None

    def load_seconds(self, setting: Setting) -> float:
        return 50.0

    def watch(self) -> Unwatched:
        return self.watched

    watched = Unwatched()


class FakeSite:
    def __init__(self) -> None:
        self.machine, self.setting, self.said, self.rolled_back = FakeMachine(), V1, list[str](), 0

    def say(self, text: str) -> None:
        self.said.append(text)

    def rollback(self, budget: Budget) -> None:
        assert budget.left > 60  # whatever the session's own says
        self.rolled_back += 1


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(cast("Site", FakeSite()), Results(tmp_path), Budget(55.0, clock=lambda: 0.0))


def failing(error: Exception) -> Callable[[Site, Budget], dict[str, Any]]:
    def run(site: Site, budget: Budget) -> dict[str, Any]:
        raise error

    return run


def test_what_does_not_fit_is_skipped_and_said(session: Session) -> None:
    session.run(part("needs-a-load", V2))
    session.run(part("same-server", V1))
    session.run(part("not-to-be-had", Setting(device_timer=True)))
    assert session.skipped == {
        "needs-a-load": "it needs about 60 s and 55 s were left",
        "not-to-be-had": "not here",
    }
    assert list(session.results.load()) == ["same-server"]


def test_a_part_gets_as_much_time_as_its_machine_has_patience(session: Session) -> None:
    given: list[float] = []

    def run(site: Site, budget: Budget) -> dict[str, Any]:
        given.append(budget.left)
        return {}

    session.run(Part("patient", 10.0, run, V1))
    session.run(Part("at-most-what-is-left", 50.0, run, V1))
    assert given == [30.0, 55.0]


def test_the_clocks_of_a_part_stand_in_its_result(session: Session) -> None:
    watched = Unwatched()
    watched.data = {"samples": 3}
    cast("Any", session.site).machine.watched = watched
    session.run(part("with-clocks", V1))
    assert session.results.load()["with-clocks"]["clocks"] == {"samples": 3}


def test_what_is_there_is_not_run_again(session: Session) -> None:
    session.results.save("done", {"kept": True})
    session.run(Part("done", 10.0, failing(AssertionError("run again"))))
    assert session.results.load()["done"] == {"kept": True}


@pytest.mark.parametrize(
    "error", [ServerError("it answered 500"), OutOfTimeError("its time is over"), KeyError("load")]
)
def test_a_failure_is_kept_and_the_host_put_back(session: Session, error: Exception) -> None:
    session.run(Part("broken", 10.0, failing(error)))
    assert cast("Any", session.site).rolled_back == 1
    assert session.results.failures() == {"broken": f"{type(error).__name__}: {error}"}
    session.run(part("broken"))
    assert session.results.failures() == {}


def test_a_server_that_did_not_come_up_is_not_loaded_for_the_next_part_too(session: Session) -> None:
    session.run(Part("first", 10.0, failing(NoServerError("it died: no room")), V1))
    session.run(Part("second", 10.0, failing(AssertionError("loaded again")), V1))
    session.run(part("of-another-server", None))
    assert session.skipped == {"second": "its server did not come up for first; another call tries again"}
    assert list(session.results.load()) == ["of-another-server"]


def test_a_ctrl_c_puts_the_host_back_and_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done: list[str] = []

    def interrupted(session: Session, part: Part) -> None:
        raise KeyboardInterrupt

    machine = SimpleNamespace(label="a machine", release="0.5.12", close=lambda: done.append("closed"))
    monkeypatch.setattr("gpu.validate.__main__._machine", lambda chosen, workspace: machine)
    monkeypatch.setattr(Site, "begin", lambda *_: None)
    monkeypatch.setattr(Session, "run", interrupted)
    monkeypatch.setattr(Session, "clean", lambda _: done.append("put back"))
    assert main(["--lab", "--out", str(tmp_path), "--only", "faults"]) == 130
    assert done == ["put back", "closed"]
    assert "the same call goes on from there" in capsys.readouterr().out


def test_a_measurement_that_failed_says_nothing_of_its_server(session: Session) -> None:
    session.run(Part("first", 10.0, failing(ServerError("it answered 500")), V1))
    session.run(part("second", V1))
    assert list(session.results.load()) == ["second"]


def test_a_budget_ends_with_the_one_that_it_is_part_of() -> None:
    now = [0.0]
    budget = Budget(100, clock=lambda: now[0])
    part_of_it = budget.part(30)
    now[0] = 25.0
    assert (budget.left, part_of_it.left, part_of_it.limit(60), part_of_it.limit(2)) == (75, 5, 5, 2)
    now[0] = 31.0
    with pytest.raises(OutOfTimeError):
        part_of_it.limit(1)


def test_the_table_names_what_was_missed_and_what_was_not_run() -> None:
    checks = {"truth": [Check("bins", "all", "23 of 24", False), Check("ids", "all", "4 of 4", True)], "cost": []}
    text = table(checks, {"sweep-one-v2": "ServerError: gone"}, {"tp2-v2": "one GPU"}, "Run on: real GPU.")
    assert "| bins | all | 23 of 24 | **no** |" in text
    assert "| ids | all | 4 of 4 | yes |" in text
    assert "- sweep-one-v2: ServerError: gone" in text
    assert "- tp2-v2: one GPU" in text
    assert "## cost" not in text


def test_a_result_is_written_whole(tmp_path: Path) -> None:
    results = Results(tmp_path)
    results.save("a", {"x": 1})
    assert json.loads((tmp_path / "a.json").read_text()) == {"x": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]
