"""What the host side is told of a launcher, and how a server is named by who runs it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from eaglelab.host import Host

__all__ = ["cancelled", "ended", "is_there", "launching", "lost", "named", "server_python", "what_runs"]

_NOTHING: Mapping[str, Any] = MappingProxyType({})

_LOST = re.compile(r"Slurm ended job \d+: (node_fail|boot_fail|launch_failed|preempted)|address already in use", re.I)
_CANCELLED = re.compile(r"Slurm ended job \d+: (cancelled|revoked)")


def launching(host: Host, *, facts: bool = False, more: Mapping[str, Any] = _NOTHING) -> dict[str, Any]:
    """Arguments of the agent's `start` (or `facts`) that say how this host runs its server; none for a mere process.

    `more`: options of one start, which do not belong to a setting.
    """
    name = host.server.launcher
    if name == "process":
        return {}
    options = getattr(host.server, name).model_dump(mode="json")
    if name == "slurm":
        for name_of_ours in ("queue_timeout", "array", "idle"):
            del options[name_of_ours]
        if options["gpus"] is None:
            options["gpus"] = host.server.gpus
    told = {"launcher": {"name": name, **options, **more}}
    return {**told, "host": host.server.host} if facts else told


def lost(what: str) -> bool:
    """Whether a server came to nothing for a reason that is not its setting's, so that another try is worth its load:
    its node failed, its job was preempted, somebody took its port."""
    return bool(_LOST.search(what))


def cancelled(what: str) -> bool:
    """Whether somebody has ended its job: it is not submitted again."""
    return bool(_CANCELLED.search(what))


def server_python(host: Host) -> str:
    """The Python that runs the server: the host's, or the one in its image."""
    return host.server.container.python if host.server.launcher == "container" else host.python


def named(record: Mapping[str, Any]) -> str:
    """The server of a record, as one would look for it on the host."""
    launcher = record.get("launcher", "process")
    if launcher == "slurm":
        return f"job {record['job']} of Slurm" if record.get("job") else f"job {record['name']} of Slurm"
    if launcher in ("container", "systemd"):
        return f"{'unit' if launcher == 'systemd' else 'container'} {record.get('unit') or record['name']}"
    return f"pid {record['pid']}"


def is_there(status: Mapping[str, Any]) -> bool:
    """Whether something of our server is left, by the agent's `status`."""
    return bool(status.get("there", status["members"]))


def what_runs(status: Mapping[str, Any]) -> str:
    """What of our server would be ended: its processes, and who runs them where that is not our keeper."""
    record = status["record"] or {}
    if record.get("launcher", "process") == "process":
        return f"{len(status['members'])} processes of our server"
    return f"our server, {named(record)}"


def ended(stopped: Mapping[str, Any], whose: str = "") -> str:
    """The agent's answer to `stop` in words."""
    names = [item for item in stopped["stopped"] if isinstance(item, str)]
    if names:
        return f"{', '.join(names)} ended"
    return f"{len(stopped['stopped'])} processes {whose}ended"
