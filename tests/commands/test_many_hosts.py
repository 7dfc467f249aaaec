"""Commands on several hosts in memory: at once, in batches, and what a failure on one means for the others."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from fake_host import WORKER, WORKER_PATH, FakeHost, refusal

from eaglelab.errors import LockLost
from eaglelab.remote.pipe import LinkLost


@pytest.fixture
def four(own: Path, fakes: dict[str, FakeHost]) -> dict[str, FakeHost]:
    path = own / "inventory.yaml"
    path.write_text(path.read_text().replace("  b: {}", "  b: {}\n  c: {}\n  d: {}"))
    fakes.update(c=FakeHost(), d=FakeHost())
    return fakes


def meeting(fakes: dict[str, FakeHost], op: str) -> None:
    """No host's `op` ends before all hosts have come to theirs."""
    barrier = threading.Barrier(len(fakes), timeout=20)
    for fake in fakes.values():
        before = getattr(fake, f"op_{op}")

        def wait(*args: Any, before: Any = before, **more: Any) -> Any:
            barrier.wait()
            return before(*args, **more)

        setattr(fake, f"op_{op}", wait)


def changed(fake: FakeHost) -> bool:
    return fake.files[WORKER_PATH] != WORKER or fake.alive


def test_hosts_are_patched_and_started_at_once(invoke, own, four) -> None:
    meeting(four, "apply")
    meeting(four, "start")
    done = invoke("deploy-profiling", "--host", "a,b,c,d", "--json")
    assert done.code == 0, done.err
    assert {name: host["ok"] for name, host in done.json["hosts"].items()} == dict.fromkeys("abcd", True)
    assert all(fake.alive for fake in four.values())


@pytest.mark.parametrize("command", ["status", "doctor", "logs", "stop", "rollback"])
def test_commands_that_look_or_put_back_work_on_all_at_once_too(invoke, own, fakes, command: str) -> None:
    meeting(fakes, {"doctor": "facts", "stop": "stop", "rollback": "rollback"}.get(command, "status"))
    assert invoke(command, "--host", "both").code == 0


def test_every_line_names_its_host_and_no_line_is_of_two(invoke, own, four) -> None:
    done = invoke("deploy-profiling", "--host", "a,b,c,d", "--json")
    for name in "abcd":
        lines = [line.removeprefix(f"{name} | ") for line in done.err.splitlines() if line.startswith(f"{name} | ")]
        tasks = [line for line in lines if line and not line.startswith(" ")]
        assert tasks[:3] == ["Read the host", "Plan the patch", "See whose server runs"]
    strange = [line for line in done.err.splitlines() if re.search(r".[abcd] \| ", line)]
    assert strange == []


def test_a_table_in_the_end_says_how_each_host_ended(invoke, own, four) -> None:
    four["b"].fail["facts"] = refusal("no-sglang", "there is no SGLang")
    done = invoke("deploy-profiling", "--host", "a,b,c,d", "--json")
    table = [line.split() for line in done.err.splitlines() if line.split()[:1] in (["a"], ["b"], ["c"], ["d"])]
    rows = {row[0]: row[1] for row in table if "|" not in row}
    assert rows == {"a": "done", "b": "failed", "c": "done", "d": "done"}
    assert any("there is no SGLang" in " ".join(row) for row in table if "|" not in row)


def test_a_failure_on_one_host_lets_the_others_come_to_their_end(invoke, own, fakes) -> None:
    fakes["a"].fail["facts"] = refusal("no-sglang", "no SGLang")
    done = invoke("deploy-profiling", "--host", "a,b", "--json")
    assert done.code == 1
    assert done.json["hosts"]["a"]["error"]["what"] == "no SGLang"
    assert done.json["hosts"]["b"]["ok"] is True
    assert fakes["b"].alive
    assert done.json["error"]["what"] == "no SGLang"


def test_after_a_failure_no_further_batch_is_begun(invoke, own, four) -> None:
    four["b"].fail["facts"] = refusal("no-sglang", "no SGLang")
    done = invoke("deploy-profiling", "--host", "a,b,c,d", "--serial", "2", "--json")
    assert done.code == 1
    assert four["a"].alive
    assert four["c"].calls == four["d"].calls == []
    assert done.json["hosts"]["c"] == {"ok": False}
    assert "not begun" in done.err


def test_a_playbook_can_say_how_many_hosts_are_a_batch(invoke, own, four) -> None:
    path = own / "playbooks" / "deploy-profiling.yaml"
    path.write_text(path.read_text().replace("name: deploy-profiling", "name: deploy-profiling\nserial: 1", 1))
    four["b"].fail["facts"] = refusal("no-sglang", "no SGLang")
    invoke("deploy-profiling", "--host", "a,b,c,d")
    assert four["a"].alive
    assert four["c"].calls == []
    four["b"].fail.clear()
    assert invoke("deploy-profiling", "--host", "a,b,c,d", "--serial", "4").code == 0


def test_the_others_are_begun_all_the_same_where_that_is_asked_for(invoke, own, four) -> None:
    four["a"].fail["facts"] = refusal("no-sglang", "no SGLang")
    done = invoke("deploy-profiling", "--host", "a,b,c,d", "--forks", "1", "--on-failure", "continue", "--json")
    assert done.code == 1
    assert all(four[name].alive for name in "bcd")


