"""Complaints 20 to 28 and 34: what becomes of files that a tool edits."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest
from machine import WORKERS, Machine, released

from eaglelab.patching.marker import strip

pytestmark = pytest.mark.sshd

ID = "eagle3-profile"
GATE = """
name: gate
tasks:
  - {name: Read the host, doctor: {}}
  - {name: Generate, generate: {max_new_tokens: 64}, register: generated}
  - {name: Too slow, fail: {message: "{{ generated.tok_s }} tok/s"}, when: generated.tok_s < 50}
"""
MARK = b"  # eaglelab:eagle3-profile"


def only_insertions(before: bytes, after: bytes) -> bool:
    """Whether `after` is `before` and marked lines in between."""
    return before != after and strip(after, ID) == before


def test_20_a_second_run_adds_no_line(machine: Machine) -> None:
    """The line is added again on every run."""
    machine.install(WORKERS[1])
    first = machine.edit().json["hosts"]["gpu"]
    once = {path.name: (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino) for path in workers(machine)}
    for _ in range(2):
        assert "already in place: nothing changed" in machine.edit().stderr
    assert once == {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino) for path in workers(machine)
    }
    assert first["ok"] is True
    machine.rollback()
    machine.assert_original()


def workers(machine: Machine) -> list[Path]:
    return [machine.worker(name) for name in WORKERS]


def test_21_a_marker_that_stands_twice_is_refused_and_no_block_is_added(machine: Machine) -> None:
    """The block is added again on every run, because its markers are damaged."""
    machine.edit()
    whole = machine.worker().read_bytes()
    ours = [line for line in whole.splitlines(keepends=True) if line.rstrip().endswith(MARK)]
    for damaged in (
        whole.replace(ours[-1], ours[-1] * 2),  # once more than we put it there
        whole.replace(ours[-1], ours[-1].rstrip() + MARK + b"\n"),  # twice on a line
        whole.replace(ours[-1], b""),  # half a block
    ):
        machine.worker().write_bytes(damaged)
        done = machine.edit(code=1)
        assert str(WORKERS[0]) in done.stderr
        assert ours[-1].decode().strip() in done.stderr
        assert machine.worker().read_bytes() == damaged
    machine.worker().write_bytes(whole)
    machine.rollback()
    machine.assert_original()


def test_22_the_same_text_elsewhere_does_not_attract_or_keep_out_a_line(machine: Machine) -> None:
    """The line is not inserted because the same text exists elsewhere in the file."""
    worker = machine.worker()
    before = worker.read_bytes()
    decoy = (
        b"\n\ndef decoy(self, batch):\n"
        b'    """if _e3 is not None: _e3.mark(1)"""\n'
        b"    spec_info = self.draft(batch)\n"
        b"    # if _e3 is not None: _e3.mark(2)\n"
        b"    return self.verify(batch, spec_info)\n"
    )
    plain = machine.edit()
    expected = worker.read_bytes()
    machine.rollback()
    worker.write_bytes(before + decoy)
    machine.edit(accept_drift=True)
    assert "another line" not in plain.stderr
    assert worker.read_bytes() == expected + decoy
    machine.rollback()
    assert worker.read_bytes() == before + decoy


def test_23_an_upgrade_of_the_vendors_code_is_told_from_an_edit_of_it(machine: Machine) -> None:
    """Patching vendor code breaks at each upgrade: `reversed or previously applied`, one file done and one not."""
    machine.install(WORKERS[1])
    worker, second = workers(machine)
    edited = worker.read_bytes().replace(b"self.draft(batch)", b"self.draft(batch, 3)")
    worker.write_bytes(edited)
    done = machine.edit(code=1)
    assert "SGLang 0.5.9 is installed, and this is not the file that came with it" in done.stderr
    assert "self.draft(batch, 3)" in done.stderr
    assert "--accept-drift" in done.stderr
    worker.write_bytes((released("0.5.9") / WORKERS[0]).read_bytes())
    machine.edit()
    ours = worker.read_bytes()
    worker.write_bytes(ours + b"# an edit\n")
    done = machine.edit(code=1, accept_drift=True)
    assert "somebody has edited it since they were written" in done.stderr
    assert "\n+# an edit\n" in done.stderr
    worker.write_bytes(ours)
    for path in (worker, second):  # pip install -U
        shutil.copyfile(released("0.5.12") / path.name, path)
    (machine.package / "version.py").write_text('__version__ = "0.5.12"\n')
    upgraded = {path: path.read_bytes() for path in (worker, second)}
    done = machine.rollback(code=3)
    assert "the file of SGLang 0.5.12 and 0.5.12.post1, installed since the patch went in" in done.stderr
    assert "cp " not in done.stderr  # that would put 0.5.9's worker into 0.5.12
    assert "invoke deploy-profiling --host gpu and then invoke rollback --host gpu" in done.stderr
    assert "known: SGLang 0.5.12" in machine.edit().stderr
    assert all(only_insertions(before, path.read_bytes()) for path, before in upgraded.items())
    machine.rollback()
    assert upgraded == {path: path.read_bytes() for path in upgraded}
    second.write_bytes(upgraded[second].replace(b"self.verify(", b"self.check("))
    machine.edit(code=1, accept_drift=True)
    assert worker.read_bytes() == upgraded[worker]  # all or nothing


@pytest.mark.parametrize("style", ["crlf", "mixed"])
def test_24_every_line_keeps_its_own_newline(machine: Machine, style: str) -> None:
    """CRLF and mixed newlines are damaged."""
    worker = machine.worker()
    lines = worker.read_bytes().splitlines()
    ends = [b"\r\n" if style == "crlf" or number % 2 else b"\n" for number in range(len(lines))]
    before = b"".join(line + end for line, end in zip(lines, ends, strict=True)).rstrip(b"\r\n")
    worker.write_bytes(before)
    machine.edit(accept_drift=True)
    after = worker.read_bytes()
    assert only_insertions(before, after)
    if style == "crlf":
        assert after.count(b"\n") == after.count(b"\r\n")
    machine.rollback()
    assert worker.read_bytes() == before


def test_25_bytes_that_are_no_utf_8_pass_through_untouched(machine: Machine) -> None:
    """Output that is not UTF-8 crashes the tool or is mangled, also where a piece ends in the middle of a character."""
    worker = machine.worker()
    before = b"# -*- coding: latin-1 -*-\n# caf\xe9 \xff\n" + worker.read_bytes().replace(b"\xe2\x80\x99", b"'")
    worker.write_bytes(before)
    written = (b"\xe9\xff\x00 " + "é".encode() * 999 + b"\n") * 40
    machine.behave(raw=written.hex())
    done = machine.serve(accept_drift=True)
    assert only_insertions(before, worker.read_bytes())
    assert (Path(done.json["bundle"]) / "server.log").read_bytes().count("é".encode() * 999) == 40
    assert machine.log.read_bytes().startswith(written)
    machine.rollback()
    assert worker.read_bytes() == before


def test_26_owner_group_and_extended_attributes_are_those_of_the_original(machine: Machine) -> None:
    """Owner, ACL and SELinux context are lost by an edit."""
    worker = machine.worker()
    if os.getuid() == 0:
        os.chown(worker, 4321, 8765)
    try:
        os.setxattr(worker, "user.origin", b"site")
        # An ACL of its own: user 4321 may read (version 2; u::rw-, u:4321:r--, g::r--, m::r--, o::---).
        acl = bytes.fromhex(
            "02000000 01000600ffffffff 02000400e1100000 04000400ffffffff 10000400ffffffff 20000000ffffffff"
        )
        os.setxattr(worker, "system.posix_acl_access", acl)
    except OSError as error:
        pytest.skip(f"this file system has no extended attributes: {error.strerror}")
    before = identity(worker)
    assert set(before[3]) >= {"user.origin", "system.posix_acl_access"}
    machine.edit()
    assert worker.read_bytes() != (released("0.5.9") / WORKERS[0]).read_bytes()
    assert identity(worker) == before
    machine.rollback()
    assert identity(worker) == before


def identity(path: Path) -> tuple[int, int, int, dict[str, bytes]]:
    info = path.stat()
    return info.st_mode, info.st_uid, info.st_gid, {name: os.getxattr(path, name) for name in os.listxattr(path)}


def test_27_the_mode_is_that_of_the_file_there_and_not_of_ours(machine: Machine) -> None:
    """An upload changes the mode: 0640 became 0755."""
    machine.install(WORKERS[1])
    first, second = workers(machine)
    first.chmod(0o640)
    second.chmod(0o604)
    machine.edit()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (first, second)] == [0o640, 0o604]
    machine.rollback()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (first, second)] == [0o640, 0o604]


def test_28_a_link_stays_a_link_and_what_is_no_file_is_refused(machine: Machine) -> None:
    """A symlink is replaced by a file, a hard link leaks the edit into another environment, and even /dev/null was replaced."""
    machine.install(WORKERS[1])
    first, second = workers(machine)
    real, cache = machine.folder / "real.py", machine.folder / "cache.py"
    first.rename(real)
    first.symlink_to(real)
    cache.hardlink_to(second)  # as uv and conda link an environment to their cache
    before = cache.read_bytes()
    machine.edit()
    assert first.readlink() == real
    assert MARK in real.read_bytes()
    assert MARK in second.read_bytes()
    assert cache.read_bytes() == before
    machine.rollback()
    assert first.readlink() == real
    assert second.read_bytes() == before
    first.unlink()
    os.mkfifo(machine.folder / "pipe")  # and not /dev/null, in case this goes wrong
    first.symlink_to(machine.folder / "pipe")
    assert "not a regular file" in machine.edit(code=1).stderr
    assert stat.S_ISFIFO((machine.folder / "pipe").stat().st_mode)
    assert second.read_bytes() == before


def test_34_a_check_changes_nothing_and_says_what_the_run_then_does(machine: Machine) -> None:
    """The dry run lies, or fails on facts that are not true yet."""
    words = ("deploy-profiling", "--check", "--json", "--host", "gpu")
    checked = machine.scene.invoke(*words)
    assert not machine.state.exists()
    machine.assert_original()
    promised = (Path(checked.json["bundle"]) / "patch.diff").read_text()
    assert "would start: " in checked.stderr  # though no patched worker is there yet to be started
    for unknowable in (
        "would wait up to",
        "would ask for 1000 tokens",
        "would look in the log",
        "would make the profile",
    ):
        assert unknowable in checked.stderr
    done = machine.edit()
    assert (Path(done.json["bundle"]) / "patch.diff").read_text() == promised
    assert promised.count("\n+") > 10
    machine.rollback()


def test_34_what_depends_on_a_result_that_is_not_there_yet_is_decided_at_run_time(machine: Machine) -> None:
    """The dry run lies, or fails on facts that are not true yet: here on a throughput that nobody has measured."""
    (machine.scene.folder / "gate.yaml").write_text(GATE)
    done = machine.command("play", "gate", check=True)
    assert "would ask for 64 tokens" in done.stderr
    assert "Too slow" in done.stderr
    assert "decided at run time" in done.stderr
