"""What a swap keeps of a file, and what it does where the file system says no."""

from __future__ import annotations

import contextlib
import errno
import os
import py_compile
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostkit import MODULE, ORIGINAL, PATCHED, Installation, temporaries

from eaglelab.remote.agent.files import describe_file, os_error, read_file, sed
from eaglelab.remote.agent.journal import Journal
from eaglelab.remote.agent.wire import AgentError

root_only = pytest.mark.skipif(os.getuid() != 0, reason="mounts, owners and attributes like these need root")
not_root = pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")


def test_mode_is_kept_by_patch_and_rollback(host: Installation) -> None:
    host.deploy()
    assert host.workers[0].stat().st_mode & 0o7777 == 0o640
    host.rollback()
    host.assert_original()


@root_only
def test_owner_and_group_are_kept_by_patch_and_rollback(host: Installation) -> None:
    files = host.files()
    for entry in files[1:]:
        os.chown(entry["path"], 1234, 2345)
        entry.update(uid=1234, gid=2345)
    host.backup(files=files)
    host.apply()
    for check in (host.apply, host.rollback):
        assert [(path.stat().st_uid, path.stat().st_gid) for path in host.workers] == [(1234, 2345)] * 2
        check()
    assert (host.workers[0].stat().st_uid, host.workers[0].read_bytes()) == (1234, ORIGINAL)


def test_a_symlinked_worker_stays_a_link_and_its_file_is_patched(host: Installation) -> None:
    real = host.folder / "checkout.py"
    host.workers[0].rename(real)
    host.workers[0].symlink_to(real)
    host.deploy()
    assert host.workers[0].is_symlink()
    assert real.read_bytes() == PATCHED
    host.rollback()
    assert host.workers[0].is_symlink()
    assert real.read_bytes() == ORIGINAL
    assert temporaries(host.folder) == []


def test_the_other_name_of_a_hard_linked_worker_keeps_the_original_bytes(host: Installation) -> None:
    cached = host.folder / "uv-cache-entry"
    os.link(host.workers[0], cached)
    host.deploy()
    assert (host.workers[0].read_bytes(), cached.read_bytes()) == (PATCHED, ORIGINAL)
    host.rollback()
    assert (host.workers[0].read_bytes(), cached.read_bytes()) == (ORIGINAL, ORIGINAL)


@pytest.mark.parametrize(
    "data",
    [
        b"def f():\r\n    return 1\r\n",
        b"def f():\n    return 1",
        b"# -*- coding: latin-1 -*-\nname = '\xe9\xff'\n",
        b"\xef\xbb\xbfx = 1\n",
        b"",
        b"x = 1\n" * 20_000,
    ],
    ids=["crlf", "no-final-newline", "not-utf-8", "bom", "empty", "large"],
)
def test_bytes_go_through_untouched(host: Installation, data: bytes) -> None:
    patched = data + b"\r\ny = 2"
    host.workers[0].write_bytes(data)
    host.backup(files=[host.entry(host.workers[0], data, patched)])
    host.journal.apply("run-1", {str(host.workers[0]): patched})
    assert host.workers[0].read_bytes() == patched
    host.rollback()
    assert host.workers[0].read_bytes() == data


def test_the_new_bytes_are_on_the_disk_before_they_take_the_name_and_the_name_after(
    host: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    rename = os.rename
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: seen.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
    )
    monkeypatch.setattr(os, "rename", lambda source, to: (seen.append(f"rename to {to}"), rename(source, to)))
    worker = host.workers[0]
    host.backup(files=[host.entry(worker, ORIGINAL, PATCHED)])
    seen.clear()
    host.journal.apply("run-1", {str(worker): PATCHED})
    log, temporary = f"{host.folder}/state/journal.jsonl", f"{worker}.eaglelab-{os.getpid()}.tmp"
    assert seen == [log, temporary, f"rename to {worker}", str(host.package), log]


def test_stale_bytecode_is_removed_by_patch_and_rollback_and_others_stay(host: Installation) -> None:
    stale = [Path(py_compile.compile(str(worker)) or "") for worker in host.workers]
    other = stale[0].with_name("eagle_worker_utils.cpython-311.pyc")
    other.touch()
    host.backup()
    host.apply()
    assert [path.exists() for path in stale] == [False, False]
    assert other.exists()
    py_compile.compile(str(host.workers[0]))
    host.rollback()
    assert [path.exists() for path in stale] == [False, False]
    assert other.exists()


def test_bytecode_that_cannot_be_removed_keeps_the_patch_out(host: Installation) -> None:
    stuck = host.package / "__pycache__" / "eagle_worker_v2.cpython-311.pyc"
    stuck.mkdir(parents=True)  # not even root can unlink it
    host.backup()
    with pytest.raises(AgentError, match="cannot remove stale bytecode"):
        host.apply()
    stuck.rmdir()
    stuck.parent.rmdir()
    host.assert_original()


def test_bytecode_that_cannot_be_removed_does_not_hold_up_a_rollback(host: Installation) -> None:
    host.deploy()
    stuck = host.package / "__pycache__" / "eagle_worker.cpython-311.pyc"
    stuck.mkdir(parents=True)
    host.rollback()
    stuck.rmdir()
    stuck.parent.rmdir()
    host.assert_original()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.getuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


