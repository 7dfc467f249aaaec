"""SSH by Fabric, with its traps closed: host keys are checked, every call has a deadline, bytes stay bytes.

The only module that imports fabric. Commands run on raw channels: `Connection.run` is quadratic in its output,
feeds stdin a character at a time and reports a lost link as an exit status.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import fabric
import paramiko
from paramiko.hostkeys import InvalidHostKey

from eaglelab.remote.endpoint import Endpoint, refuse_unless_loopback
from eaglelab.remote.keyring import keyring
from eaglelab.remote.knownhosts import KnownKeys, OnlyKnown, known_keys
from eaglelab.remote.pipe import Late, LinkLost, Pipe, Silent
from eaglelab.remote.proxy import Proxy
from eaglelab.remote.quoting import remote_command
from eaglelab.remote.refusals import Refusals
from eaglelab.remote.sudo import SUDO
from eaglelab.remote.watched import Patience, WatchedSocket

__all__ = ["SshLink"]

# Paramiko logs the tracebacks of its thread. Nobody listens by default, and Python then prints them.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

_END_S = 2.0
_LOGIN_S = 120.0
"""For a server that answers and takes its time, as sshd itself allows; one that is silent is given up long before."""

_WINDOW, _PACKET = 8 << 20, 128 << 10
"""How much (bytes) a command may send before it must wait for us, and in how large pieces."""
_MOST = 2 * _WINDOW

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
    """One SSH connection to one host, opened when it is first needed. `sudo`: its commands run as root.

    `turn` is entered for each login: many at once may be more than a jump host takes.
    """

    def __init__(
        self,
        name: str,
        endpoint: Endpoint,
        *,
        sudo: bool = False,
        default_host: bool = False,
        patience: Patience | None = None,
        turn: AbstractContextManager[Any] | None = None,
    ) -> None:
        self.name = name
        self.sudo_user = endpoint.user if sudo else None
        self._endpoint = endpoint
        self._patience = patience or Patience()
        self._turn = turn or nullcontext()
        self._refusals = Refusals(name, endpoint, default_host=default_host)
        self._connection: Any = None
        self._socket: WatchedSocket | None = None
        self._proxy: Proxy | None = None

    def open(self, command: Sequence[str]) -> Pipe:
        transport = self._transport()
        way = self._socket
        assert way is not None  # noqa: S101 - _transport has made it
        try:
            with way.in_time():
                channel = transport.open_session(window_size=_WINDOW, max_packet_size=_PACKET)
                channel.exec_command(remote_command(command, SUDO if self.sudo_user else ()))
        except _BROKEN as error:
            reason = _words(error, way)
            self.close()
            raise LinkLost(f"the connection broke while a command was started: {reason}", where=self.name) from error
        return _SshPipe(channel, self.name, way)

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
        known = KnownKeys()
        try:
            known = known_keys(end)
            with self._turn:
                way = self._way()
                self._connection.connect_kwargs = {**self._login(known), "sock": way}
                with way.conversing():
                    self._connection.open()
        except (*_BROKEN, ValueError, InvalidHostKey) as error:  # ValueError: a damaged key file
            said = self._proxy.errors() if self._proxy else ""
            reason = self._socket.reason if self._socket else ""
            self.close()
            shown = ConnectionAbortedError(reason) if reason else error
            raise self._refusals.explain(shown, known, said) from error
        except BaseException:
            self.close()
            raise
        self._ask_for_signs_of_life(self._connection.transport)

    def _login(self, known: KnownKeys) -> dict[str, Any]:
        """How to be let in, and by whom."""
        end, client = self._endpoint, self._connection.client
        client.set_missing_host_key_policy(OnlyKnown(known))
        client._agent = keyring(end, os.environ)
        return {
            "key_filename": [key for key in end.keys if not key.endswith(".pub") and Path(key).exists()],
            "look_for_keys": False,
            "allow_agent": client._agent is not None,
            "timeout": _LOGIN_S,  # Fabric's own cuts it to whole seconds
            "banner_timeout": end.connect_timeout,
            "auth_timeout": _LOGIN_S,
            "transport_factory": _transport,
            "disabled_algorithms": {"keys": _unknown_key_types(key.get_name() for key in known.keys)},
        }

    def _way(self) -> WatchedSocket:
        end = self._endpoint
        if end.proxy_command:
            self._proxy = Proxy(end.proxy_command)
            bare = self._proxy.socket
        else:
            bare = socket.create_connection((end.address, end.port), end.connect_timeout)
            # Paramiko leaves Nagle's algorithm on, which costs 45 ms a command.
            bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = WatchedSocket(bare, self._patience.dead)
        return self._socket

    def _ask_for_signs_of_life(self, transport: Any) -> None:
        """As ssh's ServerAliveInterval. Paramiko's own keepalive asks for no reply, so it finds nobody missing."""
        way, question = self._socket, paramiko.Message()
        assert way is not None  # noqa: S101 - the transport runs on it
        question.add_byte(paramiko.common.cMSG_GLOBAL_REQUEST)
        question.add_string("keepalive@openssh.com")
        question.add_boolean(True)

        def ask() -> None:
            way.asked()
            if transport.clear_to_send.is_set():  # else new keys are agreed on, and their answer will do
                transport._send_message(question)

        transport.clear_to_send_timeout = self._patience.dead
        transport.packetizer.set_keepalive(self._patience.probe, ask)


def _transport(sock: Any, **more: Any) -> paramiko.Transport:
    """Paramiko would give up the exchange of keys after 15 s, also with a host that answers."""
    transport: Any = paramiko.Transport(sock, **more)
    transport.handshake_timeout = _LOGIN_S
    # These hash nothing beside: a third of the time that a large log takes to come.
    offers = transport.get_security_options()
    offers.ciphers = sorted(offers.ciphers, key=lambda name: "gcm" not in name)
    return transport  # type: ignore[no-any-return]


def _unknown_key_types(known: Iterable[str]) -> list[str]:
    """Host key types to leave out because known_hosts has others for this host; none where it has no key at all.

    Else the server may show a key that nobody has seen, though it also has the one that is known: a false alarm.
    """
    wanted = {name for kind in known for name in _SIGNATURES.get(kind, (kind,))}
    return [kind for kind in _HOST_KEYS if kind not in wanted] if wanted else []


def _words(error: Exception, way: WatchedSocket) -> str:
    return way.reason or str(error) or type(error).__name__


class _SshPipe:
    def __init__(self, channel: paramiko.Channel, name: str, way: WatchedSocket) -> None:
        self._channel = channel
        self._name = name
        self._way = way

    def send(self, data: bytes, timeout: float) -> None:
        self._channel.settimeout(timeout)
        try:
            self._channel.sendall(data)
        except TimeoutError as error:
            raise Silent(f"the host took nothing for {timeout:g} s", where=self._name) from error
        except _BROKEN as error:
            raise self._broke(error) from error

    def receive(self, timeout: float) -> bytes:
        self._channel.settimeout(timeout)
        try:
            data = bytes(self._channel.recv(_MOST))  # all there is: what is left would be moved to the front
        except TimeoutError as error:
            raise Late(f"no answer for {timeout:g} s", where=self._name) from error
        except _BROKEN as error:
            raise self._broke(error) from error
        if not data and self._way.reason:  # Paramiko shows a broken connection as the end of the stream
            raise Silent(f"the connection broke: {self._way.reason}", where=self._name)
        return data

    def _broke(self, error: Exception) -> LinkLost:
        return LinkLost(f"the connection broke: {_words(error, self._way)}", where=self._name)

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
