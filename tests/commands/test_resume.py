"""--resume on hosts in memory: what is done again, what holds, and what is refused."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fake_host import WORKER, WORKER_PATH, FakeHost, refusal

from eaglelab.commands import on_hosts
from eaglelab.remote.pipe import LinkLost

SMALL = ("--num-prompts", "2", "--repeats", "2", "--output-len", "32", "--no-baseline")


def states(own: Path, run: str) -> list[tuple[str, str]]:
    lines = (own / "logs" / run / "events.jsonl").read_text().splitlines()
    return [(event["action"], event["state"]) for event in map(json.loads, lines) if event["state"] != "started"]


def run_of(own: Path) -> str:
    (found,) = [path.name for path in (own / "logs").iterdir()]
    return found


def kill_at(fake: FakeHost, op: str, monkeypatch: pytest.MonkeyPatch, after: int = 0) -> None:
    """The controller dies when it asks for `op` for the `after`-th time more: nothing is put back."""
    ask, seen = fake.call_bytes, []

    def call(name: str, *data: bytes, **args: Any) -> Any:
        if name == op:
            seen.append(name)
            if len(seen) > after:
                raise SystemExit(137)
        return ask(name, *data, **args)

    monkeypatch.setattr(fake, "call_bytes", call)


def killed(invoke, fake: FakeHost, monkeypatch: pytest.MonkeyPatch, op: str, *argv: str, after: int = 0) -> None:
    with monkeypatch.context() as patch:
        kill_at(fake, op, patch, after)
        assert invoke(*argv).code == 137
    fake.locked = False


def requests(fake: FakeHost) -> list[str]:
    return [args["body"]["rid"] for op, args in fake.calls if op == "generate"]


@pytest.mark.parametrize("op", ["apply", "stop", "start", "poll", "generate", "list"])
def test_a_deploy_that_was_killed_goes_on_with_one_load_in_all(invoke, own, fakes, monkeypatch, op: str) -> None:
    fake = fakes["a"]
    after = {"list": 3}.get(op, 0)  # the last of them: the probe's files, when they are fetched
    killed(invoke, fake, monkeypatch, op, "deploy-profiling", "--tokens", "64", after=after)
    run = run_of(own)
    done = invoke("deploy-profiling", "--resume", run, "--json")
    assert done.code == 0, done.err
    assert done.json["run"] == run
    assert fake.ops().count("start") == 1
    assert done.json["hosts"]["a"]["profile"]["settings"]
    assert done.json["hosts"]["a"]["generated"]["tokens"] == 64
    log = (own / "logs" / run / "server.log").read_text()
    assert "Load weight begin" in log  # from where this run's server began, not from where it was taken up again


def test_what_holds_is_said_and_not_done_again(invoke, own, fakes, monkeypatch) -> None:
    fake = fakes["a"]
    killed(invoke, fake, monkeypatch, "tail", "deploy-profiling", after=1)  # when the log is searched for the proof
    asked = len(requests(fake))
    done = invoke("deploy-profiling", "--resume", "last")
    assert done.code == 0, done.err
    assert ": Generate\n" in done.out
    assert "holds since " in done.out
    assert ("generate", "held") in states(own, run_of(own))
    assert len(requests(fake)) == asked


def test_another_server_process_makes_the_request_be_sent_again(invoke, own, fakes, monkeypatch) -> None:
    fake = fakes["a"]
    killed(invoke, fake, monkeypatch, "tail", "deploy-profiling", after=1)
    asked = len(requests(fake))
    fake.record["pid_start"] += 1
    assert invoke("deploy-profiling", "--resume", "last").code == 0
    assert ("generate", "held") not in states(own, run_of(own))
    again = [rid for rid in requests(fake)[asked:] if rid.startswith("eaglelab-")]
    assert again == [f"eaglelab-{run_of(own)}-1"]  # the server may be at work on the first one still


def test_a_run_that_was_rolled_back_begins_with_its_load_again(invoke, own, fakes) -> None:
    fake = fakes["a"]
    fake.fail["generate"] = refusal("broken", "the stream broke off")
    done = invoke("deploy-profiling", "--json")
    assert done.code == 1
    run = done.json["run"]
    assert f"invoke deploy-profiling --resume {run} goes on with this run" in done.json["error"]["hint"]
    assert fake.files[WORKER_PATH] == WORKER
    fake.fail.clear()
    assert invoke("deploy-profiling", "--resume", run[-4:]).code == 0
    assert fake.ops().count("start") == 2
    assert fake.alive


def test_a_finished_run_has_nothing_left_to_do(invoke, own, fakes) -> None:
    run = invoke("deploy-profiling", "--json").json["run"]
    calls = len(fakes["a"].calls)
    done = invoke("deploy-profiling", "--resume", run, "--json")
    assert done.code == 0
    assert "nothing is left to do" in done.err
    assert done.json["hosts"]["a"]["profile"]["settings"]
    assert len(fakes["a"].calls) == calls


def test_only_the_hosts_that_are_not_done_are_worked_on(invoke, own, fakes) -> None:
    fakes["b"].fail["facts"] = refusal("no-sglang", "no SGLang")
    run = invoke("deploy-profiling", "--host", "both", "--json").json["run"]
    calls = len(fakes["a"].calls)
    fakes["b"].fail.clear()
    done = invoke("deploy-profiling", "--resume", run, "--json")
    assert done.code == 0, done.err
    assert [found["ok"] for found in done.json["hosts"].values()] == [True, True]
    assert len(fakes["a"].calls) == calls
    assert fakes["b"].alive


def test_a_bench_goes_on_in_the_middle_of_a_setting(invoke, own, fakes, monkeypatch) -> None:
    fake = fakes["a"]
    killed(invoke, fake, monkeypatch, "load_poll", "bench", "--steps", "2,3", *SMALL, after=2)  # k3: under way
    assert [(load.id, load.over) for load in fake.begun] == [("k2-c1", True), ("k3-c1", False)]
    done = invoke("bench", "--resume", run_of(own), "--json")
    assert done.code == 0, done.err
    assert len(fake.begun) == 2
    assert fake.ops().count("start") == 2  # one a setting
    measured = done.json["hosts"]["a"]["measurements"]
    assert [each["steps"] for each in measured] == [2, 2, 3, 3]
    assert [each["summary"]["requests"] for each in measured] == [2, 2, 2, 2]
    assert "holds since" in done.err
    assert "going on with the load k3-c1" in done.err
    assert "TPOT" in done.err
    assert fake.files[WORKER_PATH] == WORKER
    assert fake.alive is False


def test_a_bench_whose_setting_is_another_by_now_measures_it_again(invoke, own, fakes, monkeypatch) -> None:
    fake = fakes["a"]
    killed(invoke, fake, monkeypatch, "load_poll", "bench", "--steps", "2,3", *SMALL, after=2)
    inventory = own / "inventory.yaml"
    inventory.write_text(inventory.read_text().replace("  a: {}", "  a: {server: {env: {NCCL_ALGO: Ring}}}"))
    assert invoke("bench", "--resume", "last").code == 0
    assert [load.id for load in fake.begun[2:]] == ["k2-c1-1", "k3-c1-1"]
    assert fake.ops().count("start") == 2 + 2


def test_a_bench_that_was_killed_while_it_put_the_host_back_only_does_that(invoke, own, fakes, monkeypatch) -> None:
    fake = fakes["a"]
    killed(invoke, fake, monkeypatch, "rollback", "bench", "--steps", "2", *SMALL)
    done = invoke("bench", "--resume", "last", "--json")
    assert done.code == 0, done.err
    assert len(fake.begun) == 1
    assert fake.ops().count("start") == 1
    assert fake.files[WORKER_PATH] == WORKER
    assert done.json["hosts"]["a"]["measurements"][1]["setting"]["phases"]


def test_a_resumed_bench_leaves_the_host_as_it_was_before_its_first_try(invoke, own, fakes, monkeypatch) -> None:
    fake = fakes["a"]
    invoke("deploy-profiling")
    killed(invoke, fake, monkeypatch, "load_poll", "bench", "--steps", "3", *SMALL)
    assert fake.record["steps"] == 3
    done = invoke("bench", "--resume", "last")
    assert done.code == 0, done.err
    assert fake.alive
    assert fake.record["steps"] == 2


def play_killed(invoke, own, fakes, monkeypatch) -> str:
    path = own / "playbooks" / "mine.yaml"
    path.write_text(
        "name: mine\nvars: {steps: 2, note: x}\ntasks:\n  - doctor:\n  - plan:\n  - include: more.yaml\n",
    )
    (own / "playbooks" / "more.yaml").write_text("name: more\ntasks:\n  - backup:\n  - patch:\n")
    killed(invoke, fakes["a"], monkeypatch, "backup", "play", "mine", "--var", "steps=3")
    return run_of(own)


def test_a_playbook_goes_on_as_it_was_read(invoke, own, fakes, monkeypatch) -> None:
    run = play_killed(invoke, own, fakes, monkeypatch)
    assert invoke("play", "mine", "--resume", run, "--var", "steps=3").code == 0
    assert fakes["a"].files[WORKER_PATH] != WORKER


def test_a_playbook_that_has_changed_is_refused_where_it_is_not_in_the_bundle(invoke, own, fakes, monkeypatch) -> None:
    run = play_killed(invoke, own, fakes, monkeypatch)
    (own / "playbooks" / "more.yaml").write_text("name: more\ntasks:\n  - rollback:\n")
    done = invoke("play", "mine", "--resume", run)
    assert done.code == 2
    assert f"changed since run {run} began" in done.err
    assert "more.yaml" in done.err


def test_a_playbook_that_has_changed_is_taken_from_the_bundle(invoke, own, fakes, monkeypatch) -> None:
    killed(invoke, fakes["a"], monkeypatch, "apply", "deploy-profiling")
    (own / "playbooks" / "deploy-profiling.yaml").write_text("name: other\ntasks:\n  - rollback:\n")
    assert invoke("deploy-profiling", "--resume", "last").code == 0
    assert fakes["a"].alive


@pytest.mark.parametrize(
    ("argv", "what"),
    [
        (["play", "mine", "--resume", "RUN", "--var", "steps=4"], "had --steps 3, not 4"),
        (["play", "mine", "--resume", "RUN", "--var", "note=y"], "had --note none, not y"),
        (["play", "rollback", "--resume", "RUN"], "had --playbook mine, not rollback"),
        (["play", "mine", "--resume", "RUN", "--host", "b"], "had --hosts a, not b"),
        (["play", "mine", "--resume", "RUN", "--tags", "x"], "had --tags none, not x"),
        (["play", "mine", "--resume", "RUN", "--check"], "--check begins a run of its own"),
        (["bench", "--resume", "RUN"], "is one of invoke play, not of invoke bench"),
        (["play", "mine", "--resume", "nobody"], "there is no run 'nobody'"),
        (["play", "mine", "--resume", "2"], None),
    ],
)
def test_what_cannot_be_taken_up_is_refused_and_nothing_is_contacted(
    invoke, own, fakes, monkeypatch, argv: list[str], what: str | None
) -> None:
    run = play_killed(invoke, own, fakes, monkeypatch)
    if what is None:
        killed_again = own / "logs" / (run[:-1] + "z")
        killed_again.mkdir()
        (killed_again / "request.json").write_text((own / "logs" / run / "request.json").read_text())
        what = "'2' may be any of 2 runs"
    calls = len(fakes["a"].calls)
    done = invoke(*[run if word == "RUN" else word for word in argv], "--json")
    assert done.code == 2, done.err
    assert what in done.json["error"]["what"]
    assert len(fakes["a"].calls) == calls


def test_a_secret_is_asked_for_again(invoke, own, fakes, monkeypatch) -> None:
    path = own / "playbooks" / "mine.yaml"
    path.write_text("name: mine\nvars: {HF_TOKEN: ''}\ntasks:\n  - doctor:\n  - plan:\n  - backup:\n")
    killed(invoke, fakes["a"], monkeypatch, "backup", "play", "mine", "--var", "HF_TOKEN=s3cret")
    assert "s3cret" not in "".join(file.read_text() for file in (own / "logs").rglob("*.json*"))
    done = invoke("play", "mine", "--resume", "last")
    assert done.code == 2
    assert "had a secret in 'HF_TOKEN', which is not kept" in done.err
    assert invoke("play", "mine", "--resume", "last", "--var", "HF_TOKEN=s3cret").code == 0


def test_logs_says_that_the_last_run_there_can_be_taken_up(invoke, own, fakes, monkeypatch) -> None:
    killed(invoke, fakes["a"], monkeypatch, "generate", "deploy-profiling")
    done = invoke("logs", "--json")
    run = next(path.name for path in (own / "logs").iterdir() if "deploy" in path.name)
    assert f"run {run} stopped at 'Generate'" in done.err
    assert f"invoke deploy-profiling --resume {run}" in done.err
    assert done.json["hosts"]["a"]["resume"] == f"invoke deploy-profiling --resume {run}"
    invoke("deploy-profiling", "--resume", run)
    assert "stopped at" not in invoke("logs").out


def test_what_is_done_is_told_to_whoever_looks_at_the_lock(invoke, own, fakes) -> None:
    invoke("deploy-profiling")
    assert fakes["a"].said[:3] == ["Read the host", "Plan the patch", "See whose server runs"]


def test_a_host_whose_entry_leads_elsewhere_by_now_is_refused_and_nothing_is_contacted(
    invoke, own, fakes, monkeypatch
) -> None:
    fake = fakes["a"]
    killed(invoke, fake, monkeypatch, "load_poll", "bench", "--steps", "2", *SMALL)
    kept = (own / "logs" / run_of(own) / "inventory.json").read_bytes()
    inventory = own / "inventory.yaml"
    before = inventory.read_text()
    calls = len(fake.calls)
    for entry, changes in (
        ("{address: 127.0.0.9}", "address was 127.0.0.1 and is 127.0.0.9"),
        ("{user: bob, port: 2222}", "user was None and is bob, port was None and is 2222"),
    ):
        inventory.write_text(before.replace("  a: {}", f"  a: {entry}"))
        done = invoke("bench", "--resume", "last", "--json")
        assert done.code == 2, done.err
        assert changes in done.json["error"]["what"]
        assert len(fake.calls) == calls
    assert (own / "logs" / run_of(own) / "inventory.json").read_bytes() == kept
    inventory.write_text(before)
    assert invoke("bench", "--resume", "last").code == 0


@pytest.mark.parametrize(
    ("fact", "earlier", "now", "change"),
    [
        ("machine", "aaaa", "bbbb", "the machine was aaaa and is bbbb"),
        ("sglang_version", "0.5.9.dev1", "0.5.9.dev2", "its SGLang was 0.5.9.dev1 and is 0.5.9.dev2"),
    ],
)
def test_another_machine_behind_the_same_entry_is_refused_each_time(
    invoke, own, fakes, monkeypatch, fact, earlier, now, change
) -> None:
    fake = fakes["a"]
    fake.facts = {fact: earlier}
    killed(invoke, fake, monkeypatch, "load_poll", "bench", "--steps", "2", *SMALL)
    fake.facts = {fact: now}
    before = fake.snapshot()
    for _ in range(2):
        done = invoke("bench", "--resume", "last", "--json")
        assert done.code == 1, done.err
        assert change in done.json["error"]["what"]
        assert "--resume" not in done.json["error"]["hint"]
        assert fake.snapshot() == before
    fake.facts = {fact: earlier}
    assert invoke("bench", "--resume", "last").code == 0


def test_a_server_on_another_machine_is_not_the_one_that_is_wanted(invoke, own, fakes) -> None:
    fake = fakes["a"]
    fake.facts = {"machine": "aaaa"}
    invoke("deploy-profiling")
    assert invoke("deploy-profiling").code == 0
    assert fake.ops().count("start") == 1
    fake.facts = {"machine": "bbbb"}  # its folder came along: a shared home, a copied disk
    assert invoke("deploy-profiling").code == 0
    assert fake.ops().count("start") == 2


DAMAGED = [
    b"{}",
    b"[]",
    b"[[1, 2]]",
    b"not json",
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"command": "deploy-profiling", "hosts": "a", "resumed": "1"}',
]


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_record_is_named_and_left_out(invoke, own, fakes, monkeypatch, content: bytes) -> None:
    killed(invoke, fakes["a"], monkeypatch, "generate", "deploy-profiling")
    damaged = own / "logs" / "20990101-000000-deploy-profiling-dead" / "request.json"
    damaged.parent.mkdir()
    damaged.write_bytes(content)
    for argv in (["logs"], ["deploy-profiling", "--resume", "last"]):
        done = invoke(*argv)
        assert done.code == 0, done.err
        assert done.out.replace("\n", "").count(f"left out: {damaged} is damaged") == 1
    done = invoke("deploy-profiling", "--resume", damaged.parent.name, "--json")
    assert done.code == 2
    assert "there is no run" in done.json["error"]["what"]


@pytest.mark.parametrize(
    "field", ["command", "files", "hosts", "inventory", "vars", "more", "tags", "takeover", "resumed"]
)
def test_a_record_with_one_wrong_value_is_left_out(invoke, own, fakes, monkeypatch, field: str) -> None:
    killed(invoke, fakes["a"], monkeypatch, "generate", "deploy-profiling")
    path = own / "logs" / run_of(own) / "request.json"
    whole = json.loads(path.read_text())
    for value in ({"missing": 1}, {"wrong": 1.5}):
        path.write_text(
            json.dumps({**{k: v for k, v in whole.items() if k != field}, **({field: 1.5} if "wrong" in value else {})})
        )
        done = invoke("deploy-profiling", "--resume", "last", "--json")
        assert done.code == 2, done.err
        assert "request.json is damaged" in done.err.replace("\n", "")


@pytest.mark.parametrize("name", ["result.json", "events.jsonl", "facts.json", "inventory.json"])
@pytest.mark.parametrize("content", [b"{}\n", b"[1]\n", b'{"x": 1}\n', b"\xff"])
def test_other_damaged_files_of_a_run_do_not_keep_it_from_going_on(
    invoke, own, fakes, monkeypatch, name: str, content: bytes
) -> None:
    killed(invoke, fakes["a"], monkeypatch, "generate", "deploy-profiling")
    run = run_of(own)
    (own / "logs" / run / name).write_bytes(content)
    assert invoke("logs").code == 0
    done = invoke("deploy-profiling", "--resume", run)
    assert done.code == 0, done.err


def test_a_run_that_another_process_brought_to_its_end_meanwhile_is_not_done_again(
    invoke, own, fakes, monkeypatch
) -> None:
    fake = fakes["a"]
    killed(invoke, fake, monkeypatch, "generate", "deploy-profiling")
    run = run_of(own)
    connected = on_hosts.connected

    @contextmanager
    def late(*args: Any, **more: Any):
        with connected(*args, **more) as context:  # the lock is ours now
            (own / "logs" / run / "result.json").write_text('{"ok": true, "load": {"needed": true}}')
            yield context

    monkeypatch.setattr(on_hosts, "connected", late)
    calls = len(fake.calls)
    done = invoke("deploy-profiling", "--resume", run, "--json")
    assert done.code == 0, done.err
    assert done.json["hosts"]["a"] == {"ok": True, "load": {"needed": True}}
    assert "nothing is left to do" in done.err
    assert len(fake.calls) == calls


def test_a_host_that_stays_away_is_told_how_to_go_on_as_well_as_how_to_end_it(invoke, own, fakes) -> None:
    for op in ("http", "rollback"):
        fakes["a"].fail[op] = LinkLost("the link is gone", where="a")
    lost = invoke("deploy-profiling", "--tokens", "64")
    assert lost.code == 3
    hint = (
        f"invoke rollback --host a; or, once it answers again, invoke deploy-profiling --resume {run_of(own)} goes on"
    )
    assert hint in lost.err.replace("\n", " ")
