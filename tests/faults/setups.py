"""What a point needs around its command: arranged before it, and taken away again before the host is put back."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from kinds.files import STRANGER
from nursery import Done
from stage import Stage

__all__ = ["SETUPS", "mend", "missing"]

DISK_BYTES = 80 << 20
"""Above what doctor wants to see free (64 MiB)."""


def missing(setup: str) -> str | None:
    """Why this machine cannot play a point with that setup; None if it can."""
    if setup == "small-disk" and not _may_mount():
        return "may not mount a file system"
    if setup == "lift-immutable" and not _may_freeze():
        return "may not make a file immutable (chattr +i)"
    return None


@cache
def _may_mount() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        if not _works("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder):
            return False
        return _works("umount", folder)


@cache
def _may_freeze() -> bool:
    with tempfile.NamedTemporaryFile() as file:
        return _works("chattr", "+i", file.name) and _works("chattr", "-i", file.name)


def _works(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@contextmanager
def plain(_: Stage, __: dict[str, Any]) -> Iterator[None]:
    yield


@contextmanager
def small_disk(stage: Stage, more: dict[str, Any]) -> Iterator[None]:
    """The folder is a file system of its own while the point is played; what is in it then goes back."""
    folder = _folder(stage, more["where"])
    _private(folder)
    kept, mode = stage.folder / "kept", stat.S_IMODE(folder.stat().st_mode)
    shutil.copytree(folder, kept)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode={mode:o}", "tmpfs", folder], check=True)
    shutil.copytree(kept, folder, dirs_exist_ok=True)
    try:
        yield
    finally:
        if _is_read_only(folder):
            subprocess.run(["umount", folder], check=True)
        (folder / ".fill").unlink(missing_ok=True)
        shutil.rmtree(kept)
        shutil.copytree(folder, kept)
        # A server of ours may still write its log there; what is unmounted lazily goes with the last of them.
        subprocess.run(["umount", "-l", folder], check=True)
        shutil.copytree(kept, folder, dirs_exist_ok=True)
        for path in folder.rglob("*"):
            if not (kept / path.relative_to(folder)).exists():
                path.unlink()
        shutil.rmtree(kept)


def _private(folder: Path) -> None:
    """As the agent makes its state folder, where there is none yet."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def _folder(stage: Stage, where: str) -> Path:
    return {"state": stage.state, "package": stage.package, "log": stage.log.parent}[where]


def _is_read_only(folder: Path) -> bool:
    return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)


@contextmanager
def lift_immutable(stage: Stage, more: dict[str, Any]) -> Iterator[None]:
    try:
        yield
    finally:
        file = stage.package / more["file"]
        if file.exists():
            subprocess.run(["chattr", "-i", file], check=True)


@contextmanager
def sick(stage: Stage, more: dict[str, Any]) -> Iterator[None]:
    (stage.home / "sick.json").write_text(json.dumps(more))
    yield


@contextmanager
def stale_lock(stage: Stage, more: dict[str, Any]) -> Iterator[None]:
    """A lock file that nobody holds; in one of them stands the pid of a living stranger."""
    holder = {"by": "nobody@nowhere", "run": "r", "command": "bench", "since": "then", "session": "s", "start": 1}
    pid = stage.bystander if more["text"] == "bystander" else 2**22 - 1
    texts = {"garbage": "{", "empty": ""}
    _private(stage.state)
    (stage.state / "lock").write_text(texts.get(more["text"], json.dumps({**holder, "pid": pid})))
    yield


@contextmanager
def held_lock(stage: Stage, _: dict[str, Any]) -> Iterator[None]:
    """Another operator's agent is at work on this host, and says who it is."""
    _private(stage.state)
    holder = {"by": "somebody@elsewhere", "run": "20260101-bench", "command": "bench", "since": "2026-01-01 00:00:00"}
    with (stage.state / "lock").open("w") as file:
        file.write(json.dumps({**holder, "pid": stage.bystander, "start": 1}))
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def stale_record(stage: Stage, more: dict[str, Any]) -> Iterator[None]:
    """A record of a server that ended long ago, whose numbers a stranger has now."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    pid = stage.bystander
    _private(stage.state)
    record = {
        "run": "20260101-deploy", "port": stage.port, "log": str(stage.log), "log_offset": 0, "log_device": 1,
        "log_inode": 1, "boot": boot, "session": pid, "session_start": 1, "pid": pid, "pid_start": 1,
        "fingerprint": "", "steps": 2, "profile": True, "token": "t",
    }  # fmt: skip
    if more["what"] == "other-boot":
        start = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
        record.update(boot="0" * 36, session_start=start, pid_start=start)
    elif more["what"] == "reused-session":
        record.update(pid=2**22 - 1)
    (stage.state / "server.json").write_text(json.dumps(record))
    yield


SETUPS: dict[str, Callable[[Stage, dict[str, Any]], AbstractContextManager[None]]] = {
    "": plain,
    "deployed": plain,
    "stranger": plain,
    "small-disk": small_disk,
    "lift-immutable": lift_immutable,
    "sick": sick,
    "stale-lock": stale_lock,
    "held-lock": held_lock,
    "stale-record": stale_record,
}


def mend(stage: Stage, more: dict[str, Any], done: Done) -> list[str]:
    """After a rollback that left a stranger's file alone: what a person does then. Returns what is not as it should be.

    With exit 3 the message holds the command to type; else the file was never ours, and must hold just the stranger's
    bytes.
    """
    if done.code == 3:
        found = re.search(r"on the host: (.*), then: invoke rollback", done.err)
        if found is None:
            return [f"exit 3 without a command that mends the file: {done.err[-400:]}"]
        for command in found[1].split(" && "):
            subprocess.run(shlex.split(command), check=True)
        return []
    file, before = stage.package / more["file"], stage.bytes_of(more["file"])
    if file.exists() and file.read_bytes() not in (before, before + STRANGER):
        return [f"{more['file']} is neither the original nor the stranger's"]
    file.write_bytes(before)
    file.chmod(0o640)
    return []
