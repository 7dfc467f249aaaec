"""Hosts where one logs in as somebody and works as root: `sudo: true`."""

from __future__ import annotations

import getpass
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from linkkit import wrapper
from sshd import Sshd

from eaglelab.errors import HostError, InputError
from eaglelab.inventory import load_inventory
from eaglelab.remote.client import AgentClient
from eaglelab.remote.pipe import Link, LocalLink
from eaglelab.remote.ssh import SshLink

ALLOWED = """
[ "$1 $2 $3" = "-n -H --" ] || { echo "sudo: unexpected: $*" >&2; exit 9; }
shift 3
unset XDG_STATE_HOME
HOME=%s exec "$@"
"""
PASSWORD = "echo 'sudo: a password is required' >&2; exit 1"
NO_TTY = "echo 'sudo: sorry, you must have a tty to run sudo' >&2; exit 1"
REAL_AS_NOBODY = f'exec setpriv --reuid=65534 --regid=65534 --clear-groups {shutil.which("sudo")} "$@"'


@pytest.fixture(params=["local", "ssh"])
def link(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], Link]]:
    """Makes a link to a host whose `sudo` is a script."""
    servers: list[Sshd] = []
    links: list[Link] = []

    def make(sudo: str) -> Link:
        folder = tmp_path / "bin"
        folder.mkdir()
        wrapper(folder, "sudo", sudo)
        path = f"{folder}:{os.environ['PATH']}"
        if request.param == "local":
            monkeypatch.setenv("PATH", path)
            links.append(LocalLink("here", sudo=True))
        else:
            servers.append(Sshd(tmp_path / "sshd", host_keys=("ed25519",), environment=f"PATH={path}"))
            links.append(SshLink("here", servers[0].endpoint(), sudo=True))
        return links[0]

    if request.param == "ssh":
        request.applymarker(pytest.mark.sshd)
    yield make
    for found in links:
        found.close()
    for server in servers:
        server.close()


def client(link: Link) -> AgentClient:
    return AgentClient(link, sys.executable, attempts=1)


def test_the_agent_runs_as_root_with_root_s_state_folder(link: Callable[[str], Link], tmp_path: Path) -> None:
    agent = client(link(ALLOWED % (tmp_path / "roots")))
    agent.lock({"by": "me", "run": "run-1", "command": "bench", "since": "today"})
    assert (tmp_path / "roots/.local/state/eaglelab/lock").exists()
    agent.close()


def test_a_sudo_that_would_ask_for_a_password_is_told_with_the_line_to_add(link: Callable[[str], Link]) -> None:
    with pytest.raises(HostError) as refused:
        client(link(PASSWORD)).call("status")
    assert "cannot become root there without a question: sudo: a password is required" in refused.value.what
    assert f"{getpass.getuser()} ALL=(root) NOPASSWD: ALL" in refused.value.hint


def test_a_sudo_that_wants_a_terminal_is_told_with_its_own_line(link: Callable[[str], Link]) -> None:
    with pytest.raises(HostError) as refused:
        client(link(NO_TTY)).call("status")
    assert f"Defaults:{getpass.getuser()} !requiretty" in refused.value.hint


@pytest.mark.skipif(
    os.getuid() != 0 or not shutil.which("sudo") or not shutil.which("setpriv"), reason="needs root, sudo"
)
def test_the_real_sudo_refuses_without_a_prompt(link: Callable[[str], Link]) -> None:
    with pytest.raises(HostError, match="cannot become root there without a question: sudo: "):
        client(link(REAL_AS_NOBODY)).call("status")


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("sudo"), reason="needs root, sudo")
def test_the_real_sudo_gives_root_s_home() -> None:
    pipe = LocalLink("here", sudo=True).open(
        [sys.executable, "-S", "-c", "import os; print(os.getuid(), os.environ['HOME'])"]
    )
    assert pipe.receive(5.0) == f"0 {Path('~root').expanduser()}\n".encode()
    pipe.close()


def test_a_host_without_sudo_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostError, match="cannot run sudo: No such file") as refused:
        client(LocalLink("here", sudo=True)).call("status")
    assert "`sudo`" in refused.value.hint


def test_whose_home_a_tilde_would_be_is_not_guessed(tmp_path: Path) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_text("hosts:\n  a:\n    address: 127.0.0.1\n    sudo: true\n    python: ~/env/bin/python\n")
    with pytest.raises(InputError, match="whose home folder `~` would be is not clear") as refused:
        load_inventory(path)
    assert refused.value.where.endswith(":5")
    path.write_text(path.read_text().replace("~", "/opt"))
    assert load_inventory(path).hosts["a"].sudo
