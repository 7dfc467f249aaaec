"""The suite itself refuses to reach any other machine, in its own process and in those it starts."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest
from loopback_guard import OutsideLoopback, is_loopback

OTHER = "192.0.2.7"  # TEST-NET-1: nobody's address


def test_a_connection_to_another_machine_is_refused_before_a_packet_leaves() -> None:
    with socket.socket() as probe, pytest.raises(OutsideLoopback, match=OTHER):
        probe.connect((OTHER, 22))


def test_a_name_is_not_even_looked_up() -> None:
    with pytest.raises(OutsideLoopback, match="example"):
        socket.getaddrinfo("host.example", 22)


def test_loopback_stays_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()).close()


def test_a_python_that_a_test_starts_is_guarded_too() -> None:
    script = f"import socket; socket.socket().connect(('{OTHER}', 22))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "OutsideLoopback" in done.stderr


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.8.7", True),
        ("::1", True),
        ("localhost", True),
        ("10.1.230.174", False),
        ("a.example", False),
    ],
)
def test_loopback_is_told_from_the_rest(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
