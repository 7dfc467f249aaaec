"""What the host side is told of a launcher, and how a server is named by who runs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eaglelab.host import Host

__all__ = ["ended", "is_there", "launching", "named", "server_python", "what_runs"]


def launching(host: Host, *, facts: bool = False) -> dict[str, Any]:
    """Arguments of the agent's `start` (or `facts`) that say how this host runs its server; none for a mere process."""
    name = host.server.launcher
    if name == "process":
        return {}
    options = getattr(host.server, name).model_dump(mode="json")
    if name == "slurm":
        del options["queue_timeout"]
        if options["gpus"] is None:
            options["gpus"] = host.server.tp_size
    told = {"launcher": {"name": name, **options}}
    return {**told, "host": host.server.host} if facts else told


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
