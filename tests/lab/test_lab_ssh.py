"""The lab's SSH server through a real client."""

from __future__ import annotations

import hashlib
import io
import os
import time
from pathlib import Path

import paramiko
import pytest
from labkit import log_in, run, wait_until

from eaglelab.lab.keys import make_keys
from eaglelab.lab.lab import LabInfo
from eaglelab.lab.processes import start_time

pytestmark = pytest.mark.lab


def test_a_command_runs_in_the_home_with_the_labs_environment(lab: LabInfo, ssh: paramiko.SSHClient) -> None:
    code, out, _ = run(ssh, 'pwd; echo "$HOME $USER $SHELL"; echo "$PATH"')
    home = lab.home
    assert code == 0
    assert out.decode().splitlines()[:2] == [home, f"{home} lab /bin/sh"]
    assert out.decode().splitlines()[2].startswith(f"{home}/bin:/usr/local/sbin:")


def test_exit_codes_and_both_streams_come_through(ssh: paramiko.SSHClient) -> None:
    assert run(ssh, "echo out; echo err >&2; exit 7") == (7, b"out\n", b"err\n")
    assert run(ssh, "no-such-command")[0] == 127


def test_20_mb_come_through_whole_and_fast(ssh: paramiko.SSHClient) -> None:
    began = time.process_time()
    channel = ssh.get_transport().open_session()
    channel.exec_command("head -c 20000000 /dev/zero | tr '\\0' x")
    size, digest = 0, hashlib.sha256()
    while data := channel.recv(1 << 17):
        size += len(data)
        digest.update(data)
    assert size == 20_000_000
    assert digest.digest() == hashlib.sha256(b"x" * 20_000_000).digest()
    assert channel.recv_exit_status() == 0
    assert time.process_time() - began < 10  # of this side; how long it takes is this machine's other work's affair


def test_stdin_is_bytes_and_its_end_arrives(ssh: paramiko.SSHClient) -> None:
    data = bytes(range(256)) * 4096
    code, out, _ = run(ssh, "sha256sum", data)
    assert (code, out.split()[0].decode()) == (0, hashlib.sha256(data).hexdigest())


def test_files_go_both_ways_over_sftp(ssh: paramiko.SSHClient, lab: LabInfo) -> None:
    data = os.urandom(300_000)
    with ssh.open_sftp() as sftp:
        sftp.putfo(io.BytesIO(data), "logs/data.new")
        sftp.posix_rename("logs/data.new", "logs/data")
        back = io.BytesIO()
        sftp.getfo("logs/data", back)
    assert back.getvalue() == data
    assert (Path(lab.home) / "logs" / "data").read_bytes() == data


def test_another_key_and_another_user_are_refused(lab: LabInfo, tmp_path: Path) -> None:
    other = make_keys(tmp_path).client
    with pytest.raises(paramiko.AuthenticationException), log_in(lab, key=str(other)):
        pass
    transport = paramiko.Transport((lab.address, lab.port))
    try:
        transport.start_client(timeout=10)
        with pytest.raises(paramiko.AuthenticationException):
            transport.auth_publickey("root", paramiko.Ed25519Key.from_private_key_file(lab.key))
    finally:
        transport.close()


def test_forwarding_is_refused(ssh: paramiko.SSHClient, lab: LabInfo) -> None:
    with pytest.raises(paramiko.ChannelException):
        ssh.get_transport().open_channel("direct-tcpip", (lab.address, lab.port), ("127.0.0.1", 0))


def test_a_detached_command_outlives_its_connection_and_one_that_writes_does_not(lab: LabInfo) -> None:
    with log_in(lab) as client:
        detached = "setsid -f sh -c 'echo $$ >~/logs/pid; exec sleep 60' >/dev/null 2>&1 </dev/null"
        _, out, _ = run(client, f"{detached}; until test -s ~/logs/pid; do sleep 0.01; done; cat ~/logs/pid")
        sleeper = int(out)
        channel = client.get_transport().open_session()
        channel.exec_command("echo $$; exec yes")
        writer = int(channel.recv(100).split(b"\n")[0])
    wait_until(lambda: not start_time(writer), "the end of `yes`")
    assert start_time(sleeper)
    with log_in(lab) as client:
        run(client, f"kill {sleeper}")


def test_a_terminal_request_does_not_break_the_session(ssh: paramiko.SSHClient) -> None:
    channel = ssh.get_transport().open_session()
    channel.get_pty()
    channel.exec_command("echo hello")
    assert channel.recv(100).strip() == b"hello"


def test_the_host_has_the_package_the_models_and_a_gpu(ssh: paramiko.SSHClient) -> None:
    python = "~/ml-env/bin/python3 -c"
    assert run(ssh, f"{python} 'import sglang; print(sglang.__version__)'")[1] == b"0.5.9\n"
    assert run(ssh, f"{python} 'import importlib.metadata as m; print(m.version(\"sglang\"))'")[1] == b"0.5.9\n"
    assert run(ssh, "ls models/target models/draft | grep -c config.json")[1] == b"2\n"
    code, out, _ = run(ssh, "nvidia-smi --query-gpu=name --format=csv,noheader")
    assert (code, out.splitlines()) == (0, [b"simulated GPU"] * 8)
