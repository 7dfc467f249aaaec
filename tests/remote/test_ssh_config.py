"""Where a host really is, as the user's own SSH configuration says, and the ways round corners that it knows."""

from __future__ import annotations

import contextlib
import getpass
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from serverkit import alive, free_port
from sshd import Sshd, make_key

from eaglelab.errors import EaglelabError, HostError, InputError
from eaglelab.host import Host
from eaglelab.remote.client import AgentClient
from eaglelab.remote.endpoint import LOOPBACK_ONLY, Endpoint, parse_ssh_config, refuse_unless_loopback, resolve_endpoint
from eaglelab.remote.pipe import LinkLost
from eaglelab.remote.ssh import SshLink

RELAY = """
import socket, sys, threading
far = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def out():
    while data := far.recv(65536):
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
threading.Thread(target=out, daemon=True).start()
while data := sys.stdin.buffer.raw.read(65536):
    far.sendall(data)
"""


def host(**settings: object) -> Host:
    return Host.build("gpu", {"address": "box", **settings}, {}, "inventory.yaml:1")


def config(tmp_path: Path, text: str) -> str:
    path = tmp_path / "ssh_config"
    path.write_text(text)
    return str(path)


def test_an_ssh_configuration_with_includes_is_honoured(tmp_path: Path) -> None:
    key = make_key(tmp_path / "id")
    (tmp_path / "more").write_text(
        f"Host box\n HostName 127.0.0.7\n Port 2200\n User trainer\n IdentityFile {key}\n IdentitiesOnly yes\n"
        f" UserKnownHostsFile {tmp_path}/known1 {tmp_path}/known2\n GlobalKnownHostsFile none\n"
    )
    found = resolve_endpoint(host(ssh_config=config(tmp_path, f"Include {tmp_path}/more\n"), connect_timeout=3.0))
    assert found == Endpoint(
        address="127.0.0.7",
        port=2200,
        user="trainer",
        keys=(str(key),),
        known_hosts=(f"{tmp_path}/known1", f"{tmp_path}/known2", "none"),
        connect_timeout=3.0,
        identities_only=True,
    )


def test_the_inventory_wins_over_the_ssh_configuration(tmp_path: Path) -> None:
    key = make_key(tmp_path / "id")
    text = "Host box\n HostName 127.0.0.7\n Port 2200\n User trainer\n"
    found = resolve_endpoint(
        host(ssh_config=config(tmp_path, text), user="me", port=22, key=str(key), known_hosts=str(tmp_path / "new"))
    )
    assert (found.address, found.port, found.user, found.keys) == ("127.0.0.7", 22, "me", (str(key),))
    assert found.known_hosts == (str(tmp_path / "new"),)  # need not be there yet
    assert found.identities_only
    assert found.known_as == "127.0.0.7"


def test_without_a_configuration_the_usual_places_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    make_key(tmp_path / ".ssh/id_ed25519")
    found = resolve_endpoint(host(address="127.0.0.1", ssh_config=False))
    assert found == Endpoint(
        "127.0.0.1",
        22,
        getpass.getuser(),
        (f"{tmp_path}/.ssh/id_ed25519",),
        (f"{tmp_path}/.ssh/known_hosts",),
    )


def test_a_key_of_the_inventory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"there is no key file {tmp_path}/id"):
        resolve_endpoint(host(ssh_config=False, key=f"{tmp_path}/id"))


def test_a_configuration_that_ssh_refuses_is_shown(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Bad configuration option: hostnam"):
        resolve_endpoint(host(ssh_config=config(tmp_path, "Host box\n Hostnam 127.0.0.1\n")))


def test_a_controller_without_ssh_takes_the_inventory_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = resolve_endpoint(host(address="127.0.0.1", user="me"))
    assert (found.address, found.port, found.user, found.proxy_command) == ("127.0.0.1", 22, "me", None)


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("ProxyCommand nc -x '100%%' %h %p %r %n", "nc -x '100%' 127.0.0.7 2200 me 127.0.0.7"),
        ("ProxyCommand none", None),
        ("ProxyJump none", None),
        (
            "ProxyJump u@jump:2222",
            "ssh -F {} -o BatchMode=yes -o ConnectTimeout=3 -W '[127.0.0.7]:2200' ssh://u@jump:2222",
        ),
        ("ProxyJump a,b", "ssh -F {} -o BatchMode=yes -o ConnectTimeout=3 -J a -W '[127.0.0.7]:2200' ssh://b"),
    ],
)
def test_a_way_round_a_corner_is_a_command_with_nothing_left_to_expand(
    tmp_path: Path, text: str, command: str | None
) -> None:
    file = config(tmp_path, f"Host box\n HostName 127.0.0.7\n Port 2200\n {text}\n")
    found = resolve_endpoint(host(ssh_config=file, user="me", connect_timeout=3.0))
    assert found.proxy_command == (None if command is None else command.format(file))


def test_the_words_of_ssh_are_read_with_all_their_values() -> None:
    assert parse_ssh_config("user me\nidentityfile ~/a b\nidentityfile ~/c\nProxyJump none\n") == {
        "user": ["me"],
        "identityfile": ["~/a b", "~/c"],
        "proxyjump": ["none"],
    }