def test_a_failure_puts_all_back_where_that_is_asked_for_also_what_had_ended_well(invoke, own, four) -> None:
    four["c"].fail["facts"] = refusal("no-sglang", "no SGLang")
    done = invoke("deploy-profiling", "--host", "a,b,c,d", "--forks", "1", "--on-failure", "rollback", "--json")
    assert done.code == 1, done.err
    assert not any(changed(fake) for fake in four.values())
    assert done.json["hosts"]["a"]["error"]["what"] == "rolled back, because c failed"
    assert done.json["hosts"]["a"]["ok"] is False
    assert four["d"].calls == []
    result = json.loads((own / "logs" / done.json["run"] / "a" / "result.json").read_text())
    assert result["ok"] is False


def test_what_was_there_before_is_not_put_back_for_the_sake_of_another_host(invoke, own, fakes) -> None:
    invoke("deploy-profiling", "--host", "a")
    before = fakes["a"].snapshot()
    fakes["b"].fail["facts"] = refusal("no-sglang", "no SGLang")
    invoke("deploy-profiling", "--host", "a,b", "--forks", "1", "--on-failure", "rollback")
    assert fakes["a"].alive
    assert fakes["a"].snapshot()[0][WORKER_PATH] == before[0][WORKER_PATH]


def test_a_host_that_cannot_be_put_back_is_a_persons_business(invoke, own, fakes) -> None:
    fakes["b"].fail["facts"] = refusal("no-sglang", "no SGLang")
    fakes["a"].fail["rollback"] = LinkLost("gone", where="a")
    done = invoke("deploy-profiling", "--host", "a,b", "--forks", "1", "--on-failure", "rollback", "--json")
    assert done.code == 3
    assert done.json["hosts"]["a"]["error"]["hint"] == "invoke rollback --host a"
    assert done.json["error"]["hint"] == "invoke rollback --host a"
    assert "2 of 2 hosts failed; needs attention: a" in done.json["error"]["what"]


def test_the_exit_code_is_that_of_the_gravest_failure(invoke, own, four) -> None:
    four["a"].fail["facts"] = refusal("no-sglang", "no SGLang")
    four["b"].fail["start"] = refusal("cannot-start", "no")
    four["b"].fail["rollback"] = LinkLost("gone", where="b")
    done = invoke("deploy-profiling", "--host", "a,b,c", "--json")
    assert done.code == done.json["exit_code"] == 3
    assert done.json["hosts"]["a"]["exit_code"] == 1
    assert done.json["hosts"]["b"]["exit_code"] == 3
    assert done.json["hosts"]["c"]["ok"] is True


def test_a_look_at_many_shows_the_others_though_one_cannot_be_reached(invoke, own, four) -> None:
    four["a"].fail["status"] = LinkLost("no route", where="a")
    done = invoke("status", "--host", "a,b,c,d", "--forks", "1", "--json")
    assert done.code == 1
    assert [name for name, found in done.json["hosts"].items() if found["ok"]] == ["b", "c", "d"]


def test_a_host_that_somebody_else_took_over_is_not_touched_again(invoke, own, fakes) -> None:
    fakes["a"].fail["apply"] = LockLost("taken over", where="a")
    done = invoke("deploy-profiling", "--host", "a,b", "--on-failure", "rollback", "--json")
    assert done.code == 1
    assert "rollback" not in fakes["a"].ops()
    assert not changed(fakes["b"])


def test_a_bug_on_one_host_does_not_keep_the_others_from_their_end(invoke, own, fakes) -> None:
    fakes["a"].fail["status"] = ZeroDivisionError("bug")
    done = invoke("status", "--host", "a,b", "--json")
    assert done.code == 1
    assert done.json["hosts"]["a"]["error"]["what"] == "unexpected: ZeroDivisionError: bug"
    assert done.json["hosts"]["b"]["ok"] is True


def test_a_secret_of_one_host_is_masked_in_what_is_said_of_all(invoke, own, fakes) -> None:
    path = own / "inventory.yaml"
    path.write_text(path.read_text().replace("  a: {}", "  a: {server: {env: {HF_TOKEN: s3cret-value}}}"))
    for name in "ab":
        fakes[name].fail["facts"] = refusal("no-sglang", "told s3cret-value")
    done = invoke("deploy-profiling", "--host", "a,b", "--json")
    assert "s3cret" not in done.out + done.err
    assert done.code == 1


def test_a_run_is_gone_on_with_on_the_hosts_that_failed(invoke, own, fakes) -> None:
    fakes["b"].fail["facts"] = refusal("no-sglang", "no SGLang")
    run = invoke("deploy-profiling", "--host", "a,b", "--json").json["run"]
    fakes["b"].fail.clear()
    calls = len(fakes["a"].calls)
    done = invoke("deploy-profiling", "--resume", run, "--json")
    assert done.code == 0, done.err
    assert len(fakes["a"].calls) == calls
    assert fakes["b"].alive


def test_a_check_of_many_changes_nothing_also_where_one_fails(invoke, own, fakes) -> None:
    fakes["b"].fail["facts"] = refusal("no-sglang", "no SGLang")
    before = fakes["a"].snapshot()
    assert invoke("deploy-profiling", "--host", "a,b", "--check", "--on-failure", "rollback").code == 1
    assert fakes["a"].snapshot() == before


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--forks", "0"], "0 is too small: 1 or more"),
        (["--forks", "many"], "'many' is not a whole number"),
        (["--serial", "0"], "0 is too small: 1 or more"),
        (["--on-failure", "halt"], "'halt' is nothing that a failure can mean"),
    ],
)
def test_options_that_cannot_be_meant_are_refused_before_a_host_is_contacted(
    invoke, own, fakes, options: list[str], what: str
) -> None:
    done = invoke("deploy-profiling", "--host", "a,b", *options, "--json")
    assert done.code == 2
    assert done.json["error"]["what"] == what
    assert fakes["a"].calls == fakes["b"].calls == []
