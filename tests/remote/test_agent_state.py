"""A state folder that is not ours alone, and files in it that are not what we wrote."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hostkit import MODULE, ORIGINAL, PATCHED, Installation, digest
from linkkit import client

from eaglelab.errors import AttentionError
from eaglelab.remote.agent.journal import Journal
from eaglelab.remote.agent.kept import state_folder
from eaglelab.remote.agent.lock import Lock
from eaglelab.remote.agent.wire import AgentError
from eaglelab.remote.agent.writing import write_new
from eaglelab.remote.hints import explain

root_only = pytest.mark.skipif(os.getuid() != 0, reason="giving a folder away needs root")


def test_the_state_folder_and_all_in_it_are_this_user_s_alone_whatever_the_umask(host: Installation) -> None:
    before = os.umask(0)
    try:
        host.deploy()
        Lock(host.journal).take({"run": "run-1"})
    finally:
        os.umask(before)
    state = host.folder / "state"
    for path in (state, *state.rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path
    assert {path.name for path in state.iterdir() if path.is_dir()} == {"objects", "history", "runs", "files"}


def open_to_all(folder: Path) -> None:
    folder.chmod(0o755)


def a_link(folder: Path) -> None:
    folder.rename(folder.with_name("moved"))
    folder.symlink_to(folder.with_name("moved"))


def a_file(folder: Path) -> None:
    folder.rename(folder.with_name("moved"))
    folder.write_text("")


def somebody_else_s(folder: Path) -> None:
    os.chown(folder, 4242, 4242)


UNSAFE = [
    pytest.param(open_to_all, r"may be entered by other users \(mode 755\)", "chmod 700 {}", id="mode"),
    pytest.param(a_link, "is a link", "rm {}", id="link"),
    pytest.param(a_file, "is not a folder", "mv {} {}.old", id="file"),
    pytest.param(somebody_else_s, "belongs to 4242", "sudo chown -R root {}", id="owner", marks=root_only),
]


@pytest.mark.parametrize("name", ["", "objects", "history", "runs"])
@pytest.mark.parametrize(("make", "what", "mend"), UNSAFE)
def test_a_state_folder_that_others_may_change_is_refused_with_the_command_that_mends_it(
    host: Installation, name: str, make: Callable[[Path], None], what: str, mend: str
) -> None:
    host.deploy()
    folder = host.folder / "state" / name if name else host.folder / "state"
    make(folder)
    lock = Lock(host.journal)
    looks = (host.journal.states, lock.holder, lambda: host.journal.note("x"))
    acts = (host.backup, host.apply, host.rollback, lambda: lock.take({"run": "run-2"}))
    for act in (*looks, *acts):
        with pytest.raises(AgentError, match=what) as refused:
            act()
        assert refused.value.code == "unsafe-state"
        assert refused.value.details["mend"] == mend.format(folder, folder)
    assert [worker.read_bytes() for worker in host.workers] == [PATCHED, PATCHED]


def test_the_command_that_mends_it_does(host: Installation) -> None:
    host.deploy()
    for name in ("", "objects", "runs"):
        open_to_all(host.folder / "state" / name)
    with pytest.raises(AgentError) as refused:
        host.rollback()
    subprocess.run(refused.value.details["mend"], shell=True, check=True)
    host.rollback()
    host.assert_original()


def test_rollback_and_status_say_so_to_the_user_with_exit_code_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    Journal(str(tmp_path / "eaglelab")).open()
    found = client()
    found.lock({"run": "run-1"})
    open_to_all(tmp_path / "eaglelab")
    for call in ({"op": "status"}, {"op": "rollback", "run": "run-1"}, {"op": "stop", "run": "run-1", "grace": 1.0}):
        with pytest.raises(AttentionError, match="may be entered by other users") as refused:
            found.call(**call)
        assert refused.value.hint == f"on the host: chmod 700 {tmp_path}/eaglelab"
    found.close()
    assert explain({"code": "unsafe-state", "what": "it is so"}, "here").hint


@pytest.mark.parametrize("relative", ["", "state", "./state", "../state", "~/state"])
def test_a_relative_folder_for_states_is_ignored_as_its_specification_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, relative: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", relative)
    assert state_folder() == f"{tmp_path}/.local/state/eaglelab"
    monkeypatch.setenv("XDG_STATE_HOME", f"{tmp_path}/mine")
    assert state_folder() == f"{tmp_path}/mine/eaglelab"


def test_the_folder_that_holds_it_may_be_a_link(host: Installation, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "home").symlink_to(tmp_path / "real")
    journal = Journal(str(tmp_path / "home" / "eaglelab"))
    journal.open()
    journal.note("x")
    assert (tmp_path / "real/eaglelab/journal.jsonl").exists()


@pytest.mark.parametrize("name", ["journal.jsonl", "manifest.json", "server.json", "loads.json"])
def test_a_link_in_the_place_of_a_file_is_not_followed(host: Installation, tmp_path: Path, name: str) -> None:
    host.backup()
    precious = tmp_path / "precious"
    precious.write_text('{"run": "run-1", "files": []}')
    before = precious.read_text()
    (host.folder / "state" / name).unlink(missing_ok=True)
    (host.folder / "state" / name).symlink_to(precious)
    if name == "journal.jsonl":
        with pytest.raises(AgentError, match="symbolic link"):
            host.journal.note("x")
    else:
        with pytest.raises(AgentError, match="symbolic link") as refused:
            host.journal.read(name)
        assert refused.value.code == "bad-state"
    assert precious.read_text() == before


def test_what_lies_in_the_way_of_a_temporary_file_is_neither_followed_nor_kept(tmp_path: Path) -> None:
    precious, target = tmp_path / "precious", tmp_path / "file"
    precious.write_text("keep")
    temporary = tmp_path / f"file.eaglelab-{os.getpid()}.tmp"
    temporary.symlink_to(precious)
    write_new(str(target), b"new")
    assert (target.read_bytes(), precious.read_text(), temporary.is_symlink()) == (b"new", "keep", False)
    temporary.mkdir()
    with pytest.raises(AgentError, match="File exists"):
        write_new(str(target), b"newer")
    assert target.read_bytes() == b"new"


def test_a_temporary_file_that_appears_in_the_last_moment_is_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("keep")
    temporary, opened = tmp_path / f"file.eaglelab-{os.getpid()}.tmp", os.open

    def race(path: Any, *more: Any) -> int:
        if path == str(temporary):
            temporary.symlink_to(precious)
        return opened(path, *more)

    monkeypatch.setattr(os, "open", race)
    with pytest.raises(AgentError, match="File exists"):
        write_new(str(tmp_path / "file"), b"new")
    assert precious.read_text() == "keep"


@pytest.mark.parametrize("kind", ["pipe", "folder", "socket"])
@pytest.mark.parametrize("name", ["journal.jsonl", "manifest.json", "server.json"])
def test_what_is_no_file_in_the_place_of_one_is_named_at_once(host: Installation, name: str, kind: str) -> None:
    host.backup()
    path = host.folder / "state" / name
    path.unlink(missing_ok=True)
    in_the_way(path, kind)
    with pytest.raises(AgentError, match=name.split(".")[0]):
        host.journal.note("x") if name == "journal.jsonl" else host.journal.read(name)


def in_the_way(path: Path, kind: str) -> None:
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        here = os.open(path.parent, os.O_RDONLY)
        try:  # a socket's path is short
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(f"/proc/self/fd/{here}/{path.name}")
        finally:
            os.close(here)
        assert stat.S_ISSOCK(path.lstat().st_mode)
    else:
        path.symlink_to("/none/at/all")


@pytest.mark.parametrize("kind", ["pipe", "folder", "socket", "dangling link"])
@pytest.mark.parametrize("which", ["worker", "module"])
def test_what_takes_a_file_s_place_between_plan_and_swap_stays_and_the_rest_goes_back(
    host: Installation, kind: str, which: str
) -> None:
    host.backup()
    path = host.workers[1] if which == "worker" else host.module
    path.unlink(missing_ok=True)
    in_the_way(path, kind)
    with pytest.raises(AgentError) as refused:
        host.apply()
    assert refused.value.code in ("changed", "not-regular", "not-reverted")
    assert path.name in refused.value.what
    assert os.path.lexists(path)
    assert not path.is_file()
    assert host.workers[0].read_bytes() == ORIGINAL
    states = {Path(item["path"]).name: item for item in host.journal.states()}
    assert states[host.workers[0].name]["state"] == "original"
    if kind != "dangling link":
        assert states[path.name]["state"] == "foreign"
        assert path.name in states[path.name]["problem"]


def test_a_worker_that_vanishes_while_it_is_swapped_is_not_made_again(
    host: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.backup()
    rename, fchmod = os.rename, os.fchmod

    def vanish(descriptor: int, mode: int) -> None:
        fchmod(descriptor, mode)
        if host.module.exists():
            host.workers[0].unlink(missing_ok=True)

    monkeypatch.setattr(os, "fchmod", vanish)
    with pytest.raises(AgentError, match="changed by somebody else"):
        host.apply()
    assert rename is os.rename
    assert not host.workers[0].exists()
    assert not host.module.exists()


def test_a_link_that_is_turned_elsewhere_while_it_is_swapped_leaves_both_files(
    host: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, first, second = host.workers[0], host.folder / "first.py", host.folder / "second.py"
    first.write_bytes(ORIGINAL)
    second.write_bytes(ORIGINAL)
    worker.unlink()
    worker.symlink_to(first)
    host.backup(files=[host.entry(worker, ORIGINAL, PATCHED)])
    fchmod = os.fchmod

    def turn(descriptor: int, mode: int) -> None:
        fchmod(descriptor, mode)
        worker.unlink()
        worker.symlink_to(second)

    monkeypatch.setattr(os, "fchmod", turn)
    with pytest.raises(AgentError) as refused:
        host.journal.apply("run-1", {str(worker): PATCHED})
    assert refused.value.code == "changed"
    assert (first.read_bytes(), second.read_bytes()) == (ORIGINAL, ORIGINAL)


def test_an_empty_worker_and_an_empty_patch_are_files_like_any_other(host: Installation) -> None:
    worker = host.workers[0]
    worker.write_bytes(b"")
    host.backup(files=[host.entry(worker, b"", MODULE)])
    host.journal.apply("run-1", {str(worker): MODULE})
    host.rollback()
    assert worker.read_bytes() == b""


def test_a_clock_that_goes_backwards_changes_nothing(host: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [2e9]
    monkeypatch.setattr(time, "time", lambda: now.__setitem__(0, now[0] - 1e6) or now[0])
    host.deploy()
    host.backup()
    host.apply()
    host.rollback()
    host.assert_original()


def test_a_journal_of_garbage_and_of_a_hundred_megabytes_is_written_on_and_never_read_whole(
    host: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.deploy()
    journal = host.folder / "state/journal.jsonl"
    kept = journal.read_bytes()
    with journal.open("wb") as file:
        file.write(os.urandom(1000))
        file.truncate(100 << 20)
        file.seek(0, os.SEEK_END)
        file.write(b"\n[1]\n7\n{\n" + kept)
    before = bytes_read()
    (host.folder / "state/manifest.json").write_text("{half")
    with pytest.raises(AgentError) as refused:
        host.rollback()
    assert f"cat {host.folder}/state/objects/{digest(ORIGINAL)} > {host.workers[0]}" in refused.value.details["mend"]
    host.journal.note("x")
    assert bytes_read() - before < 10 << 20
    assert json.loads(journal.read_bytes()[-200:].splitlines()[-1])["op"] == "x"


def bytes_read() -> int:
    """By this process so far, wherever they came from."""
    counts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counts["rchar"])
