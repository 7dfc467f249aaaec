"""SSH as people have it: agents, locked keys, aliases, strict and lenient configurations, and what is in known_hosts."""

from __future__ import annotations

import base64
import getpass
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sshd import Sshd, make_key

from eaglelab.errors import HostError, InputError
from eaglelab.host import Host
from eaglelab.remote.endpoint import Endpoint, resolve_endpoint
from eaglelab.remote.pipe import LinkLost
from eaglelab.remote.ssh import SshLink

pytestmark = pytest.mark.sshd


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    server = Sshd(tmp_path_factory.mktemp("sshd"))
    yield server
    server.close()


@pytest.fixture(autouse=True)
def no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Callable[[Path], str]]:
    """An ssh-agent of this test's own; gives it a key (passphrase `pw`, if it has one) and tells its socket."""
    way = str(tmp_path / "agent.sock")
    process = subprocess.Popen(["ssh-agent", "-D", "-a", way], stdout=subprocess.DEVNULL)
    asker = tmp_path / "askpass"
    asker.write_text("#!/bin/sh\necho pw\n")
    asker.chmod(0o700)

    def add(key: Path) -> str:
        env = {**os.environ, "SSH_AUTH_SOCK": way, "SSH_ASKPASS": str(asker), "SSH_ASKPASS_REQUIRE": "force"}
        while not Path(way).exists():
            assert process.poll() is None
        subprocess.run(["ssh-add", "-q", key], env=env, check=True, stdin=subprocess.DEVNULL)
        return way

    yield add
    process.send_signal(signal.SIGTERM)
    process.wait()


def locked_copy(sshd: Sshd, folder: Path) -> Path:
    """The key that the server lets in, behind the passphrase `pw`."""
    key = folder / "locked key"
    shutil.copy(sshd.key, key)
    subprocess.run(["ssh-keygen", "-q", "-p", "-N", "pw", "-f", key], check=True, stdout=subprocess.DEVNULL)
    return key


def let_in(endpoint: Endpoint) -> bool:
    link = SshLink("gpu", endpoint)
    try:
        return link.open(["echo", "in"]).receive(5.0) == b"in\n"
    finally:
        link.close()


def refused(endpoint: Endpoint) -> HostError:
    with pytest.raises(HostError) as error:
        let_in(endpoint)
    assert not isinstance(error.value, LinkLost)
    return error.value


def configured(tmp_path: Path, sshd: Sshd, text: str, **settings: object) -> Endpoint:
    """What `box` is by an ssh_config in which `text` stands beside address, port and known_hosts."""
    file = tmp_path / "ssh_config"
    known = "" if "UserKnownHostsFile" in text else f" UserKnownHostsFile {sshd.known_hosts}\n"
    file.write_text(f"Host box\n HostName 127.0.0.1\n Port {sshd.port}\n GlobalKnownHostsFile none\n{known}{text}\n")
    return resolve_endpoint(
        Host.build("gpu", {"address": "box", "user": getpass.getuser(), "ssh_config": str(file), **settings}, {}, "")
    )


def test_a_locked_key_without_an_agent_is_named_with_what_to_type(sshd: Sshd, tmp_path: Path) -> None:
    key = locked_copy(sshd, tmp_path)
    error = refused(sshd.endpoint(keys=(str(key),)))
    assert str(key) in error.what
    assert error.hint == f"ssh-add '{key}'"


@pytest.mark.parametrize("only", [True, False])
def test_a_locked_key_that_an_agent_holds_opens_the_door(
    sshd: Sshd, tmp_path: Path, agent: Callable[[Path], str], monkeypatch: pytest.MonkeyPatch, only: bool
) -> None:
    key = locked_copy(sshd, tmp_path)
    monkeypatch.setenv("SSH_AUTH_SOCK", agent(key))
    assert let_in(sshd.endpoint(keys=(str(key),), identities_only=only))


