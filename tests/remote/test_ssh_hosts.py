"""Hosts as they are found: other login shells, start files that talk or end, accounts that may do little, full disks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hostkit import Installation
from linkkit import wrapper
from sshd import Sshd

from eaglelab.errors import HostError
from eaglelab.remote.client import AgentClient
from eaglelab.remote.hints import AgentFailure
from eaglelab.remote.pipe import LinkLost, LocalLink
from eaglelab.remote.ssh import SshLink

pytestmark = pytest.mark.sshd

ME = {"by": "me", "run": "run-1", "command": "bench", "since": "today"}
Start = Callable[..., AgentClient]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Brings up a server with such options and makes a client for it; HOME there is `tmp_path/sshd/home`."""
    servers: list[Sshd] = []
    clients: list[AgentClient] = []

    def make(*options: str, python: str = sys.executable, shell: str | None = None) -> AgentClient:
        servers.append(Sshd(tmp_path / "sshd", options=options, host_keys=("ed25519",), shell=shell))
        link = SshLink("gpu", servers[0].endpoint())
        clients.append(AgentClient(link, python, attempts=2, sleep=lambda _: None))
        return clients[0]

    yield make
    for client in clients:
        client.close()
    for server in servers:
        server.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system of its own: 64 KiB, nothing on it may be executed."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k,noexec", "tmpfs", folder]
    if os.getuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("a file system can only be mounted by root")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.parametrize(
    ("shell", "file", "text"),
    [
        ("fish", ".config/fish/config.fish", "echo Welcome; echo careful >&2"),
        ("tcsh", ".cshrc", "echo Welcome"),
        ("zsh", ".zshenv", "echo Welcome"),
        ("dash", ".profile", ""),
    ],
)
def test_a_login_shell_of_another_kind(start: Start, tmp_path: Path, shell: str, file: str, text: str) -> None:
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"{shell} is not installed")
    agent = start(shell=path, python="~/it's a !dir/py$thon")
    home = tmp_path / "sshd/home"
    (home / file).parent.mkdir(parents=True, exist_ok=True)
    (home / file).write_text(f"{text}\n")
    (home / "it's a !dir").mkdir()
    wrapper(home / "it's a !dir", "py$thon", f'exec {sys.executable} "$@"')
    assert agent.call("status")["alive"] is False


@pytest.mark.parametrize("text", ["exit 0", '[ -z "$PS1" ] && exit', "echo Welcome; exit 3"])
def test_a_start_file_that_ends_the_shell_is_told(start: Start, tmp_path: Path, text: str) -> None:
    agent = start()
    (tmp_path / "sshd/home/.bashrc").write_text(text + "\n")
    if not os.environ.get("SHELL", "/bin/bash").endswith("bash"):
        pytest.skip("the login shell here is not bash")
    with pytest.raises(HostError) as refused:
        agent.call("status")
    assert not isinstance(refused.value, LinkLost)
    if "3" in text:
        assert "ended with 3 before the agent ran: Welcome" in refused.value.what
    else:
        assert "ended with 0 before the agent ran: it said nothing" in refused.value.what
        assert "~/.bashrc" in refused.value.hint


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("ForceCommand echo This account runs backups only", "before the agent ran: This account runs backups only"),
        ("ForceCommand internal-sftp", "before the agent ran: This service allows sftp connections only"),
        ("ForceCommand /usr/lib/openssh/sftp-server", "before the agent ran: it said nothing"),
    ],
)
def test_an_account_that_may_do_one_thing_only_is_told(start: Start, option: str, said: str) -> None:
    with pytest.raises(HostError) as refused:
        start(option).call("status")
    assert said in refused.value.what
    assert "ForceCommand" in refused.value.hint


@pytest.mark.parametrize(
    "options",
    [
        ("PermitTTY no",),
        ("DisableForwarding yes", "MaxSessions 1", "PermitTTY no"),
        ("ClientAliveInterval 1", "ClientAliveCountMax 1"),
        ("Banner {home}/../banner", "PrintMotd yes"),
        ("Compression no", "RekeyLimit 64K"),
    ],
    ids=lambda options: options[0].split()[0],
)
def test_a_server_with_rules_of_its_own(start: Start, tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "banner").write_text("\x1b[2JAuthorised use only\n")
    agent = start(*(option.format(home=tmp_path / "sshd") for option in options))
    (tmp_path / "large").write_bytes(os.urandom(300_000))
    assert len(agent.call_bytes("read", path=str(tmp_path / "large"))[1]) == 300_000
    if "ClientAliveInterval 1" in options:
        time.sleep(2.5)  # the server's own clock cannot be turned
        assert agent.call("status")["alive"] is False


def test_a_home_on_which_nothing_may_be_executed(start: Start, tmp_path: Path, small_disk: Path) -> None:
    agent = start()
    (tmp_path / "sshd/home/state").symlink_to(small_disk)
    agent.lock(ME)
    assert (small_disk / "eaglelab/lock").exists()
    assert agent.call("rollback", run="run-1")["nothing"]


def test_a_home_on_a_full_disk_is_told(start: Start, tmp_path: Path, small_disk: Path) -> None:
    agent = start()
    (small_disk / "full").write_bytes(b"x" * (48 << 10))
    (tmp_path / "sshd/home/state").symlink_to(small_disk)
    assert agent.call("status")["alive"] is False  # looking needs no room
    agent.lock(ME)
    host, data = Installation(tmp_path), os.urandom(32 << 10)
    worker = host.workers[0]
    worker.write_bytes(b"x = 1\n")
    entry = host.entry(worker, data, b"x = 1\n")
    original = {"path": str(worker), "size": len(data), "sha256": entry["original"]}
    with pytest.raises(AgentFailure) as refused:
        agent.call("backup", data, run="run-1", patch="t", by="me", files=[entry], originals=[original])
    assert refused.value.code == "disk-full"


def test_a_sed_that_is_not_gnu_s_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    busybox = shutil.which("busybox")
    if busybox is None:
        pytest.skip("busybox is not installed")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/sed").symlink_to(busybox)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "worker.py").write_bytes(b"one\ntwo \xe9\r\nthree\nlast")
    agent = AgentClient(LocalLink("here"), sys.executable)
    lines = agent.call("sed", path=str(tmp_path / "worker.py"), ranges=[[1, 2], [4, 4]])["lines"]
    assert lines == {"1": "one", "2": "two \xe9\r", "4": "last"}
    agent.close()
