"""sweep --spread --resume on hosts in memory: what is kept, what is adopted, what goes to others, what is refused."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fake_host import WORKER, WORKER_PATH, FakeHost

from eaglelab.commands import on_hosts
from eaglelab.idle import Idle
from eaglelab.remote.pipe import LinkLost
from eaglelab.sweep.deal import Deal

SMALL = ("--num-prompts", "2", "--repeats", "2", "--output-len", "32", "--no-probe")
SWEEP = ("sweep", "--host", "a,b", "--spread", "--steps", "1,2,3,5", "--separate-loads", *SMALL)
GPU = {"index": "0", "name": "simulated GPU", "memory.total": "80 GiB", "driver_version": "550.1"}


@pytest.fixture
def two(own: Path, fakes: dict[str, FakeHost]) -> dict[str, FakeHost]:
    for fake in fakes.values():
        fake.facts.update(sglang_version="0.5.12.dev1", gpus=[dict(GPU)], machine=None)
    return fakes


def killed(invoke: Any, fakes: dict[str, FakeHost], *argv: str, polls: int = 6) -> None:
    """The controller dies once the loads that are shared were asked after `polls` times, each host wherever it is then.

    Nobody is left to give a load to another, or to wait for one.
    """
    dead, seen = threading.Event(), []

    def waits(_: object) -> None:
        if dead.is_set():
            raise SystemExit(137)

    with pytest.MonkeyPatch.context() as patch:
        leave = Deal.leave
        patch.setattr(Deal, "leave", lambda deal, name: None if dead.is_set() else leave(deal, name))
        patch.setattr(Idle, "__call__", waits)
        for fake in fakes.values():

            def call(name: str, *data: bytes, ask: Any = fake.call_bytes, **args: Any) -> Any:
                if name == "load_poll" and args["id"].startswith("k"):
                    seen.append(args["id"])
                if dead.is_set() or len(seen) > polls:
                    dead.set()
                    raise SystemExit(137)
                return ask(name, *data, **args)

            patch.setattr(fake, "call_bytes", call)
        invoke(*argv)
    for fake in fakes.values():
        fake.locked = False


def loads(fake: FakeHost) -> list[str]:
    return [load.id.removesuffix("-1").removesuffix("-c1") for load in fake.begun]


def run_of(own: Path) -> Path:
    (found,) = (own / "logs").iterdir()
    return found


def figures(run: Path) -> list[tuple[int | None, bool, int]]:
    found = json.loads((run / "measurements.json").read_text())["measurements"]
    return sorted((each["steps"] or 0, each["profiled"], each["summary"]["requests"]) for each in found)


def placed(run: Path) -> list[int]:
    return sorted(row["steps"] or 0 for row in json.loads((run / "spread.json").read_text())["settings"])


def as_found(fakes: dict[str, FakeHost]) -> bool:
    return all(fake.files[WORKER_PATH] == WORKER and not fake.alive for fake in fakes.values())


def drive(fakes: dict[str, FakeHost], version: str) -> None:
    for fake in fakes.values():
        fake.facts["gpus"] = [{**GPU, "driver_version": version}]


WHOLE = [(steps, False, 2) for steps in (0, 1, 2, 3, 5)]


def test_after_a_kill_in_mid_load_each_load_is_made_once_in_both_tries_together(invoke, own, two) -> None:
    killed(invoke, two, *SWEEP)
    before = {name: loads(fake) for name, fake in two.items()}
    running = {name: fake.begun[-1].id for name, fake in two.items() if fake.alive and not fake.begun[-1].over}
    assert running
    done = invoke("sweep", "--resume", run_of(own).name, "--json")
    assert done.code == 0, done.err
    made = {name: loads(fake) for name, fake in two.items()}
    assert all(made[name][: len(before[name])] == before[name] for name in two)
    assert sorted(load for each in made.values() for load in each) == ["baseline", "baseline", "k1", "k2", "k3", "k5"]
    for load in running.values():
        assert f"going on with the load {load}" in done.err
    assert "holds since" in done.err
    run = run_of(own)
    assert figures(run) == WHOLE
    assert placed(run) == [0, 0, 1, 2, 3, 5]
    assert done.json["spread"]["left"] == []
    assert as_found(two)


def shape(found: Any) -> Any:
    """What is in a document, its figures aside."""
    if isinstance(found, dict):
        return {key: shape(value) for key, value in found.items() if key != "rankings"}  # which is best is chance
    return sorted({json.dumps(shape(each)) for each in found}) if isinstance(found, list) else type(found).__name__


def test_it_ends_as_one_run_would_have_ended(invoke, own, two) -> None:
    killed(invoke, two, *SWEEP)
    resumed = run_of(own)
    assert invoke("sweep", "--resume", "last").code == 0
    for fake in two.values():
        fake.begun.clear()
    assert invoke(*SWEEP).code == 0
    (once,) = set((own / "logs").iterdir()) - {resumed}
    for name in ("measurements.json", "spread.json"):
        documents = [json.loads((run / name).read_text()) for run in (resumed, once)]
        assert shape(documents[0]) == shape(documents[1]), name
    assert figures(resumed) == figures(once)
    assert placed(resumed) == placed(once)


def test_a_host_that_is_gone_gives_its_load_away_and_its_figures_stay(invoke, own, two, monkeypatch) -> None:
    killed(invoke, two, *SWEEP)
    run = run_of(own)
    kept = {path.parent.name for path in (run / "b").glob("k*/done.json")}
    connected = on_hosts.connected

    @contextmanager
    def cut(selection: Any, host: Any, *args: Any, **more: Any) -> Iterator[Any]:
        if host.name == "b":
            raise LinkLost("no route", where="b")
        with connected(selection, host, *args, **more) as context:
            yield context

    monkeypatch.setattr(on_hosts, "connected", cut)
    calls = len(two["b"].calls)
    done = invoke("sweep", "--resume", "last", "--json")
    assert done.json["hosts"]["a"]["ok"] is True, done.err
    assert done.json["hosts"]["b"]["error"]["what"] == "no route", done.err
    assert len(two["b"].calls) == calls
    assert sorted([*kept, *(load for load in loads(two["a"]) if load != "baseline")]) == ["k1", "k2", "k3", "k5"]
    assert figures(run) == WHOLE
    hosts = {(row["host"], row["steps"]) for row in done.json["spread"]["settings"]}
    assert {("a", None), ("b", None)} <= hosts
    assert {f"k{steps}" for host, steps in hosts if host == "b" and steps} == kept


def test_figures_of_a_gone_host_that_cannot_be_read_are_measured_again(invoke, own, two) -> None:
    killed(invoke, two, *SWEEP)
    for path in (run_of(own) / "b").glob("k*/measurements-c1.json"):
        path.write_text("{")
    two["b"].fail["facts"] = LinkLost("no route", where="b")
    done = invoke("sweep", "--resume", "last", "--json")
    assert done.json["hosts"]["a"]["ok"] is True, done.err
    assert {load for load in loads(two["a"]) if load != "baseline"} == {"k1", "k2", "k3", "k5"}
    assert figures(run_of(own)) == WHOLE


def test_a_host_that_comes_back_is_put_back_and_measures_nothing_twice(invoke, own, two) -> None:
    killed(invoke, two, *SWEEP)
    two["b"].fail["facts"] = LinkLost("no route", where="b")
    assert invoke("sweep", "--resume", "last").code != 0
    made = {name: loads(fake) for name, fake in two.items()}
    two["b"].fail.clear()
    done = invoke("sweep", "--resume", "last", "--json")
    assert done.code == 0, done.err
    assert {name: loads(fake) for name, fake in two.items()} == made
    assert figures(run_of(own)) == WHOLE
    assert as_found(two)
    assert "nothing is left to do" in invoke("sweep", "--resume", "last").out


def test_a_host_that_was_done_is_left_as_it_is_found_then_and_not_as_before_the_first_try(invoke, own, two) -> None:
    two["b"].fail["facts"] = LinkLost("no route", where="b")
    run = invoke(*SWEEP, "--json").json["run"]
    assert as_found({"a": two["a"]})
    assert invoke("deploy-profiling", "--host", "a").code == 0
    server, files = two["a"].record, dict(two["a"].files)
    two["b"].fail.clear()
    done = invoke("sweep", "--resume", run, "--json")
    assert done.code == 0, done.err
    assert two["a"].alive
    assert two["a"].record == server
    assert two["a"].files[WORKER_PATH] == files[WORKER_PATH]
    assert as_found({"b": two["b"]})
    assert loads(two["b"]) == ["baseline"]


def test_an_interrupt_rolls_back_and_what_was_measured_is_kept(invoke, own, two, monkeypatch) -> None:
    def stopped(fake: FakeHost, at: str) -> None:
        start = fake.op_load_start

        def op(id: str, **args: Any) -> Any:  # noqa: A002
            if id.startswith(at):
                raise KeyboardInterrupt
            return start(id=id, **args)

        monkeypatch.setattr(fake, "op_load_start", op)

    with monkeypatch.context() as _:
        ops = {name: fake.op_load_start for name, fake in two.items()}
        for fake in two.values():
            stopped(fake, "k3")
        done = invoke(*SWEEP, "--json")
    assert as_found(two)
    assert f"invoke sweep --resume {done.json['run']} goes on with this run" in json.dumps(done.json) + done.err
    for name, fake in two.items():
        fake.op_load_start = ops[name]
    before = [load for fake in two.values() for load in loads(fake)]
    again = invoke("sweep", "--resume", "last", "--json")
    assert again.code == 0, again.err
    after = [load for fake in two.values() for load in loads(fake)]
    assert set(before) - {"baseline"}  # something was measured before it was stopped
    assert sorted(after) == ["baseline", "baseline", "k1", "k2", "k3", "k5"]
    assert figures(run_of(own)) == WHOLE


def test_after_another_driver_everywhere_references_and_settings_are_measured_again_and_that_is_said(
    invoke, own, two
) -> None:
    killed(invoke, two, *SWEEP)
    before = {name: loads(fake) for name, fake in two.items()}
    begun = {path.parent for path in run_of(own).glob("*/*/load-c1.json")}
    assert any(path.name != "baseline" and not (path / "done.json").exists() for path in begun)
    for fake in two.values():
        fake.alive, fake.record = False, None  # a driver is changed with nothing on the GPUs
        fake.begun[-1].stop()
    drive(two, "560.2")
    done = invoke("sweep", "--resume", "last", "--json")
    assert done.code == 0, done.err
    said = " ".join(done.err.split())
    assert "measured again: baseline" in said
    assert "driver_version" not in said
    assert "80 GiB, 550.1, now 1 x simulated GPU, 80 GiB, 560.2" in said
    new = {name: loads(fake)[len(before[name]) :] for name, fake in two.items()}
    assert all(each[0].startswith("baseline") for each in new.values())
    assert figures(run_of(own)) == WHOLE
    assert (run_of(own) / "a" / "set-aside" / "baseline-1" / "measurements-c1.json").is_file()
    assert all((path.parent / "set-aside" / f"{path.name}-1" / "load-c1.json").is_file() for path in begun)
    assert json.loads((run_of(own) / "a" / "identity.json").read_text())["GPUs"].endswith("560.2")


def test_flags_that_changed_in_the_inventory_make_all_be_measured_again(invoke, own, two) -> None:
    killed(invoke, two, *SWEEP)
    path = own / "inventory.yaml"
    path.write_text(path.read_text().replace("server: {", "server: {flags: {mem-fraction-static: 0.8}, "))
    done = invoke("sweep", "--resume", "last", "--json")
    assert done.code == 0, done.err
    assert "server settings: " in done.err
    assert all(sum(load.startswith("baseline") for load in loads(fake)) == 2 for fake in two.values())
    assert figures(run_of(own)) == WHOLE


def test_hosts_that_are_not_equal_any_more_are_refused_with_what_to_type_and_what_runs_is_left(
    invoke, own, two
) -> None:
    killed(invoke, two, *SWEEP)
    run = run_of(own)
    drive({"b": two["b"]}, "560.2")
    before = {name: (loads(fake), fake.alive, dict(fake.files)) for name, fake in two.items()}
    done = invoke("sweep", "--resume", run.name, "--json")
    assert done.code == 1
    error = done.json["hosts"]["a"]["error"]
    assert "these hosts are not equal" in error["what"]
    assert "550.1 on a" in error["what"]
    assert f"make them equal again, then invoke sweep --resume {run.name}" in error["hint"]
    assert "invoke rollback --host a,b" in error["hint"]
    assert {name: (loads(fake), fake.alive, dict(fake.files)) for name, fake in two.items()} == before
    drive({"b": two["b"]}, "550.1")
    assert invoke("sweep", "--resume", run.name).code == 0
    assert figures(run) == WHOLE


def test_another_machine_behind_a_name_is_refused_on_all(invoke, own, two) -> None:
    two["b"].facts["machine"] = "m1"
    killed(invoke, two, *SWEEP)
    two["b"].facts["machine"] = "m2"
    before = {name: loads(fake) for name, fake in two.items()}
    done = invoke("sweep", "--resume", "last", "--json")
    assert done.code == 1
    assert "b is not the host that this run began on" in done.json["hosts"]["a"]["error"]["what"]
    assert "the machine was m1 and is m2" in done.json["hosts"]["b"]["error"]["what"]
    assert {name: loads(fake) for name, fake in two.items()} == before


def test_step_counts_that_could_not_share_a_load_are_not_tried_together_again(invoke, own, two) -> None:
    for fake in two.values():
        fake.load_faults["k1-2-3"] = "server dies"
    steps = ("--steps", "1,2,3", "--env", "NCCL_P2P_LEVEL=NVL,SYS", "--anyway")
    sweep = ("sweep", "--host", "a,b", "--spread", *steps, *SMALL)
    killed(invoke, two, *sweep, polls=10)
    died = sum(load.startswith("k1-2-3") for fake in two.values() for load in loads(fake))
    known = len(list(run_of(own).glob("*/k1-2-3*/instead.json")))  # the kill may come before a death was put down
    assert known
    done = invoke("sweep", "--resume", "last", "--json")
    assert done.code == 0, done.err
    assert sum(load.startswith("k1-2-3") for fake in two.values() for load in loads(fake)) == died + 2 - known
    found = json.loads((run_of(own) / "measurements.json").read_text())["measurements"]
    assert len({(each["steps"], each["variation"]) for each in found}) == 8


def test_another_command_line_is_refused_before_a_host_is_contacted(invoke, own, two) -> None:
    killed(invoke, two, *SWEEP)
    calls = [len(fake.calls) for fake in two.values()]
    for given, what, hint in (
        (["--steps", "2,3"], "--steps 1,2,3,5, not 2,3", "leave --steps out"),
        (["--host", "a"], "--hosts a,b, not a", "leave --hosts out"),
        (["--num-prompts", "9"], "--num-prompts 2, not 9", "leave --num-prompts out"),
        (["--check"], "--check begins a run of its own", "leave one of the two out"),
    ):
        done = invoke("sweep", "--resume", "last", *given, "--json")
        assert done.code == 2
        assert what in done.json["error"]["what"]
        assert hint in done.json["error"]["hint"]
    assert [len(fake.calls) for fake in two.values()] == calls


def test_a_host_that_cannot_even_be_reached_at_the_start_is_not_waited_for(invoke, own, two, monkeypatch) -> None:
    connected = on_hosts.connected

    @contextmanager
    def cut(selection: Any, host: Any, *args: Any, **more: Any) -> Iterator[Any]:
        if host.name == "b":
            raise LinkLost("no route", where="b")
        with connected(selection, host, *args, **more) as context:
            yield context

    monkeypatch.setattr(on_hosts, "connected", cut)
    done = invoke(*SWEEP, "--json")
    assert done.json["hosts"]["a"]["ok"] is True, done.err
    assert loads(two["a"]) == ["baseline", "k1", "k2", "k3", "k5"]


def test_a_report_of_the_run_is_of_all_hosts_together(invoke, own, two) -> None:
    done = invoke(*SWEEP, "--json")
    assert done.code == 0, done.err
    shown = invoke("report", "--run", done.json["run"], "--json")
    assert shown.code == 0, shown.err
    assert list(shown.json["reports"]) == ["a, b"]
    assert "tok/s" in shown.json["reports"]["a, b"]["headline"][0]
    assert all(f"{steps} steps" in shown.err for steps in (2, 3, 5))
    again = invoke("report", "--run", f"{done.json['run']}:a", "--json")
    assert list(again.json["reports"]) == ["a"]
