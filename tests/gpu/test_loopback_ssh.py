"""The SSH server of `product-ssh`: which one it is, who gets in, and what its commands find in their environment."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import asyncssh
import pytest

from gpu.validate import loopback_ssh
from gpu.validate.loopback_ssh import LabServer, LoopbackServer, OpenSshServer, loopback_server
from gpu.validate.workspace import CommandError

needs_openssh = pytest.mark.skipif(
    shutil.which("ssh-keygen") is None or shutil.which("sshd", path="/usr/sbin") is None,
    reason="no OpenSSH server here",
)


def said(server: LoopbackServer, command: str, key: Path | None = None) -> str:
    """What a command prints that comes in by the way which the inventory's entry tells."""
    entry = server.entry()

    async def run() -> str:
        async with asyncssh.connect(
            entry["address"],
            entry["port"],
            username=entry["user"],
            client_keys=[str(key or entry["key"])],
            known_hosts=entry["known_hosts"],
            config=None,
        ) as connection:
            return str((await connection.run(command, check=True)).stdout)

    return asyncio.run(run())


@pytest.fixture(params=[pytest.param("openssh", marks=needs_openssh), "lab"])
def server(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackServer]:
    monkeypatch.setenv("XDG_STATE_HOME", "/somewhere/state")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/only/here/lib")
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:/only/here")
    if request.param == "lab":
        monkeypatch.setattr(loopback_ssh, "_openssh", lambda: None)
    found = loopback_server(tmp_path / "sshd")
    yield found
    found.end()


def test_a_command_finds_programs_libraries_and_the_folder_of_state_as_this_process_does(
    server: LoopbackServer,
) -> None:
    told = 'echo "$PATH"; echo "$XDG_STATE_HOME"; echo "$LD_LIBRARY_PATH"; echo "${CUDA_HOME-unset}"; echo "$HOME"'
    path, *others = said(server, told).splitlines()
    assert "/only/here" in path.split(":")  # a shell's own start-up file may add to it
    assert others == ["/somewhere/state", "/only/here/lib", "unset", str(Path.home())]


def test_no_other_key_gets_in(server: LoopbackServer, tmp_path: Path) -> None:
    other = tmp_path / "other"
    asyncssh.generate_private_key("ssh-ed25519").write_private_key(str(other))
    with pytest.raises(asyncssh.PermissionDenied):
        said(server, "true", key=other)


def test_the_result_can_say_which_server_it_was(server: LoopbackServer) -> None:
    wanted = "OpenSSH" if isinstance(server, OpenSshServer) else "the lab's SSH server, asyncssh "
    assert server.version.startswith(wanted)
    assert len(server.version) > len(wanted)


def test_it_is_gone_after_its_end(server: LoopbackServer) -> None:
    assert said(server, "echo here") == "here\n"
    server.end()
    with pytest.raises(OSError, match="Connect"):
        said(server, "echo still here")


def test_without_ssh_keygen_on_the_path_it_is_the_labs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    server = loopback_server(tmp_path / "sshd")
    try:
        assert isinstance(server, LabServer)
    finally:
        server.end()


def test_without_either_it_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopback_ssh, "_openssh", lambda: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(CommandError, match=r"no OpenSSH server \(sshd and ssh-keygen\), and Python no asyncssh"):
        loopback_server(tmp_path / "sshd")
