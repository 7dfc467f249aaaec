"""Where an SSH host really is: the inventory's entry, completed by the user's own SSH configuration.

`ssh -G` is asked instead of parsing the configuration again: it knows Include, Match, ProxyJump none and the rest.
"""

from __future__ import annotations

import getpass
import ipaddress
import os
import re
import shlex
import shutil
import socket
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
    """What a connection needs. `connect_timeout` in seconds; `identities_only`: offer no keys but `keys`.

    `known_hosts`: files that need not exist, the first is where a new key goes. `proxy_command`: a shell command whose
    streams are the connection, nothing in it left to expand. `agent`: the socket of an ssh-agent, `none` for none;
    None for the usual one. `lenient`: the user's StrictHostKeyChecking, where it would let an unknown host in.
    """

    address: str
    port: int
    user: str
    keys: tuple[str, ...] = ()
    known_hosts: tuple[str, ...] = ()
    proxy_command: str | None = None
    connect_timeout: float = 10.0
    identities_only: bool = False
    host_key_alias: str | None = None
    agent: str | None = None
    lenient: str = ""

    @property
    def known_as(self) -> str:
        """The host's name in known_hosts."""
        if self.host_key_alias:
            return self.host_key_alias
        return self.address if self.port == 22 else f"[{self.address}]:{self.port}"


def parse_ssh_config(text: str) -> dict[str, list[str]]:
    """Output of `ssh -G`: lower-case keyword -> its values, in order."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        keyword, _, value = line.partition(" ")
        found.setdefault(keyword.lower(), []).append(value.strip())
    return found


def _config(host: Host) -> list[str]:
    return ["-F", str(Path(host.ssh_config).expanduser())] if isinstance(host.ssh_config, str) else []


def _ask_ssh(host: Host) -> dict[str, list[str]]:
    if not shutil.which("ssh"):
        return {}
    command = ["ssh", "-G", *_config(host)]
    if host.user:
        command += ["-l", host.user]
    if host.port:
        command += ["-p", str(host.port)]
    hint = f"check it with: ssh -G {shlex.quote(str(host.address))}"
    try:
        done = subprocess.run(
            [*command, "--", str(host.address)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=20,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise InputError("ssh -G gave no answer within 20 s", where=host.name, hint=hint) from error
    if done.returncode:
        raise InputError(f"your SSH configuration cannot be used: {done.stderr.strip()}", where=host.name, hint=hint)
    return parse_ssh_config(done.stdout)


def _proxy(
    found: Mapping[str, Sequence[str]], config: Sequence[str], address: str, port: int, user: str, timeout: float
) -> str | None:
    """A command whose streams are the connection. Jump hosts go through `ssh -W`, so their host keys are checked too."""
    command = found.get("proxycommand", ["none"])[0]
    if command != "none":
        # `ssh -G` leaves these to whoever runs the command.
        return _without_tokens(command, {"h": address, "p": str(port), "r": user, "n": address})
    jump = found.get("proxyjump", ["none"])[0]
    if jump == "none":
        return None
    *before, last = jump.split(",")
    chain = ["-J", ",".join(before)] if before else []
    # Nobody is there to answer a question, so none may be asked.
    quiet = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={max(1, round(timeout))}"]
    # A port is understood in a jump host's name, but as a destination only in a URI.
    destination = last if last.startswith("ssh://") else f"ssh://{last}"
    return shlex.join(["ssh", *config, *quiet, *chain, "-W", f"[{address}]:{port}", destination])


def _without_tokens(text: str, values: Mapping[str, str]) -> str:
    """`%h` and the like written out; those that are not in `values` are left."""
    return re.sub("%(.)", lambda match: {**values, "%": "%"}.get(match[1], match[0]), text)


def resolve_endpoint(host: Host) -> Endpoint:
    """Completes the inventory's entry. Raises InputError where that, or the user's SSH configuration, cannot be used."""
    found = _ask_ssh(host) if host.ssh_config else {}
    address = found.get("hostname", [str(host.address)])[0]
    port = host.port or int(found.get("port", ["22"])[0])
    user = host.user or found.get("user", [getpass.getuser()])[0]
    _refuse_odd(host, address, user)
    known = found.get("userknownhostsfile", ["~/.ssh/known_hosts"]) + found.get("globalknownhostsfile", [])
    return Endpoint(
        address=address,
        port=port,
        user=user,
        keys=_keys(host, found, {"h": address, "p": str(port), "r": user, "n": str(host.address)}),
        known_hosts=_expanded([host.known_hosts] if host.known_hosts else " ".join(known).split()),
        proxy_command=_proxy(found, _config(host), address, port, user, host.connect_timeout),
        connect_timeout=host.connect_timeout,
        identities_only=bool(host.key) or found.get("identitiesonly", ["no"])[0] == "yes",
        host_key_alias=found.get("hostkeyalias", [None])[0],
        agent=_agent(found),
        lenient=_LENIENT.get(found.get("stricthostkeychecking", [""])[0], ""),
    )


_LENIENT = {"false": "no", "off": "no", "no": "no", "accept-new": "accept-new"}


def _agent(found: Mapping[str, Sequence[str]]) -> str | None:
    path = found.get("identityagent", ["SSH_AUTH_SOCK"])[0]
    return None if path == "SSH_AUTH_SOCK" else path


def _refuse_odd(host: Host, *names: str) -> None:
    """An address or a user name is put into commands, such as a ProxyCommand, where other text would mean something."""
    for name in names:
        if not re.fullmatch(r"[\w.:%@+\\][\w.:%@+\\-]*", name, re.ASCII):
            raise InputError(
                f"{name!r} is neither an address nor a user's name",
                where=host.name,
                hint="look at `address` and `user` in inventory.yaml, and at HostName and User in your SSH configuration",
            )


def _keys(host: Host, found: Mapping[str, Sequence[str]], tokens: Mapping[str, str]) -> tuple[str, ...]:
    """The inventory's key, which must exist, or those of ssh's usual places that do, if only their public halves."""
    if host.key is None:
        usual = ["~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa"]
        here = {"u": getpass.getuser(), "d": str(Path.home()), "i": str(os.getuid()), "l": socket.gethostname()}
        values = {**here, "L": here["l"].split(".")[0], **tokens}
        paths = [_without_tokens(path, values) for path in found.get("identityfile", usual)]
        return tuple(path for path in _expanded(paths) if Path(path).exists() or Path(f"{path}.pub").exists())
    (key,) = _expanded([host.key])
    if not Path(key).exists():
        raise InputError(
            f"there is no key file {key}", where=host.name, hint="set `key` of this host in inventory.yaml"
        )
    return (key,)


def _expanded(paths: Sequence[str]) -> tuple[str, ...]:
    return tuple(str(Path(path).expanduser()) for path in paths)


def refuse_unless_loopback(endpoint: Endpoint, env: Mapping[str, str]) -> None:
    """Raises HostError for any other machine while EAGLELAB_LOOPBACK_ONLY is set."""
    if not env.get(LOOPBACK_ONLY):
        return
    address = endpoint.address
    if endpoint.proxy_command:
        raise HostError(
            f"{address} is reached through a proxy ({endpoint.proxy_command}), and {LOOPBACK_ONLY} is set: nothing was contacted",
            hint="--host sim works on the embedded lab",
        )
    try:
        loopback = ipaddress.ip_address(address).is_loopback
    except ValueError:
        loopback = address == "localhost"
    if not loopback:
        raise HostError(
            f"{address} is not this machine, and {LOOPBACK_ONLY} is set: nothing was contacted",
            hint="--host sim works on the embedded lab",
        )
