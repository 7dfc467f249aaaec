"""Whole commands on hosts in memory: exit codes, what is left behind, and the JSON object at the end."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from fake_host import LOG, PROBE_PATH, WORKER, WORKER_PATH, refusal

from eaglelab.remote.pipe import LinkLost

CHANGING = {"backup", "apply", "rollback", "start", "stop", "stop_foreign", "loaded", "generate", "lock"}


def events(done) -> list[tuple[str, str]]:
    lines = (Path(done.json["bundle"]) / "events.jsonl").read_text().splitlines()
    return [(event["action"], event["state"]) for event in map(json.loads, lines) if event["state"] != "started"]


def test_deploy_profiling_brings_a_profile_home(invoke, own, fakes) -> None:
    done = invoke("deploy-profiling", "--json")
    assert done.code == 0, done.err
    found = done.json
    assert found["ok"] is True
    assert found["run"] in found["bundle"]
    assert found["hosts"]["a"]["ok"] is True
    assert found["hosts"]["a"]["profile"]["simulated"] == "simulated GPU"
    assert len(done.out.splitlines()) == 1
    assert [action for action, _ in events(done)] == [
        "doctor",
        "plan",
        "check_owner",
        "backup",
        "patch",
        "check_server",
        "stop",
        "start",
        "wait",
        "generate",
        "prove",
        "fetch_logs",
        "report",
    ]
    names = {file.name for file in (own / "logs" / found["run"]).iterdir()}
    assert names >= {
        "inventory.json",
        "playbook.yaml",
        "facts.json",
        "plan.json",
        "patch.diff",
        "sed",
        "manifest.json",
        "server.json",
        "server_info.json",
        "generate.json",
        "server.log",
        "probe",
        "profile.json",
        "events.jsonl",
    }


def test_without_json_a_person_reads_it_on_stdout(invoke, own, fakes) -> None:
    done = invoke("deploy-profiling")
    assert "Start the server with the probe\n" in done.out
    assert re.search(r"^done; bundle: /.*/logs/\d{8}-\d{6}-deploy-profiling-[0-9a-f]{4}$", done.out, re.M)
    assert done.err == ""


def test_the_same_again_needs_no_load_and_changes_no_file(invoke, own, fakes) -> None:
    invoke("deploy-profiling")
    files = dict(fakes["a"].files)
    done = invoke("deploy-profiling", "--json")
    assert done.code == 0
    assert {action for action, state in events(done) if state == "skipped"} == {"stop", "start"}
    assert "already in place: nothing changed" in done.err
    assert "already has this setting: no load is needed" in done.err
    assert {path: data for path, data in fakes["a"].files.items() if path in (WORKER_PATH, PROBE_PATH)} == {
        path: data for path, data in files.items() if path in (WORKER_PATH, PROBE_PATH)
    }


@pytest.mark.parametrize("command", ["deploy-profiling", "bench", "rollback", "stop"])
def test_check_changes_nothing_and_asks_for_no_change(invoke, own, fakes, command: str) -> None:
    before = fakes["a"].snapshot()
    done = invoke(command, "--check", "--json")
    assert done.code == 0, done.err
    assert fakes["a"].snapshot() == before
    assert not CHANGING & set(fakes["a"].ops())


def test_check_shows_the_diff_of_the_worker_and_the_command(invoke, own, fakes) -> None:
    done = invoke("deploy-profiling", "--check")
    assert "+++ b/srt/speculative/eagle_worker.py\n" in done.out
    assert "# eaglelab:eagle3-profile\n" in done.out
    assert "would start: EAGLE3_PROFILE=1" in done.out
    assert "done (--check: nothing was changed)" in done.out


@pytest.mark.parametrize("command", ["status", "doctor", "logs"])
def test_what_only_looks_takes_no_lock(invoke, own, fakes, command: str) -> None:
    assert invoke(command).code == 0
    assert fakes["a"].commands == [(None, False)]
    assert not CHANGING & set(fakes["a"].ops())


@pytest.mark.parametrize("op", ["backup", "apply", "start", "poll", "generate", "tail"])
def test_a_failure_anywhere_puts_the_host_back_and_exits_1(invoke, own, fakes, op: str) -> None:
    fakes["a"].fail[op] = refusal("disk-full", "no space left on the disk")
    done = invoke("deploy-profiling", "--json")
    assert done.code == 1
    assert "no space left on the disk" in done.json["error"]["what"]
    assert fakes["a"].files[WORKER_PATH] == WORKER
    assert PROBE_PATH not in fakes["a"].files
    assert fakes["a"].alive is False
    assert fakes["a"].manifest is None
    assert ("rollback", "ok") in events(done)


def test_a_refusal_of_doctor_leaves_the_host_untouched(invoke, own, fakes) -> None:
    before = fakes["a"].snapshot()
    fakes["a"].holder = {"pid": 99, "user": "bob", "command": "serve --api-key s3cret"}
    done = invoke("deploy-profiling", "--json")
    assert done.code == 1
    assert "pid 99 of bob" in done.err
    assert "s3cret" not in done.out + done.err
    assert "--takeover" in done.json["error"]["hint"]
    assert fakes["a"].snapshot()[:-1] == before[:-1]
    assert not CHANGING & set(fakes["a"].ops())


def test_with_takeover_the_foreign_server_gives_way(invoke, own, fakes) -> None:
    fakes["a"].holder = {"pid": 99, "user": "bob", "command": "serve"}
    assert invoke("deploy-profiling", "--takeover").code == 0
    assert fakes["a"].holder is None


def test_a_server_that_dies_while_it_loads_is_told_with_its_last_lines_once(invoke, own, fakes) -> None:
    fakes["a"].boot = b"launch_server.py: error: unrecognized arguments: --nope\n"
    poll = fakes["a"].op_poll

    def die(**args):
        fakes["a"].alive, fakes["a"].exit = False, {"code": 2, "signal": None}
        return poll(**args)

    fakes["a"].op_poll = die
    done = invoke("deploy-profiling")
    assert done.code == 1
    assert "does not take this command line" in done.err
    assert (done.out + done.err).count("\n    launch_server.py: error") == 1
    assert fakes["a"].files[WORKER_PATH] == WORKER


def test_ctrl_c_while_the_server_loads_puts_the_host_back_and_exits_130(invoke, own, fakes) -> None:
    fakes["a"].fail["poll"] = KeyboardInterrupt()
    done = invoke("deploy-profiling", "--json")
    assert done.code == 130
    assert fakes["a"].files[WORKER_PATH] == WORKER
    assert fakes["a"].alive is False
    assert done.json["error"]["what"] == "interrupted"


def test_a_rollback_that_fails_exits_3_with_the_command_that_mends_it(invoke, own, fakes) -> None:
    fakes["a"].fail = {"poll": refusal("bug", "one"), "rollback": LinkLost("gone", where="a")}
    done = invoke("deploy-profiling", "--json")
    assert done.code == 3
    assert done.json["error"]["hint"].startswith("invoke rollback --host a; or, once it answers again")
    assert "then putting things back failed too: gone" in done.err


def test_rollback_after_a_controller_that_was_killed_restores_the_host(invoke, own, fakes) -> None:
    invoke("deploy-profiling")
    done = invoke("rollback", "--json")
    assert done.code == 0
    assert done.json["hosts"]["a"]["rollback"]["nothing"] is False
    assert fakes["a"].files[WORKER_PATH] == WORKER
    again = invoke("rollback", "--json")
    assert again.json["hosts"]["a"]["rollback"]["nothing"] is True
    assert "nothing to do" in again.err


def test_a_file_that_somebody_changed_makes_rollback_exit_3(invoke, own, fakes) -> None:
    invoke("deploy-profiling")
    fakes["a"].files[WORKER_PATH] = b"# somebody else's\n"
    done = invoke("rollback", "--json")
    assert done.code == 3
    assert WORKER_PATH in done.json["error"]["what"]
    assert fakes["a"].files[WORKER_PATH] == b"# somebody else's\n"


@pytest.mark.parametrize("command", ["rollback", "status", "stop", "logs"])
def test_what_puts_things_back_or_looks_needs_no_api_key(invoke, own, fakes, command: str) -> None:
    path = own / "inventory.yaml"
    path.write_text(path.read_text().replace("  a: {}", "  a: {api_key_env: NOT_THERE}"))
    assert invoke(command).code == 0


def test_several_hosts_have_a_folder_each_and_their_names_before_each_line(invoke, own, fakes) -> None:
    done = invoke("deploy-profiling", "--host", "a,b", "--json")
    assert done.code == 0
    assert list(done.json["hosts"]) == ["a", "b"]
    for name in ("a", "b"):
        folder = own / "logs" / done.json["run"] / name
        assert {event["host"] for event in map(json.loads, (folder / "events.jsonl").read_text().splitlines())} == {
            name
        }
        assert f"\n{name} | Start the server with the probe\n" in "\n" + done.err
        assert fakes[name].alive


def test_a_group_means_its_hosts(invoke, own, fakes) -> None:
    assert list(invoke("status", "--host", "both", "--json").json["hosts"]) == ["a", "b"]


def test_a_secret_written_into_a_playbook_stays_out_of_the_bundle(invoke, own, fakes) -> None:
    path = own / "playbooks" / "deploy-profiling.yaml"
    path.write_text(
        path.read_text().replace('start: {steps: "{{ steps }}"}', "start: {steps: 2, env: {HF_TOKEN: s3cret-token}}")
    )
    done = invoke("deploy-profiling", "--json")
    assert fakes["a"].env["HF_TOKEN"] == "s3cret-token"
    assert "s3cret" not in done.out + done.err
    for file in (own / "logs").rglob("*"):
        assert not file.is_file() or b"s3cret" not in file.read_bytes(), file


def test_status_as_json_does_not_tell_the_servers_key(invoke, own, fakes) -> None:
    fakes["a"].record = {
        "command": ["python", "--api-key", "s3cret"],
        "run": "r",
        "log": LOG,
        "steps": 2,
        "profile": False,
    }
    assert "s3cret" not in invoke("status", "--json").out


def test_debug_shows_the_traceback_and_nothing_else_does(invoke, own, fakes) -> None:
    fakes["a"].fail["status"] = ZeroDivisionError("bug")
    assert "Traceback" not in invoke("status").err
    done = invoke("status", "--debug")
    assert "Traceback" in done.err
    assert "error: unexpected: ZeroDivisionError: bug\n  hint: run it again with --debug" in done.err
