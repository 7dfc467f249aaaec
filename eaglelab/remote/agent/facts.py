"""What this host is: Python, SGLang and its workers, GPUs, disk, what we did here before."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import Any, Sequence

from eaglelab.remote.agent.checkup import flags_not_known, model_facts, nccl_version, torch_version
from eaglelab.remote.agent.files import describe_file, place_of, sha256
from eaglelab.remote.agent.journal import Journal
from eaglelab.remote.agent.links import link_into_store
from eaglelab.remote.agent.manifest import read_manifest
from eaglelab.remote.agent.marks import port_holder
from eaglelab.remote.agent.meanwhile import Meanwhile
from eaglelab.remote.agent.package import find_installation
from eaglelab.remote.agent.processes import user_name
from eaglelab.remote.agent.server import Server
from eaglelab.remote.agent.shapes import is_number, list_of
from eaglelab.remote.agent.tail import fingerprint
from eaglelab.remote.agent.wire import AgentError

__all__ = ["facts", "gpu_state", "known_loads", "machine", "topology"]


_STATE = ("index", "clocks.sm", "clocks.mem", "temperature.gpu", "power.draw", "clocks_throttle_reasons.active")


def gpu_state() -> list[dict[str, str]]:
    """Clocks (MHz), temperature (C), power (W) and throttle reasons (a bit mask) of each GPU now; none where nothing says."""
    return _query(_STATE)


def topology() -> str:
    """How the GPUs are joined, as `nvidia-smi topo -m` prints it; empty where it says nothing."""
    try:
        done = subprocess.run(
            ["nvidia-smi", "topo", "-m"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=20,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace") if done.returncode == 0 else ""


def _gpus() -> list[dict[str, str]]:
    return _query(("index", "name", "memory.total", "memory.used", "driver_version", "uuid"))


def _query(keys: Sequence[str]) -> list[dict[str, str]]:
    try:
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=" + ",".join(keys), "--format=csv,noheader,nounits"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=20,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    rows = done.stdout.decode(errors="replace").splitlines() if done.returncode == 0 else []
    return [dict(zip(keys, [cell.strip() for cell in row.split(",")])) for row in rows]


def machine(gpus: list[dict[str, str]]) -> str:
    """A short name for this machine with these GPUs, the same as long as it is the same. Containers share a machine-id."""
    try:
        with open("/etc/machine-id") as file:
            name = file.read().strip()
    except (OSError, ValueError):
        name = ""
    parts = [name or socket.gethostname()] + sorted(gpu.get("uuid", "") for gpu in gpus)
    return sha256("\n".join(parts).encode(errors="surrogateescape"))[:16]


def _nearest(path: str) -> str:
    """The path itself, or the folder nearest to it that is there already."""
    while not os.path.exists(path):
        path = os.path.dirname(path) or "/"
    return path


def _free(path: str) -> int:
    disk = os.statvfs(path)
    return disk.f_bavail * disk.f_frsize


def _can_append(log: str) -> bool:
    there = _nearest(log)
    return os.access(there, os.W_OK) and os.path.isdir(there) == (there != log)


def _describe(package: str, path: str) -> dict[str, Any]:
    """The worker that is to be changed: the file behind a link or, where `link` is what that says, the link itself."""
    found, link = describe_file(path), link_into_store(package, path)
    if link is None:
        return found
    info = os.lstat(place_of(path))  # the store may be somebody else's
    return dict(found, path=place_of(path), link=link, uid=info.st_uid, gid=info.st_gid)


def _is_read_only(folder: str) -> bool:
    return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)


def known_loads(journal: Journal) -> dict[str, list[float]]:
    """How long loads took (s), by what was loaded. Only an estimate is lost with a file that is damaged."""
    try:
        found = journal.read("loads.json") or {}
    except AgentError as error:
        if error.code != "bad-state":
            raise
        return {}
    return {key: seconds for key, seconds in found.items() if seconds and list_of(is_number)(seconds)}


def facts(
    journal: Journal,
    python: str,
    sglang: str | None,
    targets: list[str],
    port: int,
    log: str,
    env: dict[str, str],
    models: dict[str, str] | None = None,
    flags: list[str] | None = None,
    launcher: dict[str, Any] | None = None,
    host: str = "127.0.0.1",
) -> dict[str, Any]:
    """Everything that a plan needs, read in one round trip; nothing is changed.

    `targets` are paths below the package; those that exist come back under `files`. `models`: paths of the target and
    the draft, `flags` those of the server, of which is said what they are worth here. `launcher` is as for a start, and
    refused here where it cannot work; `host` is what the server binds to.
    """
    home = os.path.expanduser("~")
    expanded = os.path.expanduser(python)
    server = Server(journal)
    options = dict(launcher or {"name": "process"})
    starter = server.launchers.named(options.pop("name"))
    starter.check(options, host)
    gpus, status = Meanwhile(_gpus), Meanwhile(server.status)  # while Python looks for SGLang
    image = starter.installation(options, targets)
    if image:
        installation = {"package": image.copies, "version": image.version, "others": [], "path": []}
    else:
        installation = find_installation(expanded, sglang, env)
    package = installation["package"]
    paths = {target: os.path.join(package, target) for target in targets}
    files = {target: _describe(package, path) for target, path in paths.items() if os.path.exists(path)}
    folders = {target: {os.path.dirname(paths[target]), os.path.dirname(files[target]["path"])} for target in files}
    now, seen = status.result(), gpus.result()
    holder = port_holder(port, journal.folder) if starter.here else None
    log = os.path.expanduser(log)
    try:
        log_info = os.stat(log)
    except OSError:
        log_info = None
    return {
        "hostname": socket.gethostname(),
        "machine": machine(seen),
        "user": user_name(os.getuid()),
        "home": home,
        "state": journal.folder,
        "python": expanded,
        "python_version": ".".join(str(part) for part in sys.version_info[:3]),
        "torch_version": torch_version(installation["path"]),
        "nccl_version": nccl_version(installation["path"]),
        "package": package,
        "sglang_version": installation["version"],
        "other_packages": installation["others"],
        "image": image.id if image else None,
        "files": files,
        "writable": {target: all(os.access(folder, os.W_OK) for folder in folders[target]) for target in files},
        "read_only": sorted(target for target in files if any(_is_read_only(folder) for folder in folders[target])),
        "disk_free": {
            "SGLang": _free(package),
            "the state folder": _free(_nearest(journal.folder)),
            "the server's log": _free(_nearest(log)),
        },
        "gpus": seen,
        "port_holder": holder,
        "port_is_ours": bool(holder and holder["pid"] in now["members"]),
        "server": now,
        "manifest": read_manifest(journal),
        "states": journal.states(),
        "loads": known_loads(journal),
        "models": model_facts(models or {}),
        "flags": flags_not_known(package, flags) if flags and not image else None,
        "log": log,
        "log_writable": _can_append(log),
        "log_size": log_info.st_size if log_info else 0,
        "log_inode": log_info.st_ino if log_info else None,
        "log_before": fingerprint(log, log_info.st_size) if log_info else None,
    }
