"""The lab's keys: one for the host, one for the only client it lets in, and the host's line for known_hosts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import asyncssh

__all__ = ["Keys", "make_keys", "write_known_hosts"]


@dataclass(frozen=True)
class Keys:
    """Where they lie. `authorized` is the client's public key."""

    host: Path
    client: Path
    authorized: Path


def make_keys(folder: Path) -> Keys:
    """New ed25519 keys, private ones readable by the owner only."""
    keys = Keys(folder / "ssh_host_ed25519_key", folder / "id_ed25519", folder / "id_ed25519.pub")
    for private in (keys.host, keys.client):
        key = asyncssh.generate_private_key("ssh-ed25519", comment="eaglelab lab")
        private.touch(mode=0o600)
        key.write_private_key(str(private))
        key.write_public_key(f"{private}.pub")
    return keys


def write_known_hosts(file: Path, address: str, port: int, host_key: Path) -> None:
    """The line that ssh wants for a host on a port of its own."""
    public = Path(f"{host_key}.pub").read_text(encoding="utf-8")
    file.write_text(f"[{address}]:{port} {public}", encoding="utf-8")
