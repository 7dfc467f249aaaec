"""What known_hosts says about one host, as OpenSSH reads it: patterns, hashed names, ports, @revoked."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import paramiko
from paramiko.hostkeys import HostKeyEntry

from eaglelab.remote.endpoint import Endpoint

__all__ = ["KnownKeys", "OnlyKnown", "WrongHostKey", "known_keys"]


class WrongHostKey(paramiko.SSHException):
    """The host shows a `key` that is none of its known ones."""

    def __init__(self, key: paramiko.PKey) -> None:
        super().__init__("the host key is not a known one")
        self.key = key


@dataclass(frozen=True)
class KnownKeys:
    """`revoked`: keys (base64) that must not be accepted. `authority`: a certificate would be, which we cannot read."""

    keys: tuple[paramiko.PKey, ...] = ()
    revoked: frozenset[str] = frozenset()
    authority: bool = False


class OnlyKnown(paramiko.MissingHostKeyPolicy):
    """Asked about every host, since Paramiko itself is told of no key: it holds one of a type, and knows no aliases."""

    def __init__(self, known: KnownKeys) -> None:
        self._known = known

    def missing_host_key(self, _client: paramiko.SSHClient, _hostname: str, key: paramiko.PKey) -> None:
        if all(key.get_base64() != good.get_base64() for good in self._known.keys):
            raise WrongHostKey(key)


def known_keys(end: Endpoint) -> KnownKeys:
    """Reads the files of `end`. Raises InvalidHostKey for a damaged line about this host; others are none of ours."""
    names = [end.known_as]
    if end.port != 22 and end.host_key_alias is None:
        names.append(end.address)  # as ssh does where the port is not known by itself
    found: dict[str, list[paramiko.PKey]] = {name: [] for name in names}
    revoked, authority = set(), False
    for marker, patterns, key in _lines(end.known_hosts):
        for name in (name for name in names if _matches(name, patterns)):
            if marker == "@revoked":
                revoked.add(key.split()[1])
            elif marker == "@cert-authority":
                authority = True
            elif entry := HostKeyEntry.from_line(f"{patterns} {key}"):  # None: a type that Paramiko does not know
                found[name].append(entry.key)
    keys = next((found[name] for name in names if found[name]), [])
    good = tuple(key for key in keys if key.get_base64() not in revoked)
    return KnownKeys(good, frozenset(revoked), authority)


def _lines(paths: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    """Marker (or nothing), host patterns, type and key of every line."""
    for path in map(Path, paths):
        readable = path.is_file() and os.access(path, os.R_OK)
        for line in path.read_text(errors="replace").splitlines() if readable else ():
            fields = line.split()
            marker = fields.pop(0) if fields and fields[0].startswith("@") else ""
            if len(fields) >= 3 and not fields[0].startswith("#"):
                yield marker, fields[0], " ".join(fields[1:3])


def _matches(name: str, patterns: str) -> bool:
    found = False
    for pattern in patterns.split(","):
        if pattern.startswith("|"):
            found |= paramiko.HostKeys.hash_host(name, pattern) == pattern
        elif _like(name, pattern.lstrip("!")):
            if pattern.startswith("!"):
                return False
            found = True
    return found


def _like(name: str, pattern: str) -> bool:
    wild = re.escape(pattern.lower()).replace(r"\*", ".*").replace(r"\?", ".")
    return re.fullmatch(wild, name.lower()) is not None
