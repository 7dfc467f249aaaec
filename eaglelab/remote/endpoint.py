"""Where an SSH host really is: the inventory's entry, completed by the user's own SSH configuration.

`ssh -G` is asked instead of parsing the configuration again: it knows Include, Match, ProxyJump none and the rest.
"""

from __future__ import annotations

import ipaddress
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eaglelab.errors import HostError, InputError
from eaglelab.host import Host

__all__ = ["Endpoint", "parse_ssh_config", "refuse_unless_loopback", "resolve_endpoint"]

LOOPBACK_ONLY = "EAGLELAB_LOOPBACK_ONLY"
"""While set, no host but this machine is contacted; tests and the demo set it."""


@dataclass(frozen=True)
class Endpoint:
    """What a connection needs. `connect_timeout` in seconds; `identities_only`: offer no keys but `keys`."""

    address: str
    port: int
    user: str
    keys: tuple[str, ...] = ()
    known_hosts: tuple[str, ...] = ()
    proxy_command: str | None = None
    connect_timeout: float = 10.0
    identities_only: bool = False


def parse_ssh_config(text: str) -> dict[str, list[str]]:
    """Output of `ssh -G`: lower-case keyword -> its values, in order."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        keyword, _, value = line.partition(" ")
        found.setdefault(keyword.lower(), []).append(value.strip())
    return found


def _ask_ssh(host: Host) -> dict[str, list[str]]:
    if not shutil.which("ssh"):
        return {}
    command = ["ssh", "-G"]
    if isinstance(host.ssh_config, str):
        command += ["-F", str(Path(host.ssh_config).expanduser())]
    if host.user:
        command += ["-l", host.user]
    if host.port:
        command += ["-p", str(host.port)]
    done = subprocess.run([*command, "--", str(host.address)], capture_output=True, text=True, timeout=20, check=False)
    if done.returncode:
        raise InputError(
            f"your SSH configuration cannot be used: {done.stderr.strip()}",
            where=host.name,
            hint="check it with: ssh -G " + str(host.address),
        )
    return parse_ssh_config(done.stdout)


def _proxy(found: Mapping[str, Sequence[str]], address: str, port: int) -> str | None:
    """A command whose streams are the connection. Jump hosts go through `ssh -W`, so their host keys are checked too."""
    command = found.get("proxycommand", ["none"])[0]
    if command != "none":
        return command
    jump = found.get("proxyjump", ["none"])[0]
    if jump == "none":
        return None
    *before, last = jump.split(",")
    chain = ["-J", ",".join(before)] if before else []
    return shlex.join(["ssh", *chain, "-W", f"{address}:{port}", last])


def resolve_endpoint(host: Host) -> Endpoint:
    """Completes the inventory's entry. Keys and known_hosts files that do not exist are left out, as ssh does."""
    found = _ask_ssh(host) if host.ssh_config else {}
    address = found.get("hostname", [str(host.address)])[0]
    port = host.port or int(found.get("port", ["22"])[0])
    known = (
        [str(host.known_hosts)]
        if host.known_hosts
        else " ".join(
            found.get("userknownhostsfile", ["~/.ssh/known_hosts"]) + found.get("globalknownhostsfile", [])
        ).split()
    )
    keys = [str(host.key)] if host.key else found.get("identityfile", [])
    return Endpoint(
        address=address,
        port=port,
        user=host.user or found.get("user", [os.environ.get("USER", "root")])[0],
        keys=_existing(keys),
        known_hosts=_existing(known),
        proxy_command=_proxy(found, address, port),
        connect_timeout=host.connect_timeout,
        identities_only=bool(host.key) or found.get("identitiesonly", ["no"])[0] == "yes",
    )


def _existing(paths: Sequence[str]) -> tuple[str, ...]:
    expanded = [Path(path).expanduser() for path in paths]
    return tuple(str(path) for path in expanded if path.exists())


def refuse_unless_loopback(address: str, env: Mapping[str, str]) -> None:
    """Raises HostError for any other machine while EAGLELAB_LOOPBACK_ONLY is set."""
    if not env.get(LOOPBACK_ONLY):
        return
    try:
        loopback = ipaddress.ip_address(address).is_loopback
    except ValueError:
        loopback = address == "localhost"
    if not loopback:
        raise HostError(
            f"{address} is not this machine, and {LOOPBACK_ONLY} is set: nothing was contacted",
            hint="--host sim works on the embedded lab",
        )
