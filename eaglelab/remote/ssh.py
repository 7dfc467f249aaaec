"""SSH by Fabric, with its traps closed: host keys are checked, every call has a deadline, bytes stay bytes.

The only module that imports fabric. Commands run on raw channels: `Connection.run` is quadratic in its output,
feeds stdin a character at a time and reports a lost link as an exit status.
"""

from __future__ import annotations

import logging
import os
import shlex
import socket
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import fabric
import paramiko
from paramiko.hostkeys import InvalidHostKey

from eaglelab.remote.endpoint import Endpoint, refuse_unless_loopback
from eaglelab.remote.pipe import LinkLost, Pipe, Silent
from eaglelab.remote.proxy import Proxy
from eaglelab.remote.refusals import Refusals

__all__ = ["SshLink", "remote_command"]

# Paramiko logs the tracebacks of its thread. Nobody listens by default, and Python then prints them.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

_KEEPALIVE_S = 15
_UNACKNOWLEDGED_MS = 30_000
_END_S = 2.0

_BROKEN = (OSError, paramiko.SSHException, EOFError)

_SIGNATURES = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}
"""How a key of a type signs, where that has another name."""

_HOST_KEYS = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
)


class SshLink:
    """One SSH connection to one host, opened when it is first needed."""

    def __init__(self, name: str, endpoint: Endpoint, *, default_host: bool = False) -> None:
        self.name = name
        self._endpoint = endpoint
        self._refusals = Refusals(name, endpoint, default_host=default_host)
        self._connection: Any = None
        self._socket: socket.socket | None = None
        self._proxy: Proxy | None = None

    def open(self, command: Sequence[str]) -> Pipe:
        transport = self._transport()
        timeout = self._endpoint.connect_timeout
        try:
            channel = transport.open_session(timeout=timeout)
            channel.settimeout(timeout)
            channel.exec_command(remote_command(command))
        except _BROKEN as error:
            self.close()
            raise LinkLost(
                f"the connection broke while a command was started: {error or type(error).__name__}", where=self.name
            ) from error
        return _SshPipe(channel, self.name)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            # Connection.close leaves alone what is broken or half open, and Paramiko its timer: the program would not
            # end before that has run out.
            transport = connection.client.get_transport()
            if transport is not None:
                transport.packetizer.complete_handshake()
            connection.client.close()
        way, self._socket = self._socket, None
        if way is not None:
            way.close()
        proxy, self._proxy = self._proxy, None
        if proxy is not None:
            proxy.close()

    def _transport(self) -> paramiko.Transport:
        if self._connection is None or not self._connection.is_connected:
            self.close()
            self._connect()
        transport: paramiko.Transport = self._connection.transport
        return transport

    def _connect(self) -> None:
        end = self._endpoint
        refuse_unless_loopback(end, os.environ)
        self._connection = fabric.Connection(
            end.address,
            user=end.user,
            port=end.port,
            config=fabric.Config(lazy=True, overrides={"load_ssh_configs": False}),
        )
        client = self._connection.client
        client.set_missing_host_key_policy(paramiko.RejectPolicy())
        try:
            for path in end.known_hosts:
                if Path(path).exists():
                    client.get_host_keys().load(path)
            self._connection.connect_kwargs = {
                "key_filename": list(end.keys),
                "look_for_keys": False,
                "allow_agent": not end.identities_only,
                "timeout": end.connect_timeout,  # Fabric's own cuts it to whole seconds
                "banner_timeout": end.connect_timeout,
                "auth_timeout": max(end.connect_timeout, 30),
                "channel_timeout": end.connect_timeout,
                "disabled_algorithms": {"keys": _unknown_key_types(client.get_host_keys().lookup(end.known_as))},
                "sock": self._way(),
            }
            self._connection.open()
        except (*_BROKEN, ValueError, InvalidHostKey) as error:  # ValueError: a damaged key file
            said = self._proxy.errors() if self._proxy else ""
            self.close()
            raise self._refusals.explain(error, said) from error
        except BaseException:
            self.close()
            raise
        self._connection.transport.set_keepalive(_KEEPALIVE_S)

    def _way(self) -> socket.socket:
        end = self._endpoint
        if end.proxy_command:
            self._proxy = Proxy(end.proxy_command)
            self._socket = self._proxy.socket
            return self._socket
        self._socket = socket.create_connection((end.address, end.port), end.connect_timeout)
        # Paramiko leaves Nagle's algorithm on, which costs 45 ms a command.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # A send that nobody acknowledges would else block for a quarter of an hour.
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_MS)
        return self._socket


def _unknown_key_types(known: Iterable[str] | None) -> list[str]:
    """Host key types to leave out because known_hosts has others for this host; none where it has no key at all.

    Else the server may show a key that nobody has seen, though it also has the one that is known: a false alarm.
    """
    wanted = {name for kind in known or () for name in _SIGNATURES.get(kind, (kind,))}
    return [kind for kind in _HOST_KEYS if kind not in wanted] if wanted else []


def remote_command(words: Sequence[str]) -> str:
    """A command line for the login shell there: every word quoted, but for a leading `~/` that it must expand.

    `exec` drops the shell, so that the command itself sees the channel close.
    """
    first, *rest = words
    program = "~/" + shlex.quote(first[2:]) if first.startswith("~/") else shlex.quote(first)
    return " ".join(["exec", program, *(shlex.quote(word) for word in rest)])


class _SshPipe:
    def __init__(self, channel: paramiko.Channel, name: str) -> None:
        self._channel = channel
        self._name = name

    def send(self, data: bytes, timeout: float) -> None:
        self._channel.settimeout(timeout)
        try:
            self._channel.sendall(data)
        except TimeoutError as error:
            raise Silent(f"the host took nothing for {timeout:.0f} s", where=self._name) from error
        except _BROKEN as error:
            raise self._broke(error) from error

    def receive(self, timeout: float) -> bytes:
        self._channel.settimeout(timeout)
        try:
            return bytes(self._channel.recv(1 << 20))
        except TimeoutError as error:
            raise Silent(f"no answer for {timeout:.0f} s", where=self._name) from error
        except _BROKEN as error:
            raise self._broke(error) from error

    def _broke(self, error: Exception) -> LinkLost:
        return LinkLost(f"the connection broke: {error or type(error).__name__}", where=self._name)

    def ended(self) -> tuple[int | None, str]:
        if not self._channel.status_event.wait(_END_S):
            return None, ""
        code = self._channel.recv_exit_status()
        self._channel.settimeout(_END_S)
        try:
            text = self._channel.recv_stderr(1 << 16).decode(errors="replace")
        except OSError:
            text = ""
        return (code if code >= 0 else None), text

    def close(self) -> None:
        if self._channel.closed:
            return  # the connection went first
        try:
            self._channel.shutdown_write()
            self._channel.status_event.wait(_END_S)
            self._channel.close()
        except _BROKEN:
            return  # closed enough