def fill(disk: Path) -> None:
    with (disk / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    assert os.statvfs(disk).f_bavail == 0


def test_a_full_disk_keeps_every_file_as_it_was(small_disk: Path, tmp_path: Path) -> None:
    host = Installation(tmp_path / "host")
    worker = small_disk / "worker.py"
    worker.write_bytes(ORIGINAL)
    patched = ORIGINAL + b"# " + b"x" * 8000 + b"\n"
    host.backup(files=[*host.files(), host.entry(worker, ORIGINAL, patched)])
    fill(small_disk)
    with pytest.raises(AgentError, match="no space left on the disk") as refused:
        host.journal.apply("run-1", {**host.contents, str(worker): patched})
    assert refused.value.code == "disk-full"
    assert worker.read_bytes() == ORIGINAL
    assert sorted(path.name for path in small_disk.iterdir()) == ["filler", "worker.py"]
    host.assert_original()


def test_a_full_disk_under_the_state_folder_refuses_the_backup_and_nothing_is_patched(
    small_disk: Path, host: Installation
) -> None:
    journal = Journal(str(small_disk / "state"))
    journal.open()
    fill(small_disk)
    with pytest.raises(AgentError) as refused:
        journal.backup("run-1", "test 1", "me@here", host.files(), {})
    assert refused.value.code == "disk-full"
    assert journal.read("manifest.json") is None
    with pytest.raises(AgentError) as refused:
        journal.apply("run-1", host.contents)
    assert refused.value.code == "no-backup"
    host.assert_original()
    assert temporaries(small_disk) == []


def test_a_full_disk_under_the_state_folder_does_not_hold_up_a_rollback(small_disk: Path, host: Installation) -> None:
    journal = Journal(str(small_disk / "state"))
    journal.backup("run-1", "test 1", "me@here", host.files(), {})
    journal.apply("run-1", host.contents)
    fill(small_disk)
    journal.rollback("run-2")
    host.assert_original()
    assert journal.read("manifest.json") is None


@root_only
def test_an_immutable_worker_is_named_and_the_others_go_back(host: Installation) -> None:
    host.backup()
    made = subprocess.run(["chattr", "+i", host.workers[1]], capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"this file system knows no immutable files: {made.stderr.strip()}")
    try:
        with pytest.raises(AgentError, match=r"eagle_worker_v2\.py: operation not permitted") as refused:
            host.apply()
    finally:
        subprocess.run(["chattr", "-i", host.workers[1]], check=True)
    assert refused.value.code == "not-writable"
    host.assert_original()


@root_only
def test_a_read_only_file_system_is_named_and_nothing_is_changed(small_disk: Path, tmp_path: Path) -> None:
    host = Installation(tmp_path / "host")
    worker = small_disk / "worker.py"
    worker.write_bytes(ORIGINAL)
    worker.chmod(0o640)
    host.backup(files=[*host.files(), host.entry(worker, ORIGINAL, PATCHED)])
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(AgentError, match="read-only") as refused:
        host.journal.apply("run-1", {**host.contents, str(worker): PATCHED})
    assert refused.value.code == "read-only"
    host.assert_original()


@not_root
def test_a_folder_that_may_not_be_written_is_named_and_nothing_is_changed(host: Installation) -> None:
    host.backup()
    host.package.chmod(0o555)
    try:
        with pytest.raises(AgentError, match="permission denied") as refused:
            host.apply()
    finally:
        host.package.chmod(0o755)
    assert refused.value.code == "not-writable"
    host.assert_original()


def test_a_state_folder_that_cannot_be_made_is_named(host: Installation) -> None:
    (host.folder / "state").write_text("in the way")
    with pytest.raises(AgentError, match="is not a folder"):
        host.backup()
    with pytest.raises(AgentError, match="cannot make the state folder"):
        Journal("/proc/none/eaglelab").open()


def test_a_pipe_is_refused_before_it_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(AgentError, match="is not a regular file") as refused:
            describe_file(str(path))
        assert refused.value.code == "not-regular"


def test_a_file_is_described_with_its_links_resolved(tmp_path: Path) -> None:
    (tmp_path / "real.py").write_bytes(MODULE)
    (tmp_path / "real.py").chmod(0o604)
    (tmp_path / "link.py").symlink_to("real.py")
    found, data = read_file(str(tmp_path / "link.py"))
    assert data == MODULE
    assert (found["path"], found["asked"]) == (str(tmp_path / "real.py"), str(tmp_path / "link.py"))
    assert (found["mode"], found["size"], found["links"]) == (0o604, len(MODULE), 1)


def test_a_missing_file_and_a_dangling_link_are_no_such_file(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to("nowhere")
    for name in ("missing", "dangling"):
        with pytest.raises(AgentError) as refused:
            read_file(str(tmp_path / name))
        assert refused.value.code == "no-such-file"


def test_sed_reads_lines_by_number_and_keeps_every_byte(tmp_path: Path) -> None:
    worker = tmp_path / "a b;c.py"
    worker.write_bytes(b"one\r\ntwo \xe9\xff\n\nfour\x00\nfive")
    lines = sed(str(worker), [(1, 2), (4, 9)])
    assert {number: text.encode("latin-1") for number, text in lines.items()} == {
        1: b"one\r",
        2: b"two \xe9\xff",
        4: b"four\x00",
        5: b"five",
    }


def test_sed_on_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match="No such file"):
        sed(str(tmp_path / "missing.py"), [(1, 1)])


def test_a_host_without_sed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AgentError, match="cannot run sed") as refused:
        sed(str(tmp_path / "worker.py"), [(1, 1)])
    assert refused.value.code == "sed-failed"


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, "disk-full"),
        (errno.EDQUOT, "disk-full"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "not-writable"),
        (errno.EPERM, "not-writable"),
        (errno.ENOENT, "no-such-file"),
        (errno.EIO, "os-error"),
    ],
)
def test_the_system_s_refusals_have_a_code_each(number: int, code: str) -> None:
    error = os_error(OSError(number, os.strerror(number), "/a/file"), "cannot write /a/file")
    assert error.code == code
    assert error.details == {"path": "/a/file"}
