"""Why a connection was not made: Paramiko's many exceptions as what happened and what to type next."""

from __future__ import annotations

import paramiko
from paramiko.hostkeys import InvalidHostKey
from paramiko.ssh_exception import IncompatiblePeer

from eaglelab.errors import HostError
from eaglelab.remote.endpoint import Endpoint
from eaglelab.remote.knownhosts import KnownKeys, WrongHostKey
from eaglelab.remote.pipe import LinkLost
from eaglelab.remote.quoting import quoted

__all__ = ["Refusals"]


class Refusals:
    """The words for one host. `default_host`: the user may not have meant any host, and only wants to try things out."""

    def __init__(self, name: str, endpoint: Endpoint, *, default_host: bool) -> None:
        self._end = endpoint
        self._default_host = default_host
        self._place = f"{name} ({endpoint.user}@{endpoint.address} port {endpoint.port})"
        self._try = f"try: ssh -p {endpoint.port} {quoted(f'{endpoint.user}@{endpoint.address}')}"

    def explain(self, error: Exception, known: KnownKeys, proxy_said: str = "") -> HostError:
        """LinkLost where another try may help, else HostError. `proxy_said`: what a proxy wrote to stderr."""
        if isinstance(error, InvalidHostKey):
            hint = "mend or remove that line; ssh skips it without a word"
            return self._refused(f"known_hosts has a line that cannot be read: {str(error.line)[:100]}", hint)
        if isinstance(error, ValueError):
            return self._refused(f"a key cannot be used: {error}", f"check: {', '.join(self._end.keys)}")
        return self._host_key(error, known) or self._login(error) or self._away(error, proxy_said)

    def _host_key(self, error: Exception, known: KnownKeys) -> HostError | None:
        end = self._end
        file = quoted(end.known_hosts[0] if end.known_hosts else "~/.ssh/known_hosts")
        learn = f"after checking the fingerprint: {self._scan(file)}"
        if isinstance(error, IncompatiblePeer) and "host key" in str(error):
            return self._refused("known_hosts has keys of this host, and it shows none of their types any more", learn)
        if not isinstance(error, WrongHostKey):
            return None
        shown = f"{error.key.get_name()} {error.key.fingerprint}"
        if error.key.get_base64() in known.revoked:
            return self._refused(
                f"the host shows a key that known_hosts marks as @revoked: {shown}",
                "somebody may have stolen it: ask who runs that host for its new key",
            )
        if known.keys:
            return self._refused(
                "the host key is not the one in known_hosts: the machine was reinstalled, or somebody is in between"
                f" ({shown})",
                f"if you know why it changed: ssh-keygen -R {quoted(end.known_as)} -f {file} && {self._scan(file)}",
            )
        if known.authority:
            learn += "; its @cert-authority line is of no use here: certificates of hosts are not supported"
        if end.lenient:
            learn += f"; StrictHostKeyChecking {end.lenient} of your SSH configuration is not followed"
        return self._refused(f"the host key is not known: {shown}", learn)

    def _scan(self, file: str) -> str:
        """A command that adds the keys which the host shows now."""
        end = self._end
        if end.proxy_command:
            return self._try.removeprefix("try: ")  # ssh-keyscan knows no proxies; ssh asks
        keys = f"ssh-keyscan -p {end.port} {quoted(end.address)}"
        if end.host_key_alias:
            keys += f" | sed {quoted(f's/^[^ ]*/{end.host_key_alias}/')}"
        return f"{keys} >> {file}"

    def _login(self, error: Exception) -> HostError | None:
        if isinstance(error, paramiko.PasswordRequiredException):
            return self._refused(
                f"the key is encrypted, and no agent holds it ({', '.join(self._end.keys)})",
                f"ssh-add {quoted(self._end.keys[0])}",
            )
        # A login that takes too long is the network's fault.
        refused = isinstance(error, paramiko.AuthenticationException) and "timeout" not in str(error).lower()
        if refused or "No authentication methods available" in str(error):
            tried = ", ".join(self._end.keys) or "none found"
            return self._refused(
                f"the host refused the login (keys tried: {tried})",
                f"{self._try}; set `user` and `key` in inventory.yaml",
            )
        return None

    def _away(self, error: Exception, proxy_said: str) -> LinkLost:
        text = str(error) or type(error).__name__
        if isinstance(error, TimeoutError):
            text = f"no answer within {self._end.connect_timeout:g} s"
        elif isinstance(error, EOFError) or "No existing session" in text or "protocol banner" in text:
            text = f"something is there, but no SSH server spoke within {self._end.connect_timeout:g} s"
        if proxy_said:
            text = f"{text}; the proxy says: {proxy_said}"
        away = "; to try things out without a GPU host: --host sim" if self._default_host else ""
        return LinkLost(f"cannot be reached: {text}", where=self._place, hint=self._try + away)

    def _refused(self, what: str, hint: str) -> HostError:
        return HostError(what, where=self._place, hint=hint)
