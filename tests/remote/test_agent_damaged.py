"""A manifest, a record or an estimate that is damaged: named, gone around, and what is left to do by hand said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from hostkit import Installation
from serverkit import ServerHost, alive

from eaglelab.remote.agent.facts import known_loads
from eaglelab.remote.agent.load import Loads
from eaglelab.remote.agent.manifest import read_manifest
from eaglelab.remote.agent.marks import MARK
from eaglelab.remote.agent.processes import boot_id
from eaglelab.remote.agent.state import StateFolder
from eaglelab.remote.agent.wire import AgentError
from eaglelab.remote.hints import explain

DAMAGES = {
    "empty": "",
    "half": '{"run": "run-1", "fi',
    "deep": "[" * 100_000,
    "no-object": "[]",
    "not-utf-8": "\udcff\udcfe",
    "run-leads-elsewhere": '{"run": "../../x", "files": []}',
    "path-is-relative": '{"run": "r", "files": [{"path": "x", "original": null, "patched": [], "mode": 1, "uid": 0, "gid": 0}]}',
    "object-leads-elsewhere": '{"run": "r", "files": [{"path": "/x", "original": "../../x", "patched": [], "mode": 1, "uid": 0, "gid": 0}]}',
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_manifest_is_named_with_the_commands_that_put_all_back_by_hand(
    host: Installation, damage: str
) -> None:
    host.deploy()
    manifest = host.folder / "state/manifest.json"
    manifest.write_text(DAMAGES[damage], errors="surrogateescape")
    for act in (host.rollback, host.journal.states, lambda: read_manifest(host.journal)):
        with pytest.raises(AgentError, match=r"state/manifest\.json") as refused:
            act()
        assert refused.value.code == "bad-state"
    host.assert_patched()
    hint = explain({"code": "bad-state", "what": "x", "details": refused.value.details}, "here").hint
    subprocess.run(hint.removeprefix("on the host: "), shell=True, check=True)
    host.assert_original()
    assert manifest.with_name("manifest.json.damaged").exists()
    assert host.rollback() == {"nothing": True, "files": []}


def test_what_was_rolled_back_already_is_not_put_back_by_hand(host: Installation) -> None:
    host.deploy()
    host.rollback()
    (host.folder / "state/manifest.json").write_text("{half")
    with pytest.raises(AgentError) as refused:
        host.rollback()
    manifest = host.folder / "state/manifest.json"
    assert refused.value.details["mend"] == f"mv {manifest} {manifest}.damaged"


@pytest.mark.parametrize("text", ["{half", "[]", '{"key": 7, "other": [], "third": ["x"], "good": [1.5]}'])
def test_how_long_loads_took_is_no_reason_to_refuse_anything(host: Installation, text: str) -> None:
    host.backup()
    (host.folder / "state/loads.json").write_text(text)
    assert known_loads(host.journal) == ({"good": [1.5]} if "good" in text else {})


ODD = [None, True, -1, 1.5, 10**40, "12", "\0", "\ud800", [], {}, [None], [[]], {"a": 1}]
"""What no key of any record can be: each is of a type, or beyond a bound, that some call would fail at."""

FITTING: dict[str, list[Any]] = {
    "session_start": ["12"],
    "pid": [None],
    "pid_start": [None],
    "original": [None],
    "patched": [[]],
    "code": [None],
    "signal": [None],
    "run": ["12"],
    "log": ["12"],
    "boot": ["12"],
    "id": ["12"],
    "what": ["12"],
    "mark": ["12"],
    "files": [[]],
    "command": [[]],
    "steps": [None],
}
"""Of these, what a key may be all the same."""


def odd(*keys: str) -> list[Any]:
    return [
        pytest.param(key, value, id=f"{key}={ascii(value)[:12]}")
        for key in keys
        for value in ODD
        if not any(value is fine or (value == fine and value is not True) for fine in FITTING.get(key, ()))
    ]


@pytest.mark.parametrize(("key", "value"), odd("run", "files", "path", "original", "patched", "mode", "uid", "gid"))
def test_a_manifest_with_a_value_that_cannot_be_is_named_with_the_way_out(
    host: Installation, key: str, value: Any
) -> None:
    host.deploy()
    path = host.folder / "state/manifest.json"
    manifest = json.loads(path.read_text())
    (manifest if key in manifest else manifest["files"][0])[key] = value
    path.write_text(json.dumps(manifest))
    for act in (host.rollback, host.backup, host.apply, host.journal.states):
        with pytest.raises(AgentError, match=rf"state/manifest\.json.* holds no valid {key}") as refused:
            act()
        assert refused.value.code == "bad-state"
        assert refused.value.details["mend"].endswith("manifest.json.damaged")
    host.assert_patched()


def test_a_manifest_with_a_mode_or_an_owner_that_no_file_has_is_refused(host: Installation) -> None:
    host.deploy()
    path = host.folder / "state/manifest.json"
    whole = path.read_text()
    for key, value in (("mode", 0o100644), ("uid", 2**32 - 1), ("gid", 2**40)):
        manifest = json.loads(whole)
        manifest["files"][0][key] = value
        path.write_text(json.dumps(manifest))
        with pytest.raises(AgentError, match=f"holds no valid {key}"):
            host.rollback()
    path.write_text(whole)
    host.rollback()
    host.assert_original()


@pytest.mark.parametrize("value", [value for value in ODD if value != 1.5])
def test_an_estimate_of_an_odd_type_is_left_out(host: Installation, value: Any) -> None:
    host.backup()
    (host.folder / "state/loads.json").write_text(json.dumps({"odd": value, "inside": [1.5, value], "good": [2, 1.5]}))
    assert known_loads(host.journal) == {"good": [2, 1.5]}


@pytest.mark.parametrize("value", ["1e400", "NaN", "-Infinity", "1e15", "-0.5", "9000000000000000000"])
def test_an_estimate_that_is_no_time_is_left_out(host: Installation, value: str) -> None:
    host.backup()
    (host.folder / "state/loads.json").write_text(f'{{"odd": [{value}], "good": [1.5]}}')
    assert known_loads(host.journal) == {"good": [1.5]}


@pytest.mark.parametrize(("key", "value"), odd("id", "run", "what", "boot", "pid", "pid_start"))
def test_a_load_s_record_with_a_value_that_cannot_be_is_named_and_ends_nobody(
    host: Installation, key: str, value: Any
) -> None:
    loads, base = Loads(host.journal), host.folder / "state/runs/run-1/load"
    host.backup()
    base.mkdir(parents=True)
    record = {"id": "a", "run": "run-1", "what": "x", "boot": boot_id(), "pid": 4, "pid_start": 1}
    (base / "a.json").write_text(json.dumps({**record, key: value}))
    assert loads.running() == []
    loads.end_all(lambda _: None)
    with pytest.raises(AgentError, match=f"holds no valid {key}") as refused:
        loads.poll("a", "run-1", 0)
    assert refused.value.details["mend"] == f"mv {base}/a.json {base}/a.json.damaged"


def test_how_far_a_load_is_may_be_damaged(host: Installation) -> None:
    base = host.folder / "state/runs/run-1/load"
    host.backup()
    base.mkdir(parents=True)
    record = {"id": "a", "run": "run-1", "what": "x", "boot": "earlier", "pid": 4, "pid_start": 1}
    (base / "a.json").write_text(json.dumps(record))
    (base / "a.progress.json").write_text("[]")
    assert Loads(host.journal).poll("a", "run-1", 0)[0]["progress"] is None


# A damaged record of the server.

RECORDS = ["", "{half", "[]", '{"run": "run-1"}', "\0" * 4096]


@pytest.mark.parametrize("text", RECORDS)
def test_behind_a_damaged_record_all_that_carries_our_mark_is_found_and_ended(
    server_host: ServerHost, text: str
) -> None:
    hidden = "subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(60)'], env={})"
    record = server_host.start(
        f"""
        import pathlib, subprocess, sys, time
        child = {hidden}
        pathlib.Path(sys.argv[1], "child").write_text(str(child.pid))
        time.sleep(60)
        """
    )
    child = server_host.pid("child")
    path = server_host.folder / "state/server.json"
    path.write_text(text)
    status = server_host.fresh().status()
    assert (status["record"], status["alive"], status["exit"]) == (None, False, None)
    assert "server.json" in status["damaged"]
    assert set(status["members"]) == {record["pid"], child}
    with pytest.raises(AgentError, match="a server of ours is running already"):
        server_host.start("pass", token="token-2")
    result = server_host.stop()
    assert set(result["stopped"]) == {record["pid"], child}
    assert "server.json" in result["damaged"]
    assert not alive(record["pid"])
    assert not alive(child)
    assert (server_host.fresh().status()["record"], server_host.fresh().status()["damaged"]) == (None, None)
    assert path.with_name("server.json.damaged").read_text() == text
    assert server_host.start("import time; time.sleep(60)", token="token-3")["pid"]


SERVER_KEYS = "run port log log_offset log_device log_inode boot session session_start pid pid_start".split()  # noqa: SIM905


@pytest.mark.parametrize("key", [*SERVER_KEYS, "mark", "reaper", "command", "steps"])
def test_a_record_with_a_value_that_cannot_be_counts_as_damaged(server_host: ServerHost, key: str) -> None:
    record = server_host.start("import time; time.sleep(60)")
    for param in odd(key):
        value = param.values[1]
        server_host.server.state.write("server.json", {**record, key: value})
        status = server_host.fresh().status()
        assert (status["record"], status["members"]) == (None, [record["pid"]])
        assert status["damaged"].endswith(f"server.json holds no valid {key}")
    assert set(server_host.stop()["stopped"]) == {record["pid"]}
    assert (server_host.folder / "state/server.json.damaged").exists()
    assert server_host.fresh().status()["damaged"] is None


@pytest.mark.parametrize(("key", "value"), odd("pid", "code", "signal"))
def test_how_a_server_ended_is_unknown_where_a_value_cannot_be(server_host: ServerHost, key: str, value: Any) -> None:
    server_host.start("raise SystemExit(7)")
    ended = server_host.gone()["exit"]
    server_host.server.state.write("server.exit.json", {**ended, key: value})
    assert server_host.fresh().status()["exit"] is None
    assert server_host.stop()["how"] == "none"


def test_a_start_over_a_damaged_record_keeps_it_for_a_person(server_host: ServerHost) -> None:
    server_host.server.state.open()
    path = server_host.folder / "state/server.json"
    path.mkdir()  # not even a file
    record = server_host.start("import time; time.sleep(60)")
    assert server_host.fresh().record() == record
    assert path.with_name("server.json.damaged").is_dir()


def test_how_a_server_ended_may_be_damaged_too(server_host: ServerHost) -> None:
    server_host.start("raise SystemExit(7)")
    server_host.gone()
    (server_host.folder / "state/server.exit.json").write_text("{half")
    assert server_host.fresh().status()["exit"] is None
    assert server_host.stop()["how"] == "none"


def test_the_mark_of_another_state_folder_is_not_ours(server_host: ServerHost) -> None:
    StateFolder(str(server_host.folder / "state")).open()
    (server_host.folder / "state/server.json").write_text("{half")
    env = {**os.environ, MARK: "/somebody/else/s"}
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE, env=env) as stranger:
        assert server_host.fresh().status()["members"] == []
        assert server_host.stop()["stopped"] == []
        assert stranger.poll() is None
        stranger.communicate(b"\n")
