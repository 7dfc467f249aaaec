"""A manifest, a record or an estimate that is damaged: named, gone around, and what is left to do by hand said."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hostkit import Installation
from serverkit import ServerHost, alive

from eaglelab.remote.agent.facts import known_loads
from eaglelab.remote.agent.manifest import read_manifest
from eaglelab.remote.agent.server import MARK
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


def test_a_start_over_a_damaged_record_keeps_it_for_a_person(server_host: ServerHost) -> None:
    server_host.server.state.open()
    path = server_host.folder / "state/server.json"
    path.mkdir()  # not even a file
    record = server_host.start("import time; time.sleep(60)")
    assert server_host.fresh().record() == record
    assert path.with_name("server.json.damaged").is_dir()


def test_how_a_server_ended_may_be_damaged_too(server_host: ServerHost) -> None:
    server_host.start("raise SystemExit(7)")
    server_host.ended()
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
