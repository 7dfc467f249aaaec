"""What a file carries beside its bytes: kept by every swap, or the swap does not happen."""

from __future__ import annotations

import errno
import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hostkit import ORIGINAL, PATCHED, Installation, temporaries
from linkkit import interpreters

from eaglelab.remote.agent.wire import AgentError
from eaglelab.remote.hints import explain

root_only = pytest.mark.skipif(os.getuid() != 0, reason="attributes like these need root")


def give(path: Path, name: str, value: bytes) -> None:
    try:
        os.setxattr(path, name, value)
    except OSError as error:
        pytest.skip(f"this file system takes no {name}: {error.strerror}")


def attributes(path: Path) -> dict[str, bytes]:
    return {name: os.getxattr(path, name) for name in os.listxattr(path)}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("user.origin", b"colleague"),
        ("user.empty", b""),
        ("user.bytes", bytes(range(256))),
        pytest.param("trusted.overlay.origin", b"x", marks=root_only),
        pytest.param("security.selinux", b"system_u:object_r:usr_t:s0\0", marks=root_only),
        # version 2, cap_net_bind_service+ep
        pytest.param("security.capability", struct.pack("<5I", 0x02000001, 1 << 10, 0, 0, 0), marks=root_only),
    ],
)
def test_attributes_are_kept_by_patch_and_rollback(host: Installation, name: str, value: bytes) -> None:
    worker = host.workers[0]
    give(worker, name, value)
    before = attributes(worker)
    assert before[name] == value
    host.deploy()
    assert worker.read_bytes() == PATCHED
    assert attributes(worker) == before
    host.rollback()
    assert worker.read_bytes() == ORIGINAL
    assert attributes(worker) == before


@root_only
def test_capabilities_survive_a_swap_that_also_changes_the_owner(host: Installation) -> None:
    worker, files = host.workers[0], host.files()
    value = struct.pack("<5I", 0x02000001, 1 << 10, 0, 0, 0)
    os.chown(worker, 1234, 2345)
    files[1].update(uid=1234, gid=2345)
    give(worker, "security.capability", value)
    host.backup(files=files)
    host.apply()
    assert (worker.stat().st_uid, os.getxattr(worker, "security.capability")) == (1234, value)


def test_an_acl_and_the_mode_that_goes_with_it_are_kept(host: Installation) -> None:
    if shutil.which("setfacl") is None:
        pytest.skip("there is no setfacl here")
    worker = host.workers[0]
    done = subprocess.run(["setfacl", "-m", "u:12345:rw,g:2345:r", worker], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"this file system has no ACLs: {done.stderr.strip()}")

    def shown() -> tuple[str, int]:
        listed = subprocess.run(["getfacl", "-cpn", worker], capture_output=True, text=True, check=True).stdout
        return listed, worker.stat().st_mode & 0o7777

    before, files = shown(), host.files()
    files[1]["mode"] = before[1]
    assert "user:12345:rw-" in before[0]
    host.backup(files=files)
    host.apply()
    assert (worker.read_bytes(), shown()) == (PATCHED, before)
    host.rollback()
    assert (worker.read_bytes(), shown()) == (ORIGINAL, before)


def test_the_acl_that_a_folder_hands_down_is_not_added_to_the_file(host: Installation) -> None:
    # user::rwx user:12345:rw- group::r-- mask::rwx other::---, as the kernel stores it
    entries = [
        (0x01, 7, 0xFFFFFFFF),
        (0x02, 6, 12345),
        (0x04, 4, 0xFFFFFFFF),
        (0x10, 7, 0xFFFFFFFF),
        (0x20, 0, 0xFFFFFFFF),
    ]
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(host.package, "system.posix_acl_default", acl)
    except OSError as error:
        pytest.skip(f"this file system has no ACLs: {error.strerror}")
    host.deploy()
    assert os.listxattr(host.workers[0]) == []
    host.rollback()
    assert os.listxattr(host.workers[0]) == []
    host.assert_original()


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("system.posix_acl_access", "its ACL"),
        ("security.selinux", "its SELinux context"),
        ("security.capability", "its capabilities"),
        ("user.origin", "its attribute user.origin"),
    ],
)
@pytest.mark.parametrize("number", [errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.ENOSPC], ids=errno.errorcode.get)
@pytest.mark.parametrize("step", ["get", "set"])
def test_an_attribute_that_cannot_be_kept_is_named_before_anything_is_swapped(
    host: Installation, monkeypatch: pytest.MonkeyPatch, name: str, shown: str, number: int, step: str
) -> None:
    host.backup()
    worker = str(host.workers[1])

    def refuse(*_: object) -> bytes:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "listxattr", lambda path: [name] if path == worker else [])
    monkeypatch.setattr(os, "getxattr", refuse if step == "get" else lambda path, attribute: b"value")
    monkeypatch.setattr(os, "setxattr", refuse)
    with pytest.raises(AgentError) as refused:
        host.apply()
    assert refused.value.code == "attribute-lost"
    assert refused.value.what == f"{worker} would lose {shown}: {os.strerror(number)}"
    host.assert_original()  # the first worker too
    assert temporaries(host.folder) == []
    assert "nothing was changed" in explain({"code": "attribute-lost", "what": "x"}, "here").hint


def test_an_attribute_that_goes_while_it_is_copied_is_no_loss(
    host: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> bytes:
        raise OSError(errno.ENODATA, os.strerror(errno.ENODATA))

    monkeypatch.setattr(os, "listxattr", lambda path: ["user.x"] if isinstance(path, str) else [])
    monkeypatch.setattr(os, "getxattr", gone)
    host.deploy()
    host.assert_patched()


def test_a_file_system_without_attributes_is_no_reason_to_refuse(
    host: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_here(path: object) -> list[str]:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr(os, "listxattr", none_here)
    host.deploy()
    host.rollback()
    host.assert_original()


@pytest.mark.skipif("3.8" not in interpreters(), reason="no Python 3.8 is installed here")
def test_attributes_are_kept_under_python_3_8(host: Installation) -> None:
    worker = host.workers[0]
    give(worker, "user.origin", b"colleague")
    root = Path(__file__).parents[2]
    script = f"import sys; sys.path[:0] = [{str(root / 'tests/remote')!r}, {str(root)!r}]\n"
    script += "from eaglelab.remote.agent.writing import replace\n"
    script += f"import hashlib; old = open({str(worker)!r}, 'rb').read()\n"
    script += (
        f"replace({str(worker)!r}, hashlib.sha256(old).hexdigest(), b'new', 0o640, {os.getuid()}, {os.getgid()})\n"
    )
    subprocess.run([interpreters()["3.8"], "-S", "-c", script], check=True)
    assert (worker.read_bytes(), os.getxattr(worker, "user.origin")) == (b"new", b"colleague")