def test_an_agent_is_asked_where_no_key_file_is_there(
    sshd: Sshd, agent: Callable[[Path], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", agent(sshd.key))
    assert let_in(sshd.endpoint(keys=(), identities_only=False))


def test_identities_only_keeps_the_agent_s_other_keys_at_home(
    sshd: Sshd, tmp_path: Path, agent: Callable[[Path], str]
) -> None:
    socket, other = agent(sshd.key), make_key(tmp_path / "other")
    text = f" IdentityAgent {socket}\n IdentityFile {other}"
    assert let_in(configured(tmp_path, sshd, text))
    error = refused(configured(tmp_path, sshd, f"{text}\n IdentitiesOnly yes"))
    assert f"keys tried: {other}" in error.what


def test_a_public_key_file_means_the_agent_s_key(sshd: Sshd, tmp_path: Path, agent: Callable[[Path], str]) -> None:
    """As with a key that lives in a password manager or on a token."""
    public = tmp_path / "id.pub"
    public.write_text(sshd.key.with_suffix(".pub").read_text())
    socket = agent(sshd.key)
    for name in (public, public.with_suffix("")):
        text = f" IdentityAgent {socket}\n IdentityFile {name}\n IdentitiesOnly yes"
        assert let_in(configured(tmp_path, sshd, text))


def test_an_agent_that_is_not_there_or_not_wanted_is_no_error(
    sshd: Sshd, tmp_path: Path, agent: Callable[[Path], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "gone"))
    assert let_in(sshd.endpoint(identities_only=False))
    monkeypatch.setenv("SSH_AUTH_SOCK", agent(sshd.key))
    assert "refused the login" in refused(configured(tmp_path, sshd, " IdentityAgent none\n IdentityFile /none")).what


def test_a_key_s_path_may_be_a_pattern_of_the_configuration(sshd: Sshd, tmp_path: Path) -> None:
    key = tmp_path / f"127.0.0.1_{getpass.getuser()}"
    shutil.copy(sshd.key, key)
    end = configured(tmp_path, sshd, f" IdentityFile {tmp_path}/%h_%r\n IdentitiesOnly yes")
    assert end.keys == (str(key),)
    assert let_in(end)


def test_a_match_block_by_user_host_and_command_counts(sshd: Sshd, tmp_path: Path) -> None:
    text = (
        f" IdentityFile /none\nMatch originalhost box user {getpass.getuser()} exec true\n"
        f" IdentityFile {sshd.key}\n IdentitiesOnly yes\nMatch exec false\n ProxyCommand false"
    )
    assert let_in(configured(tmp_path, sshd, text))


def test_a_canonical_name_is_followed(sshd: Sshd, tmp_path: Path) -> None:
    text = f" CanonicalizeHostname yes\n CanonicalizeMaxDots 0\nMatch final host 127.0.0.1\n IdentityFile {sshd.key}"
    assert let_in(configured(tmp_path, sshd, text))


def test_a_host_is_known_by_its_alias(sshd: Sshd, tmp_path: Path) -> None:
    known = tmp_path / "known"
    text = f" HostKeyAlias gpu-7\n UserKnownHostsFile {known}\n IdentityFile {sshd.key}"
    known.write_text(sshd.known_hosts.read_text())
    error = refused(configured(tmp_path, sshd, text))
    assert "the host key is not known" in error.what
    subprocess.run(error.hint.partition(": ")[2], shell=True, check=True, capture_output=True)
    assert known.read_text().splitlines()[-1].startswith("gpu-7 ssh-")
    assert let_in(configured(tmp_path, sshd, text))
    known.write_text(
        sshd.known_line("ed25519", make_key(tmp_path / "new")).replace(f"[127.0.0.1]:{sshd.port}", "gpu-7")
    )
    error = refused(configured(tmp_path, sshd, text))
    assert f"ssh-keygen -R gpu-7 -f {known} && " in error.hint


@pytest.mark.parametrize("value", ["no", "off", "accept-new"])
def test_a_lenient_configuration_is_not_followed_and_told(sshd: Sshd, tmp_path: Path, value: str) -> None:
    text = f" StrictHostKeyChecking {value}\n UserKnownHostsFile {tmp_path}/none\n IdentityFile {sshd.key}"
    error = refused(configured(tmp_path, sshd, text))
    shown = "accept-new" if value == "accept-new" else "no"
    assert f"StrictHostKeyChecking {shown} of your SSH configuration is not followed" in error.hint
    assert not (tmp_path / "none").exists()


def test_a_host_by_its_ipv6_address(tmp_path: Path) -> None:
    try:
        server = Sshd(tmp_path / "six", host_keys=("ed25519",), address="::1")
    except (AssertionError, OSError):
        pytest.skip("this machine has no ::1")
    try:
        assert let_in(server.endpoint())
        error = refused(server.endpoint(known_hosts=(str(tmp_path / "new"),)))
        subprocess.run(error.hint.partition(": ")[2], shell=True, check=True, capture_output=True)
        assert let_in(server.endpoint(known_hosts=(str(tmp_path / "new"),)))
    finally:
        server.close()


def known(sshd: Sshd, tmp_path: Path, *lines: str) -> Endpoint:
    file = tmp_path / "known"
    file.write_text("".join(lines))
    return sshd.endpoint(known_hosts=(str(file),))


def test_a_revoked_key_is_refused_also_where_it_is_known(sshd: Sshd, tmp_path: Path) -> None:
    line = sshd.known_line("ed25519")
    for lines in ((f"@revoked {line}",), (line, f"@revoked * {line.split(' ', 1)[1]}")):
        error = refused(known(sshd, tmp_path, *lines))
        assert "marks as @revoked: ssh-ed25519 SHA256:" in error.what
        assert "ssh-keyscan" not in error.hint
    assert let_in(known(sshd, tmp_path, line, f"@revoked elsewhere {line.split(' ', 1)[1]}"))


def test_an_authority_for_host_certificates_does_not_disturb_and_its_limits_are_told(
    sshd: Sshd, tmp_path: Path
) -> None:
    authority = f"@cert-authority * {sshd.known_line('rsa').split(' ', 1)[1]}"
    assert let_in(known(sshd, tmp_path, authority, sshd.known_line("ed25519")))
    assert "certificates of hosts are not supported" in refused(known(sshd, tmp_path, authority)).hint


def test_a_host_with_two_keys_of_a_type_on_record_is_known_by_either(sshd: Sshd, tmp_path: Path) -> None:
    other, line = sshd.known_line("ed25519", make_key(tmp_path / "other")), sshd.known_line("ed25519")
    assert let_in(known(sshd, tmp_path, other, line))
    assert let_in(known(sshd, tmp_path, line, other))


def test_patterns_and_names_without_a_port_are_understood_as_ssh_does(sshd: Sshd, tmp_path: Path) -> None:
    kind = sshd.known_line("ed25519").split(" ", 1)[1]
    for names, good in [
        ("127.0.0.1", True),
        ("elsewhere,[127.0.0.?]:*", True),
        ("*,![127.0.0.1]:*,!127.0.0.1", False),
        ("[127.0.0.1]:1", False),
    ]:
        endpoint = known(sshd, tmp_path, f"{names} {kind}")
        command = ["ssh", "-F", "none", "-i", str(sshd.key), "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes"]
        command += ["-o", f"UserKnownHostsFile={tmp_path}/known", "-o", "GlobalKnownHostsFile=none"]
        theirs = subprocess.run([*command, "-p", str(sshd.port), "127.0.0.1", "true"], check=False, capture_output=True)
        assert (theirs.returncode == 0) is good, names
        if good:
            assert let_in(endpoint)
        else:
            assert "is not known" in refused(endpoint).what


@pytest.mark.parametrize("odd", ["x;touch y", "$(id)", "`id`", "a'b", 'a"b', "a|b", "a\\\nb", "--x", "a b", "\u2066a"])
def test_an_address_or_user_that_a_shell_would_read_is_refused_before_anything_runs(tmp_path: Path, odd: str) -> None:
    for text in (f' HostName "{odd}"' if '"' not in odd and "\n" not in odd else "", f' User "{odd}"'):
        file = tmp_path / "ssh_config"
        file.write_text(f"Host box\n{text}\n ProxyCommand nc %h %p %r\n")
        settings = {"address": "box", "ssh_config": str(file)}
        if '"' in odd or "\n" in odd:
            settings["user"] = odd
        with pytest.raises((InputError, ValueError)):
            resolve_endpoint(Host.build("gpu", settings, {}, ""))


def test_a_chain_of_jumps_with_ipv6_is_a_command_with_every_word_in_place(tmp_path: Path, sshd: Sshd) -> None:
    end = configured(tmp_path, sshd, " ProxyJump u@[::1]:2200,v@jump:22")
    assert end.proxy_command is not None
    assert end.proxy_command.endswith(f" -J 'u@[::1]:2200' -W '[127.0.0.1]:{sshd.port}' ssh://v@jump:22")


def test_the_public_half_of_a_locked_key_is_read_from_the_key_itself(sshd: Sshd, tmp_path: Path) -> None:
    from eaglelab.remote.keyring import _public

    key = locked_copy(sshd, tmp_path)
    assert not key.with_name("locked key.pub").exists()
    assert _public(key) == base64.b64decode(sshd.key.with_suffix(".pub").read_text().split()[1])
    for text in ("", "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n", "\u00e9"):
        key.write_text(text)
        assert _public(key) is None
    assert _public(tmp_path / "none") is None
