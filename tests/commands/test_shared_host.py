"""Several operators on one host in memory: what a run only found stays, and whose server a load would end is said."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from fake_host import PROBE_PATH, WORKER, WORKER_PATH, FakeHost, refusal
from test_resume import SMALL, killed, run_of

from eaglelab.actions import owner, serve


def there(fake: FakeHost) -> Any:
    """What a colleague would miss."""
    return copy.deepcopy((fake.files[WORKER_PATH], fake.files[PROBE_PATH], fake.record, fake.alive))


@pytest.fixture
def as_operator(monkeypatch: pytest.MonkeyPatch):
    def become(name: str) -> None:
        for module in (serve, owner):
            monkeypatch.setattr(module, "operator", lambda: name)

    become("me@here")
    return become


@pytest.fixture
def anna(invoke, own, fakes, as_operator) -> FakeHost:
    """Host `a`, where Anna deployed and her server runs."""
    as_operator("anna@laptop")
    assert invoke("deploy-profiling").code == 0
    as_operator("me@here")
    return fakes["a"]


@pytest.mark.parametrize("argv", [["deploy-profiling"], ["bench", "--steps", "2", *SMALL]])
@pytest.mark.parametrize("failure", [refusal("broken", "the stream broke off"), KeyboardInterrupt()])
def test_a_failed_run_leaves_the_server_and_the_patch_that_it_found(invoke, anna, argv, failure) -> None:
    before, run = there(anna), anna.record["run"]
    anna.fail["generate"] = failure
    done = invoke(*argv)
    assert done.code == (130 if isinstance(failure, KeyboardInterrupt) else 1), done.err
    assert there(anna) == before
    assert f"left as found: the server of run {run} and its patch were there before" in done.out


def test_a_bench_that_ended_the_server_it_found_and_then_failed_starts_that_one_again(invoke, own, fakes) -> None:
    fake = fakes["a"]
    invoke("deploy-profiling")
    before = fake.record["fingerprint"]
    fake.healths = [{"status": 200}]
    fake.canary = b"nothing\n"
    assert invoke("bench", "--steps", "3", *SMALL).code == 1
    assert fake.alive
    assert (fake.record["steps"], fake.record["fingerprint"]) == (2, before)


def test_a_resumed_run_leaves_the_server_that_another_run_started_meanwhile(invoke, own, fakes, monkeypatch) -> None:
    fake = fakes["a"]
    killed(invoke, fake, monkeypatch, "stop", "deploy-profiling")  # patched, no server yet
    run = run_of(own)
    assert invoke("deploy-profiling").code == 0
    before = there(fake)
    fake.fail["generate"] = refusal("broken", "the stream broke off")
    done = invoke("deploy-profiling", "--resume", run)
    assert done.code == 1
    assert there(fake) == before
    assert "left as found" in done.out


def test_a_resumed_run_ends_the_server_that_its_first_try_started(invoke, own, fakes, monkeypatch) -> None:
    fake = fakes["a"]
    killed(invoke, fake, monkeypatch, "generate", "deploy-profiling")
    fake.fail["generate"] = refusal("broken", "the stream broke off")
    assert invoke("deploy-profiling", "--resume", run_of(own)).code == 1
    assert fake.alive is False
    assert fake.files[WORKER_PATH] == WORKER


def test_a_resumed_run_takes_out_the_patch_of_its_first_try(invoke, own, fakes, monkeypatch) -> None:
    fake = fakes["a"]
    killed(invoke, fake, monkeypatch, "stop", "deploy-profiling")
    fake.fail["stop"] = refusal("not-stopped", "they do not end")
    assert invoke("deploy-profiling", "--resume", run_of(own)).code == 3
    assert fake.files[WORKER_PATH] == WORKER


def test_what_this_run_patched_goes_out_and_the_server_that_it_did_not_start_stays(invoke, own, fakes) -> None:
    fake = fakes["a"]
    invoke("deploy-profiling")
    run = fake.record["run"]
    fake.files[WORKER_PATH] = WORKER  # somebody put the original back by hand
    fake.fail["tail"] = refusal("broken", "the stream broke off")  # when the found server's log is marked
    done = invoke("deploy-profiling")
    assert done.code == 1
    assert fake.files[WORKER_PATH] == WORKER
    assert fake.alive
    assert f"left as found: the server of run {run} was there before" in done.out


def test_a_server_that_another_operator_started_is_named_and_not_ended(invoke, anna) -> None:
    before, run = there(anna), anna.record["run"]
    for argv in (["deploy-profiling", "--steps", "3"], ["bench", "--steps", "3", *SMALL]):
        done = invoke(*argv, "--json")
        assert done.code == 1, done.err
        error = done.json["error"]
        for word in ("anna@laptop", f"run {run}", "2 steps", "since "):
            assert word in error["what"]
        assert "--takeover" in error["hint"]
        assert there(anna) == before
    assert anna.ops().count("backup") == 1


def test_a_check_says_too_that_another_operator_started_the_server(invoke, anna) -> None:
    done = invoke("deploy-profiling", "--steps", "3", "--check")
    assert done.code == 1
    assert "anna@laptop" in done.err


def test_with_takeover_it_is_ended_and_said_whose_it_was(invoke, anna) -> None:
    run = anna.record["run"]
    done = invoke("deploy-profiling", "--steps", "3", "--takeover")
    assert done.code == 0, done.err
    assert f"ending the server of run {run}, started by anna@laptop" in done.out
    assert anna.record["by"] == "me@here"


def test_ones_own_server_is_ended_and_named(invoke, own, fakes, as_operator) -> None:
    invoke("deploy-profiling")
    run = fakes["a"].record["run"]
    done = invoke("deploy-profiling", "--steps", "3")
    assert done.code == 0, done.err
    assert f"ending the server of run {run}, started by me@here" in done.out


@pytest.mark.parametrize("command", ["stop", "rollback"])
def test_stop_and_rollback_end_anybodys_server_and_say_whose_it_was(invoke, anna, command) -> None:
    run = anna.record["run"]
    done = invoke(command)
    assert done.code == 0, done.err
    assert anna.alive is False
    assert f"ending the server of run {run}, started by anna@laptop" in done.out


def test_another_operators_server_of_the_wanted_setting_is_used(invoke, anna) -> None:
    assert invoke("deploy-profiling").code == 0
    assert anna.ops().count("start") == 1


def test_a_server_whose_operator_is_not_known_is_ended_as_before(invoke, anna) -> None:
    del anna.record["by"]
    assert invoke("deploy-profiling", "--steps", "3").code == 0


@pytest.mark.parametrize("check", [[], ["--check"]])
def test_a_rollback_that_knows_nothing_and_sees_nothing_says_so(invoke, own: Path, fakes, check) -> None:
    fakes["a"].fail["facts"] = refusal("no-sglang", "there is no SGLang for ~/ml-env/bin/python3")
    done = invoke("rollback", *check, "--json")
    assert done.code == 1
    error = done.json["error"]
    assert error["what"].startswith("nothing is on record here for this user, and the workers could not be looked at: ")
    assert "no SGLang" in error["what"]
    assert "inventory.yaml" in error["hint"]
    assert "nothing to do" not in done.err
    status = invoke("status")
    assert "nothing is on record here for this user, and the workers could not be looked at: " in status.out
