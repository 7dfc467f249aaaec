"""Processes of this host, read from /proc: who is alive, who belongs to a session, who listens on a port."""

from __future__ import annotations

import os
import pwd
import re
import subprocess
from typing import Any, Callable, Sequence

__all__ = [
    "boot_id",
    "descendants",
    "describe",
    "gpu_processes",
    "listener",
    "parent_of",
    "process_ids",
    "process_name",
    "session_members",
    "set_process_name",
    "start_ticks",
    "started",
    "user_name",
    "without_secrets",
    "writes_to",
]

_SECRET_FLAG = re.compile(r"[-_](key|token|secret|password|passwd)$")


def boot_id() -> str:
    """Changes with every boot, so that a pid recorded before a reboot is never taken for a living one."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the third (state) on; the second, the name, may hold blanks and brackets."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            text = file.read().decode(errors="replace")
    except OSError:
        return None
    return text[text.rindex(")") + 2 :].split()


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None if it is gone or only a zombie.

    Together with the pid it names one process: pids are used again, start times are not.
    """
    fields = _stat(pid)
    if fields is None or fields[0] in "ZX":
        return None
    return int(fields[19])


def started(pid: int) -> int | None:
    """As `start_ticks`, also for a zombie: it keeps its pid until it is collected."""
    fields = _stat(pid)
    return None if fields is None else int(fields[19])


def parent_of(pid: int) -> int | None:
    """0 where the parent is none that is seen from here; None if the process is gone or only a zombie."""
    fields = _stat(pid)
    return None if fields is None or fields[0] in "ZX" else int(fields[1])


def process_name(pid: int) -> str:
    """The short name that `ps` and `top` show; empty if the process is gone."""
    try:
        with open("/proc/%d/comm" % pid, errors="replace") as file:
            return file.read().rstrip("\n")
    except OSError:
        return ""


def set_process_name(name: str) -> None:
    """This process's own, at most 15 bytes."""
    try:
        with open("/proc/self/comm", "w") as file:
            file.write(name)
    except OSError:
        pass  # a hardened host: it keeps the name of its Python


def process_ids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def session_members(session: int, leader_start: int, ours: Callable[[int], bool]) -> set[int]:
    """Living processes of the session whose leader was started at `leader_start`.

    While a session has members, the kernel gives its number to nobody else. So one member that is `ours` proves them
    all. Where the leader is gone that proof is needed: the session may have ended, and a stranger's daemon, whose
    leader is gone as well, may have got its number.
    """
    leader = started(session)
    if leader is not None and leader != leader_start:
        return set()
    found = set()
    for pid in process_ids():
        fields = _stat(pid)
        if fields is not None and fields[0] not in "ZX" and int(fields[3]) == session:
            found.add(pid)
    return found if leader is not None or any(ours(pid) for pid in found) else set()


def writes_to(pid: int, device: int, inode: int) -> bool:
    """Whether stdout or stderr of the process is that file, also after it was renamed or deleted."""
    for descriptor in (1, 2):
        try:
            info = os.stat("/proc/%d/fd/%d" % (pid, descriptor))
        except OSError:
            continue
        if (info.st_dev, info.st_ino) == (device, inode):
            return True
    return False


def descendants(root: int) -> set[int]:
    """`root` and all living processes below it."""
    children: dict[int, list[int]] = {}
    for pid in process_ids():
        fields = _stat(pid)
        if fields is not None and fields[0] not in "ZX":
            children.setdefault(int(fields[1]), []).append(pid)
    found, todo = set(), [root]
    while todo:
        pid = todo.pop()
        if pid not in found:
            found.add(pid)
            todo.extend(children.get(pid, []))
    return found


def describe(pid: int) -> dict[str, Any]:
    """pid, user and command line, for naming a process to a person."""
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            words = file.read().decode(errors="replace").strip("\0 ").split("\0")
        uid = os.stat("/proc/%d" % pid).st_uid
    except OSError:
        return {"pid": pid, "user": "?", "command": "(gone)"}
    shown = " ".join(without_secrets(words))[:500]
    # Another user's command line goes to our user's terminal: it may hold commands for that.
    printable = "".join(letter if letter.isprintable() else "?" for letter in shown)
    return {"pid": pid, "user": user_name(uid), "command": printable}


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)  # containers run under numbers that nobody named


def without_secrets(command: Sequence[str]) -> list[str]:
    """A command line that may be written down: the values of `--api-key` and its like are `***`."""
    shown: list[str] = []
    hide = False
    for word in command:
        flag, equals, _ = word.partition("=")
        secret = _SECRET_FLAG.search(flag) is not None
        shown.append("***" if hide else flag + "=***" if secret and equals else word)
        hide = secret and not equals
    return shown


def _listening_inodes(port: int) -> set[str]:
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table) as file:
                rows = file.read().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            fields = row.split()
            if fields[3] == "0A" and int(fields[1].rsplit(":", 1)[1], 16) == port:
                inodes.add(fields[9])
    return inodes


def listener(port: int) -> dict[str, Any] | None:
    """Who listens on a TCP port: pid, user, command; None if nobody. pid 0: a process we may not look into."""
    inodes = _listening_inodes(port)
    if not inodes:
        return None
    names = {"socket:[%s]" % inode for inode in inodes}
    for pid in process_ids():
        folder = "/proc/%d/fd" % pid
        try:
            for descriptor in os.listdir(folder):
                if os.readlink(os.path.join(folder, descriptor)) in names:
                    return describe(pid)
        except OSError:
            continue
    return {"pid": 0, "user": "?", "command": "a process of another user"}


def gpu_processes() -> dict[int, str] | None:
    """pid -> used GPU memory (MiB, as printed) for all compute processes; None where there is no nvidia-smi."""
    command = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        return None
    found = {}
    for row in done.stdout.decode(errors="replace").splitlines():
        pid, _, memory = row.partition(",")
        if pid.strip().isdigit():
            found[int(pid)] = memory.strip()
    return found
