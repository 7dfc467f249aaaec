"""Backup, apply and rollback, for every state that a file can be in."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from hostkit import MODULE, ORIGINAL, PATCHED, Installation, digest, temporaries

from eaglelab.remote.agent.contents import parse_contents
from eaglelab.remote.agent.journal import Journal
from eaglelab.remote.agent.wire import AgentError

EDITED = PATCHED + b"# edited by a colleague\n"
NEWER = b"def forward(batch, stream):\n    return batch\n"


def states(host: Installation) -> dict[str, str]:
    return {Path(item["path"]).name: item["state"] for item in host.journal.states()}


def notes(host: Installation) -> list[dict[str, object]]:
    return [json.loads(line) for line in (host.folder / "state/journal.jsonl").read_bytes().splitlines()]


def test_a_deploy_and_a_rollback_end_at_the_first_byte_again(host: Installation) -> None:
    host.deploy()
    host.assert_patched()
    assert set(states(host).values()) == {"patched"}
    result = host.rollback()
    assert [item["state"] for item in result["files"]] == ["restored", "restored", "removed"]
    host.assert_original()
    assert host.journal.states() == []


def test_all_of_it_twice_changes_nothing_the_second_time(host: Installation) -> None:
    host.deploy()
    before = {path: Path(path).stat().st_ino for path in host.contents}
    host.backup()
    assert [change["changed"] for change in host.apply()] == [False, False, False]
    assert {path: Path(path).stat().st_ino for path in host.contents} == before
    assert not host.rollback()["nothing"]
    assert host.rollback() == {"nothing": True, "files": []}
    host.assert_original()


def test_the_second_backup_keeps_the_first_original(host: Installation) -> None:
    host.deploy()
    manifest = host.backup()
    by_name = {Path(entry["path"]).name: entry for entry in manifest["files"]}
    assert by_name["eagle_worker.py"]["original"] == digest(ORIGINAL)
    assert by_name["probe.py"]["original"] is None


def test_a_rollback_without_a_manifest_has_nothing_to_do(host: Installation) -> None:
    assert host.rollback() == {"nothing": True, "files": []}
    host.assert_original()


def test_a_rollback_after_a_backup_only_finds_all_original(host: Installation) -> None:
    host.backup()
    result = host.rollback()
    assert result["nothing"]
    assert {item["state"] for item in result["files"]} == {"original"}
    assert host.journal.read("manifest.json") is None


def test_the_manifest_that_was_rolled_back_is_kept_as_history(host: Installation) -> None:
    host.deploy()
    host.rollback()
    kept = host.journal.read("history/run-1.json")
    assert kept is not None
    assert (kept["run"], kept["rolled_back_by"]) == ("run-1", "run-2")
    assert [note["op"] for note in notes(host)][-1] == "rollback"


def test_a_file_that_a_colleague_edited_is_left_alone_and_named(host: Installation) -> None:
    host.deploy()
    host.workers[0].write_bytes(EDITED)
    assert states(host)["eagle_worker.py"] == "foreign"
    for _ in range(2):
        found = {Path(item["path"]).name: item for item in host.rollback()["files"]}
        assert found["eagle_worker.py"]["state"] == "foreign"
        assert found["eagle_worker.py"]["found"] == digest(EDITED)
        assert Path(found["eagle_worker.py"]["kept"]).read_bytes() == ORIGINAL
        assert host.workers[0].read_bytes() == EDITED
    assert host.workers[1].read_bytes() == ORIGINAL
    assert not host.module.exists()
    assert host.journal.read("manifest.json") is not None


def test_after_the_stored_original_is_copied_back_by_hand_a_rollback_completes(host: Installation) -> None:
    host.deploy()
    host.workers[0].write_bytes(EDITED)
    kept = next(item["kept"] for item in host.rollback()["files"] if item["state"] == "foreign")
    host.workers[0].write_bytes(Path(kept).read_bytes())
    host.workers[0].chmod(0o400)
    assert host.rollback()["files"][1]["state"] == "restored"  # only its mode was wrong
    host.assert_original()


def test_a_missing_file_is_not_invented_again(host: Installation) -> None:
    host.deploy()
    host.workers[0].unlink()
    assert states(host)["eagle_worker.py"] == "missing"
    found = {Path(item["path"]).name: item for item in host.rollback()["files"]}
    assert (found["eagle_worker.py"]["state"], found["eagle_worker.py"]["found"]) == ("foreign", None)
    assert not host.workers[0].exists()
    assert host.workers[1].read_bytes() == ORIGINAL


def test_a_package_that_is_gone_is_named_and_put_back_should_it_return(host: Installation) -> None:
    host.deploy()
    host.package.rename(host.folder / "unmounted")
    assert set(states(host).values()) == {"gone"}
    for _ in range(2):
        found = host.rollback()
        assert (found["nothing"], {item["state"] for item in found["files"]}) == (True, {"gone"})
    (host.folder / "unmounted").rename(host.package)
    host.assert_patched()
    host.rollback()
    host.assert_original()
    assert host.journal.read("manifest.json") is None


def test_what_is_left_of_an_uninstalled_package_is_our_module_and_goes(host: Installation) -> None:
    host.deploy()
    for worker in host.workers:
        worker.unlink()
    assert [item["state"] for item in host.rollback()["files"]] == ["gone", "gone", "removed"]
    assert list(host.package.iterdir()) == []


def test_a_module_that_was_there_before_comes_back(host: Installation) -> None:
    theirs = b"# somebody's own\n"
    host.module.write_bytes(theirs)
    files = [host.entry(host.module, theirs, MODULE), *host.files()[1:]]
    host.backup(files=files)
    host.apply()
    host.rollback()
    assert host.module.read_bytes() == theirs


def test_a_module_of_ours_that_no_manifest_remembers_is_removed_by_the_rollback(host: Installation) -> None:
    host.module.write_bytes(b"an older version of it\n")  # the state folder was lost
    host.backup()
    host.apply()
    host.rollback()
    host.assert_original()


def test_a_worker_that_a_patch_leaves_as_it_is_is_not_taken_away(host: Installation) -> None:
    worker = host.workers[0]
    host.backup(files=[host.entry(worker, ORIGINAL, ORIGINAL)])
    host.rollback()
    assert worker.read_bytes() == ORIGINAL


def test_a_patched_file_without_a_manifest_is_backed_up_from_the_bytes_that_came_along(host: Installation) -> None:
    for worker in host.workers:
        worker.write_bytes(PATCHED)
    host.backup(originals={str(worker): ORIGINAL for worker in host.workers})
    assert host.apply()[1]["changed"] is False
    host.rollback()
    host.assert_original()


def test_a_patched_file_without_a_manifest_and_without_its_original_is_refused(host: Installation) -> None:
    host.workers[0].write_bytes(PATCHED)
    with pytest.raises(AgentError, match="no longer the file that was planned") as refused:
        host.backup()
    assert refused.value.code == "changed"
    assert host.journal.read("manifest.json") is None


def test_originals_that_came_along_wrong_are_refused(host: Installation) -> None:
    host.workers[0].write_bytes(PATCHED)
    with pytest.raises(AgentError) as refused:
        host.backup(originals={str(host.workers[0]): b"something else\n"})
    assert refused.value.code == "changed"


def test_an_upgrade_from_an_older_patch_still_goes_back_to_the_original(host: Installation) -> None:
    older = PATCHED.replace(b"_mark(1)", b"_old_mark(1)")
    host.workers[0].write_bytes(older)
    files = host.files()
    host.backup(originals={str(host.workers[0]): ORIGINAL}, files=files)
    assert states(host)["eagle_worker.py"] == "patched"
    assert host.apply()[1] == {
        "path": str(host.workers[0]),
        "from": digest(older),
        "to": digest(PATCHED),
        "changed": True,
    }
    host.rollback()
    host.assert_original()


def test_an_older_patch_put_back_by_a_crash_is_still_known_as_ours(host: Installation) -> None:
    older = PATCHED.replace(b"_mark(1)", b"_old_mark(1)")
    host.workers[0].write_bytes(older)
    host.backup(originals={str(host.workers[0]): ORIGINAL})
    assert host.rollback()["files"][-2]["state"] == "restored"
    host.assert_original()


def test_a_new_release_over_a_patched_file_becomes_the_new_original(host: Installation) -> None:
    host.deploy()
    host.workers[0].write_bytes(NEWER)  # pip install --upgrade
    patched = NEWER + b"# eaglelab:test\n"
    host.backup(files=[host.entry(host.workers[0], NEWER, patched)])
    host.journal.apply("run-3", {str(host.workers[0]): patched})
    assert {item["state"] for item in host.rollback()["files"]} == {"restored", "removed"}
    assert host.workers[0].read_bytes() == NEWER
    assert host.workers[1].read_bytes() == ORIGINAL
    assert (host.folder / "state/objects" / digest(ORIGINAL)).read_bytes() == ORIGINAL
    assert "superseded" in [note["op"] for note in notes(host)]


def test_an_edited_patched_file_does_not_become_an_original(host: Installation) -> None:
    host.deploy()
    host.workers[0].write_bytes(EDITED)
    stripped = ORIGINAL + b"# edited by a colleague\n"  # what a planner makes of it by taking our lines out
    with pytest.raises(AgentError, match="journal of this host holds the original") as refused:
        host.backup(originals={str(host.workers[0]): stripped}, files=[host.entry(host.workers[0], stripped, PATCHED)])
    assert refused.value.code == "changed"


def test_what_is_not_in_the_manifest_is_not_written(host: Installation) -> None:
    host.backup()
    other = host.package / "other.py"
    other.write_bytes(ORIGINAL)
    with pytest.raises(AgentError) as refused:
        host.journal.apply("run-1", {**host.contents, str(other): PATCHED})
    assert refused.value.code == "no-backup"
    assert other.read_bytes() == ORIGINAL
    assert host.workers[0].read_bytes() == ORIGINAL


def test_bytes_that_were_not_planned_are_not_written(host: Installation) -> None:
    host.backup()
    with pytest.raises(AgentError) as refused:
        host.journal.apply("run-1", {str(host.workers[0]): EDITED})
    assert refused.value.code == "no-backup"
    assert host.workers[0].read_bytes() == ORIGINAL


@pytest.mark.parametrize("bad", [b"def forward(:\n", b"x = 1\0\n", b"\xff\xfe\n", b"(" * 300])
def test_a_patch_that_does_not_compile_changes_no_file(host: Installation, bad: bytes) -> None:
    host.backup(files=[*host.files()[:2], host.entry(host.workers[1], ORIGINAL, bad)])
    with pytest.raises(AgentError) as refused:
        host.journal.apply("run-1", {**host.contents, str(host.workers[1]): bad})
    assert refused.value.code == "does-not-compile"
    host.assert_original()


def test_a_file_changed_between_plan_and_swap_is_left_and_the_others_go_back(host: Installation) -> None:
    host.backup()
    host.workers[1].write_bytes(EDITED)
    with pytest.raises(AgentError, match="was changed by somebody else") as refused:
        host.apply()
    assert refused.value.code == "changed"
    assert host.workers[0].read_bytes() == ORIGINAL
    assert not host.module.exists()
    assert host.workers[1].read_bytes() == EDITED


def test_a_file_changed_in_the_very_moment_of_the_swap_is_left(
    host: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.backup()
    chmod = os.fchmod

    def edit_meanwhile(descriptor: int, mode: int) -> None:
        chmod(descriptor, mode)
        if host.module.exists():  # now the first worker's new content is being written
            host.workers[0].write_bytes(EDITED)

    monkeypatch.setattr(os, "fchmod", edit_meanwhile)
    with pytest.raises(AgentError) as refused:
        host.apply()
    assert refused.value.code == "changed"
    assert host.workers[0].read_bytes() == EDITED
    assert not host.module.exists()
    assert temporaries(host.folder) == []


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_if_one_of_several_files_cannot_be_swapped_all_go_back(
    host: Installation, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    host.backup()
    target = list(host.contents)[failing]
    rename = os.rename

    def refuse(source: str, to: str) -> None:
        if to == target and not refused_once:
            refused_once.append(to)
            raise OSError(5, "Input/output error", to)
        rename(source, to)

    refused_once: list[str] = []
    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(AgentError, match="Input/output error"):
        host.apply()
    host.assert_original()


def test_a_failure_after_the_rename_puts_that_file_back_too(
    host: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.backup()
    note = Journal.note

    def disk_full(journal: Journal, op: str, **what: object) -> None:
        if op == "swapped" and what["path"] == str(host.workers[0]):
            raise AgentError("disk-full", "no space left on the disk")
        note(journal, op, **what)

    monkeypatch.setattr(Journal, "note", disk_full)
    with pytest.raises(AgentError, match="no space left"):
        host.apply()
    host.assert_original()


def test_what_cannot_be_put_back_is_said_and_a_later_rollback_mends_it(
    host: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.backup()
    rename = os.rename

    def break_down(source: str, to: str) -> None:
        if to == str(host.workers[1]):
            monkeypatch.setattr(os, "rename", lambda source, to: (_ for _ in ()).throw(OSError(30, "Read-only", to)))
            raise OSError(30, "Read-only", to)
        rename(source, to)

    monkeypatch.setattr(os, "rename", break_down)
    with pytest.raises(AgentError, match="could not be put back") as refused:
        host.apply()
    assert refused.value.code == "not-reverted"
    assert str(host.workers[0]) in refused.value.what
    monkeypatch.undo()
    host.rollback()
    host.assert_original()


def test_one_file_that_cannot_be_restored_does_not_keep_the_others_from_it(host: Installation) -> None:
    host.deploy()
    host.workers[1].unlink()
    host.workers[1].mkdir()  # cannot be read as a file
    with pytest.raises(AgentError):
        host.rollback()
    assert host.workers[0].read_bytes() == ORIGINAL
    assert not host.module.exists()
    assert host.journal.read("manifest.json") is not None


def test_a_damaged_stored_original_is_never_put_back(host: Installation) -> None:
    host.deploy()
    stored = host.folder / "state/objects" / digest(ORIGINAL)
    stored.chmod(0o600)
    stored.write_bytes(b"half of it")
    with pytest.raises(AgentError, match="no longer has its sha256") as refused:
        host.rollback()
    assert refused.value.code == "backup-damaged"
    assert host.workers[0].read_bytes() == PATCHED
    with pytest.raises(AgentError) as refused:
        host.backup()
    assert refused.value.code == "backup-damaged"


def test_a_damaged_stored_original_is_mended_while_the_file_itself_is_original(host: Installation) -> None:
    host.backup()
    stored = host.folder / "state/objects" / digest(ORIGINAL)
    stored.chmod(0o600)
    stored.write_bytes(b"half of it")
    host.deploy()
    host.rollback()
    host.assert_original()


def test_a_manifest_that_is_not_json_is_named(host: Installation) -> None:
    host.deploy()
    for text in ("{half", "[1, 2]", "7"):
        (host.folder / "state/manifest.json").write_text(text)
        with pytest.raises(AgentError, match=r"manifest\.json is not a JSON object") as refused:
            host.rollback()
        assert refused.value.code == "bad-state"


def test_a_deleted_original_is_a_damaged_backup(host: Installation) -> None:
    host.deploy()
    (host.folder / "state/objects" / digest(ORIGINAL)).unlink()
    for action in (host.rollback, host.backup):
        with pytest.raises(AgentError, match=r"the stored original .* is gone") as refused:
            action()
        assert refused.value.code == "backup-damaged"
    assert host.workers[0].read_bytes() == PATCHED


@pytest.mark.parametrize("key", ["run", "files", "path", "original", "patched", "mode", "uid", "gid"])
def test_a_manifest_that_lacks_something_is_refused_and_nothing_is_touched(host: Installation, key: str) -> None:
    host.deploy()
    path = host.folder / "state/manifest.json"
    manifest = json.loads(path.read_text())
    del (manifest if key in manifest else manifest["files"][0])[key]
    path.write_text(json.dumps(manifest))
    for action in (host.rollback, host.backup, host.apply, host.journal.states):
        with pytest.raises(AgentError, match=key) as refused:
            action()
        assert refused.value.code == "bad-state"
    host.assert_patched()


def test_a_line_that_a_crash_cut_off_does_not_swallow_the_next(host: Installation) -> None:
    host.backup()
    with (host.folder / "state/journal.jsonl").open("ab") as log:
        log.write(b'{"op":"swap","pa')
    host.journal.note("next", run="run-2")
    lines = (host.folder / "state/journal.jsonl").read_bytes().splitlines()
    assert json.loads(lines[-1])["op"] == "next"
    assert json.loads(lines[0])["op"] == "backup"


def test_a_journal_line_is_written_whole_or_not_at_all(host: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    host.backup()
    before = (host.folder / "state/journal.jsonl").read_bytes()
    write = os.write

    def nearly_full(descriptor: int, data: bytes) -> int:
        if len(data) <= 10:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data[:10])

    monkeypatch.setattr(os, "write", nearly_full)
    with pytest.raises(AgentError) as refused:
        host.journal.note("next")
    assert refused.value.code == "disk-full"
    assert (host.folder / "state/journal.jsonl").read_bytes() == before


def test_a_rollback_works_where_nothing_more_can_be_noted(host: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    host.deploy()

    def full(*_: object, **__: object) -> None:
        raise AgentError("disk-full", "no space left on the disk")

    monkeypatch.setattr(Journal, "note", full)
    monkeypatch.setattr(Journal, "write", full)
    host.rollback()
    host.assert_original()
    assert host.journal.read("manifest.json") is None


def test_the_stored_bytes_are_readable_by_their_owner_alone(host: Installation) -> None:
    host.deploy()
    state = host.folder / "state"
    assert (state / "objects").stat().st_mode & 0o777 == 0o700
    assert (state / "manifest.json").stat().st_mode & 0o777 == 0o600
    assert (state / "journal.jsonl").stat().st_mode & 0o777 == 0o600


def test_what_a_living_keeper_is_writing_is_not_swept(host: Installation) -> None:
    host.backup()
    keeper, agent = (
        host.folder / f"state/server.exit.json.eaglelab-{pid}.tmp" for pid in (os.getppid(), 4_194_304 + 1)
    )
    keeper.touch()
    agent.touch()  # of a process that cannot exist
    host.rollback()
    assert keeper.exists()
    assert not agent.exists()


def test_what_cannot_be_swept_does_not_hold_up_a_rollback(host: Installation) -> None:
    host.deploy()
    stuck = host.package / "eagle_worker.py.eaglelab-1.tmp"
    stuck.mkdir()
    host.rollback()
    stuck.rmdir()
    host.assert_original()


def test_joined_bytes_are_taken_apart_by_their_sizes_and_checked() -> None:
    files = [{"path": p, "size": len(d), "sha256": digest(d)} for p, d in (("a", b"one"), ("b", b""), ("c", b"three"))]
    assert parse_contents(files, b"onethree") == {"a": b"one", "b": b"", "c": b"three"}
    with pytest.raises(AgentError, match="bytes for c arrived damaged"):
        parse_contents(files, b"onethre")


def test_a_kept_file_is_named_by_its_content_and_written_once(host: Installation) -> None:
    path = Path(host.journal.keep(".json", b"{}"))
    assert path.parent == host.folder / "state/files"
    assert path.name == digest(b"{}")[:16] + ".json"
    assert path.read_bytes() == b"{}"
    inode = path.stat().st_ino
    assert host.journal.keep(".json", b"{}") == str(path)
    assert path.stat().st_ino == inode
    path.write_bytes(b"edited")
    host.journal.keep(".json", b"{}")
    assert path.read_bytes() == b"{}"