@pytest.mark.parametrize(
    ("address", "refused"),
    [
        ("127.0.0.1", False),
        ("127.3.2.1", False),
        ("::1", False),
        ("localhost", False),
        ("10.0.0.1", True),
        ("box", True),
    ],
)
def test_only_this_machine_is_contacted_while_that_is_asked_for(address: str, refused: bool) -> None:
    endpoint = Endpoint(address, 22, "me")
    refuse_unless_loopback(endpoint, {})
    if refused:
        with pytest.raises(HostError, match="nothing was contacted"):
            refuse_unless_loopback(endpoint, {LOOPBACK_ONLY: "1"})
    else:
        refuse_unless_loopback(endpoint, {LOOPBACK_ONLY: "1"})


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    server = Sshd(tmp_path_factory.mktemp("target"), host_keys=("ed25519",))
    yield server
    server.close()


@pytest.fixture
def proxies_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a proxy command does cannot be known, so the suite's own rule forbids it; the ones here stay on loopback."""
    monkeypatch.delenv(LOOPBACK_ONLY)


def behind(sshd: Sshd, tmp_path: Path, way: str) -> Host:
    text = f"Host box\n HostName 127.0.0.1\n Port {sshd.port}\n {way}\n"
    return host(
        ssh_config=config(tmp_path, text),
        user=getpass.getuser(),
        key=str(sshd.key),
        known_hosts=str(sshd.known_hosts),
        connect_timeout=5.0,
    )


@pytest.mark.sshd
@pytest.mark.usefixtures("proxies_allowed")
def test_a_proxy_command_is_the_way_and_ends_with_the_connection(sshd: Sshd, tmp_path: Path) -> None:
    (tmp_path / "relay.py").write_text(RELAY)
    way = f"ProxyCommand {sys.executable} -S {tmp_path}/relay.py %h %p 2>/dev/null"
    link = SshLink("gpu", resolve_endpoint(behind(sshd, tmp_path, way)))
    agent = AgentClient(link, sys.executable)
    agent.lock({"by": "me", "run": "run-1"})
    assert link._proxy is not None
    proxy = link._proxy._process
    assert os.getsid(proxy.pid) == proxy.pid  # out of reach of a Ctrl-C in the terminal
    os.kill(proxy.pid, signal.SIGKILL)
    assert agent.call("rollback", run="run-1")["nothing"]
    second = link._proxy._process
    agent.close()
    assert proxy.returncode == -signal.SIGKILL
    assert second.returncode is not None
    assert not alive(second.pid)


@pytest.mark.sshd
@pytest.mark.usefixtures("proxies_allowed")
def test_a_jump_host_is_the_way_and_its_own_key_is_checked(sshd: Sshd, tmp_path: Path) -> None:
    jump = Sshd(tmp_path / "jump", host_keys=("ed25519",))
    try:
        entry = behind(sshd, tmp_path, f"ProxyJump 127.0.0.1:{jump.port}")
        with Path(str(entry.ssh_config)).open("a") as file:
            file.write(f"Host 127.0.0.1\n IdentityFile {jump.key}\n UserKnownHostsFile {tmp_path}/jump_known\n")
            file.write(" StrictHostKeyChecking yes\n GlobalKnownHostsFile none\n")
        link = SshLink("gpu", resolve_endpoint(entry))
        with pytest.raises(LinkLost, match=r"(?s)the proxy says: .*Host key verification failed"):
            link.open(["true"])
        (tmp_path / "jump_known").write_text(jump.known_hosts.read_text())
        agent = AgentClient(link, sys.executable)
        assert agent.call("status")["alive"] is False
        assert jump.sessions()
        agent.close()
    finally:
        jump.close()


@pytest.mark.sshd
@pytest.mark.usefixtures("proxies_allowed")
def test_what_a_failing_proxy_says_is_passed_on(sshd: Sshd, tmp_path: Path) -> None:
    for way, said in (("echo no way >&2; exit 1", "no way"), ("/none/nc %h %p", "not found")):
        link = SshLink("gpu", resolve_endpoint(behind(sshd, tmp_path, f"ProxyCommand {way}")))
        with pytest.raises(LinkLost, match=f"the proxy says: .*{said}"):
            link.open(["true"])


@pytest.mark.sshd
@pytest.mark.usefixtures("proxies_allowed")
def test_a_proxy_that_hangs_is_ended(sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eaglelab.remote.proxy._END_S", 0.1)
    entry = behind(
        sshd, tmp_path, f"ProxyCommand exec {sys.executable} -S -c 'import time; time.sleep(60)' {tmp_path}/proxy"
    )
    link = SshLink("gpu", resolve_endpoint(entry.model_copy(update={"connect_timeout": 0.3})))
    with pytest.raises(EaglelabError, match=r"no SSH server spoke within 0\.3 s"):
        link.open(["true"])
    assert commands_with(f"{tmp_path}/proxy") == []


def commands_with(text: str) -> list[str]:
    """Command lines of the living processes in which it stands."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [line for line in found if text in line]


@pytest.mark.sshd
def test_the_user_s_own_ssh_reaches_the_same_server(sshd: Sshd) -> None:
    """The fixture is a real server: what ssh itself does with it is what ours is measured by."""
    options = ["-F", "none", "-i", str(sshd.key), "-o", f"UserKnownHostsFile={sshd.known_hosts}", "-o", "BatchMode=yes"]
    command = ["ssh", *options, "-p", str(sshd.port), "127.0.0.1", "echo $HOME"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == str(sshd.home), done.stderr
    assert free_port() != sshd.port
