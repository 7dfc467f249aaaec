"""bench, and the commands that only look, on hosts in memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_host import LOG, WORKER, WORKER_PATH, refusal

from eaglelab.errors import LockLost
from eaglelab.remote.pipe import LinkLost

SMALL = ("--num-prompts", "2", "--repeats", "2", "--output-len", "32")
FEW = (*SMALL, "--no-baseline")


def test_bench_measures_each_step_count_and_leaves_the_host_as_it_was(invoke, own, fakes) -> None:
    done = invoke("bench", "--steps", "2,3", *SMALL, "--json")
    assert done.code == 0, done.err
    measured = done.json["hosts"]["a"]["measurements"]
    assert [(each["steps"], each["profiled"]) for each in measured] == [
        (None, False),
        *((steps, profiled) for steps in (2, 3) for profiled in (False, True)),
    ]
    assert measured[0]["setting"] is None
    assert measured[2]["setting"]["cycles"]["kept"] == 32
    assert fakes["a"].ops().count("start") == 3
    assert fakes["a"].files[WORKER_PATH] == WORKER
    assert fakes["a"].alive is False
    bundle = own / "logs" / done.json["run"]
    for name in ("baseline", "k2", "k3"):
        assert (bundle / name / "measurements-c1.json").exists()
        assert (bundle / name / "requests-c1.jsonl").exists()
        assert ("--speculative-num-steps" in (bundle / name / "server.json").read_text()) is (name != "baseline")
    assert "probe" in done.err


def test_bench_keeps_the_last_server_where_it_is_asked_to(invoke, own, fakes) -> None:
    done = invoke("bench", "--steps", "2", "--keep", *SMALL)
    assert done.code == 0
    assert fakes["a"].alive
    assert "--keep" in done.out


def test_bench_after_deploy_leaves_the_server_that_ran_before(invoke, own, fakes) -> None:
    invoke("deploy-profiling")
    run = fakes["a"].record["run"]
    assert invoke("bench", "--steps", "2", *FEW).code == 0
    assert fakes["a"].record["run"] == run  # the same setting: no load at all
    assert invoke("bench", "--steps", "3", *FEW).code == 0
    assert fakes["a"].alive
    assert fakes["a"].record["steps"] == 2
    assert fakes["a"].record["profile"] is True


@pytest.mark.parametrize("error", [LinkLost("gone", where="a"), KeyboardInterrupt()])
def test_bench_that_cannot_put_the_host_back_exits_3_with_the_command_that_does(invoke, own, fakes, error) -> None:
    fakes["a"].fail["rollback"] = error
    done = invoke("bench", "--steps", "2", *FEW, "--json")
    assert done.code == 3
    assert done.json["error"]["hint"].split(";")[0] == "invoke rollback --host a"
    assert "all was measured" in done.err


def test_bench_that_fails_leaves_the_host_original(invoke, own, fakes) -> None:
    fakes["a"].fail["load_start"] = refusal("load-failed", "the load did not begin")
    done = invoke("bench", "--steps", "2,3", "--json")
    assert done.code == 1
    assert "3 of 3 settings failed: the baseline, 2 steps, 3 steps; the host is as it was" in done.json["error"]["what"]
    assert fakes["a"].files[WORKER_PATH] == WORKER
    assert fakes["a"].alive is False


def test_bench_that_is_interrupted_while_it_leaves_a_host_puts_everything_back(invoke, own, fakes) -> None:
    invoke("deploy-profiling")
    fake, starts = fakes["a"], []
    start = fake.op_start

    def second_time(**args):
        starts.append(args)
        if len(starts) == 2:  # the server that ran before
            raise KeyboardInterrupt
        return start(**args)

    fake.op_start = second_time
    done = invoke("bench", "--steps", "3", *FEW, "--json")
    assert done.code == 130
    assert done.json["error"]["what"] == "interrupted"
    assert fake.files[WORKER_PATH] == WORKER
    assert fake.alive is False


def test_a_bench_whose_lock_was_taken_over_touches_nothing_more(invoke, own, fakes) -> None:
    fake = fakes["a"]
    fake.fail["load_poll"] = LockLost("the lock of a was taken over: eve@box runs bench", where="a")
    done = invoke("bench", "--steps", "2", "--json")
    assert done.code == 1
    assert "eve@box" in done.json["error"]["what"]
    assert fake.ops()[-1] == "load_poll"


@pytest.mark.parametrize(("error", "code"), [(refusal("no-python", "it is gone"), 1), (KeyboardInterrupt(), 130)])
def test_bench_that_fails_between_two_settings_shows_the_first_and_puts_the_host_back(
    invoke, own, fakes, error, code
) -> None:
    fake, looks = fakes["a"], []
    facts = fake.op_facts

    def second_time(**args):
        looks.append(args)
        if len(looks) == 3:  # before the first setting, at the first, at the second
            raise error
        return facts(**args)

    fake.op_facts = second_time
    fake.facts["sglang_version"] = "0.5.9.dev1"
    done = invoke("bench", "--steps", "2,3", *FEW)
    assert done.code == code
    assert "TPOT" in done.out
    assert fake.files[WORKER_PATH] == WORKER
    assert fake.alive is False


def test_status_does_not_call_a_patched_worker_original_when_nothing_is_on_record(invoke, own, fakes) -> None:
    invoke("deploy-profiling")
    fakes["a"].manifest = None
    assert f"patched, and nothing is on record of it for this user: {WORKER_PATH}" in invoke("status").out


def test_status_shows_what_is_patched_and_what_runs(invoke, own, fakes) -> None:
    assert "every file is original" in invoke("status").out
    invoke("deploy-profiling")
    done = invoke("status")
    assert "server: pid 4711, 2 steps, probe on, run " in done.out
    assert "    eagle_worker.py: patched\n" in done.out
    fakes["a"].alive, fakes["a"].exit = False, {"code": None, "signal": 9}
    assert "server: ended by signal 9, run " in invoke("status").out


def test_status_shows_who_holds_the_lock_and_at_what(invoke, own, fakes) -> None:
    holder = {"by": "eve@box", "command": "bench", "since": "noon", "run": "r1", "doing": "Measure", "pid": 7}
    fakes["a"].lock_holder = holder
    done = invoke("status", "--json")
    assert "  locked: eve@box runs bench since noon (run r1, at Measure)\n" in done.err
    assert done.json["hosts"]["a"]["lock"] == holder


@pytest.mark.parametrize("command", ["deploy-profiling", "bench", "rollback", "stop"])
def test_a_lock_is_taken_over_where_that_is_asked_for(invoke, own, fakes, command: str) -> None:
    assert invoke(command).code == 0
    assert fakes["a"].stolen is False
    assert invoke(command, "--steal-lock").code == 0
    assert fakes["a"].stolen is True


def test_looking_leaves_no_folder_behind(invoke, own, fakes) -> None:
    assert invoke("status", "--json").json["bundle"] is None
    assert not (own / "logs").exists()


def test_logs_shows_the_end_of_our_servers_log(invoke, own, fakes) -> None:
    fakes["a"].boot = b"".join(b"line %d\n" % n for n in range(50))
    invoke("deploy-profiling")
    done = invoke("logs", "--lines", "2", "--json")
    assert done.json["hosts"]["a"]["bytes"] > 300
    assert "an older run" not in Path(done.json["hosts"]["a"]["log"]).read_text()
    assert len(done.err.splitlines()) == 3  # and where the whole is


def test_of_a_huge_log_that_is_not_ours_only_the_end_comes_home(invoke, own, fakes) -> None:
    fakes["a"].files[LOG] = b"x" * 99 + b"\n" + b"y" * (5 << 20)
    assert invoke("logs", "--lines", "0", "--json").json["hosts"]["a"]["bytes"] == 4 << 20


def test_a_log_that_is_not_there_is_said(invoke, own, fakes) -> None:
    del fakes["a"].files[LOG]
    assert f"nothing to read in {LOG}" in invoke("logs").out


def test_stop_ends_the_server_and_leaves_the_patch(invoke, own, fakes) -> None:
    invoke("deploy-profiling")
    assert invoke("stop").code == 0
    assert fakes["a"].alive is False
    assert fakes["a"].files[WORKER_PATH] != WORKER


def test_report_shows_the_newest_run_and_a_named_one_again(invoke, own, fakes) -> None:
    run = invoke("deploy-profiling", "--json").json["run"]
    newest, named = invoke("report", "--json"), invoke("report", "--run", run, "--json")
    assert newest.json["run"] == named.json["run"] == run
    assert newest.json["profiles"] == named.json["profiles"]
    assert newest.json["profiles"]["."]["simulated"] == "simulated GPU"
