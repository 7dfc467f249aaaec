"""Keys that an ssh-agent holds: those that fit the key files first, and no others where the user wants that."""

from __future__ import annotations

import base64
import binascii
import os
import socket
from collections.abc import Mapping
from pathlib import Path

import paramiko
from paramiko.agent import AgentKey, AgentSSH

from eaglelab.remote.endpoint import Endpoint

__all__ = ["Keyring", "keyring"]

_OPENSSH = b"openssh-key-v1\0"


class Keyring(AgentSSH):
    """Stands for Paramiko's own agent, which knows one socket only and offers everything."""

    def __init__(self, way: socket.socket, wanted: frozenset[bytes], *, only_wanted: bool) -> None:
        super().__init__()
        self._connect(way)  # type: ignore[attr-defined]
        self._wanted = wanted
        self._only_wanted = only_wanted

    def get_keys(self) -> tuple[AgentKey, ...]:
        keys = super().get_keys()
        fitting = [key for key in keys if key.asbytes() in self._wanted]
        return (*fitting, *(() if self._only_wanted else (key for key in keys if key not in fitting)))

    def close(self) -> None:
        self._close()  # type: ignore[attr-defined]


def keyring(end: Endpoint, env: Mapping[str, str]) -> Keyring | None:
    """What the agent at IdentityAgent, else SSH_AUTH_SOCK, has for this host; None where there is no agent."""
    path = end.agent or env.get("SSH_AUTH_SOCK", "")
    if path in ("", "none"):
        return None
    way = socket.socket(socket.AF_UNIX)
    way.settimeout(end.connect_timeout)
    wanted = frozenset(blob for key in end.keys if (blob := _public(Path(key))))
    try:
        way.connect(os.path.expandvars(path))
        return Keyring(way, wanted, only_wanted=end.identities_only)
    except (OSError, paramiko.SSHException):
        way.close()
        return None


def _public(path: Path) -> bytes | None:
    """The public half of a key, which nobody needs a passphrase to read; None where it cannot be told."""
    beside = path if path.suffix == ".pub" else path.with_name(f"{path.name}.pub")
    try:
        if beside.is_file():
            return base64.b64decode(beside.read_text().split()[1])
        lines = path.read_text().splitlines()
        data = base64.b64decode("".join(line for line in lines if not line.startswith("-")))
    except (OSError, ValueError, IndexError, binascii.Error):
        return None
    if not data.startswith(_OPENSSH):
        return None
    head = paramiko.Message(data[len(_OPENSSH) :])
    for _ in range(3):
        head.get_string()  # the cipher, how its key is made, and with what
    head.get_int()  # how many keys there are: one
    return head.get_string()
