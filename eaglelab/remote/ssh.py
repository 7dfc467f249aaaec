"""SSH by Fabric, with its traps closed: host keys are checked, every call has a deadline, bytes stay bytes.

The only module that imports fabric. Commands run on raw channels: `Connection.run` is quadratic in its output,
feeds stdin a character at a time and reports a lost link as an exit status.
"""

from __future__ import annotations

import os
import shlex
import socket
from collections.abc import Sequence
from typing import Any

import fabric
import paramiko

from eaglelab.errors import HostError
from eaglelab.remote.endpoint import Endpoint, refuse_unless_loopback
from eaglelab.remote.pipe import LinkLost, Pipe

__all__ = ["SshLink"]

_KEEPALIVE_S = 15


class SshLink:
    """One SSH connection to one host, opened when it is first needed."""

    def __init__(self, name: str, endpoint: Endpoint, *, default_host: bool = False) -> None:
        self.name = name
        self._endpoint = endpoint
        self._default_host = default_host
        self._connection: Any = None

    def open(self, command: Sequence[str]) -> Pipe:
        transport = self._transport()
        timeout = self._endpoint.connect_timeout
        try:
            channel = transport.open_session(timeout=timeout)
            channel.settimeout(timeout)
            channel.exec_command(remote_command(command))
        except (paramiko.SSHException, OSError, EOFError) as error:
            self.close()
            raise LinkLost(
                f"the connection broke while a command was started: {error or type(error).__name__}", where=self.name
            ) from error
        return _SshPipe(channel, self.name)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _transport(self) -> paramiko.Transport:
        if self._connection is None or not self._connection.is_connected:
            self._connection = self._connect()
        transport: paramiko.Transport = self._connection.transport
        return transport

    def _connect(self) -> Any:
        end = self._endpoint
        refuse_unless_loopback(end.address, os.environ)
        connection = fabric.Connection(
            end.address,
            user=end.user,
            port=end.port,
            connect_timeout=end.connect_timeout,
            gateway=end.proxy_command,
            config=fabric.Config(lazy=True, overrides={"load_ssh_configs": False}),
            connect_kwargs={
                "key_filename": list(end.keys),
                "look_for_keys": False,
                "allow_agent": not end.identities_only,
                "banner_timeout": end.connect_timeout,
                "auth_timeout": max(end.connect_timeout, 30),
                "channel_timeout": end.connect_timeout,
            },
        )
        connection.client.set_missing_host_key_policy(paramiko.RejectPolicy())
        try:
            for path in end.known_hosts:
                connection.client.load_system_host_keys(path)
            connection.open()
        except Exception as error:
            connection.close()
            raise self._explain(error) from error
        transport = connection.transport
        transport.set_keepalive(_KEEPALIVE_S)
        if isinstance(transport.sock, socket.socket):
            transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _explain(self, error: Exception) -> HostError:
        """Paramiko's many exceptions as what happened and what to type next."""
        end = self._endpoint
        place = f"{self.name} ({end.user}@{end.address} port {end.port})"
        known = end.known_hosts[0] if end.known_hosts else "~/.ssh/known_hosts"
        lookup = end.address if end.port == 22 else f"[{end.address}]:{end.port}"
        scan = f"ssh-keyscan -p {end.port} {end.address} >> {known}"
        if isinstance(error, paramiko.BadHostKeyException):
            return HostError(
                "the host key is not the one in known_hosts: the machine was reinstalled, or somebody is in between",
                where=place,
                hint=f"if you know why it changed: ssh-keygen -R '{lookup}' -f {known} && {scan}",
            )
        if isinstance(error, paramiko.AuthenticationException) and "timeout" not in str(error).lower():
            tried = ", ".join(end.keys) or "none found"
            return HostError(
                f"the host refused the login (keys tried: {tried})",
                where=place,
                hint=f"try: ssh -p {end.port} {end.user}@{end.address}; set `user` and `key` in inventory.yaml",
            )
        if isinstance(error, paramiko.SSHException) and "not found in known_hosts" in str(error):
            return HostError("the host key is not known", where=place, hint=f"after checking the fingerprint: {scan}")
        if isinstance(error, (paramiko.SSHException, OSError, EOFError)):
            away = "; to try things out without a GPU host: --host sim" if self._default_host else ""
            text = str(error) or type(error).__name__
            return LinkLost(
                f"cannot be reached: {text}", where=place, hint=f"try: ssh -p {end.port} {end.user}@{end.address}{away}"
            )
        return HostError(f"cannot be reached: {type(error).__name__}: {error}", where=place)


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
        except (OSError, paramiko.SSHException, EOFError) as error:
            raise LinkLost(f"the connection broke: {error or type(error).__name__}", where=self._name) from error

    def receive(self, timeout: float) -> bytes:
        self._channel.settimeout(timeout)
        try:
            data = self._channel.recv(1 << 20)
        except TimeoutError as error:
            raise LinkLost(f"no answer for {timeout:.0f} s", where=self._name) from error
        except (OSError, paramiko.SSHException, EOFError) as error:
            raise LinkLost(f"the connection broke: {error or type(error).__name__}", where=self._name) from error
        return bytes(data)

    def ended(self) -> tuple[int | None, str]:
        self._channel.settimeout(5)
        if not self._channel.status_event.wait(5):
            return None, ""
        code = self._channel.recv_exit_status()
        try:
            text = self._channel.recv_stderr(1 << 16).decode(errors="replace")
        except OSError:
            text = ""
        return (code if code >= 0 else None), text

    def close(self) -> None:
        self._channel.close()
