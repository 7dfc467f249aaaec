"""The bad line itself: it must do what tests on it assume."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest
from serverkit import until
from slowlink import Fault, SlowLink, Way, deaf_port


@pytest.fixture
def echo() -> Iterator[int]:
    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    def answer(connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(65536):
                    connection.sendall(data)
            except OSError:
                return

    server = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=serve, daemon=True).start()
    yield server.getsockname()[1]
    server.shutdown(socket.SHUT_RDWR)
    server.close()


def connect(way: SlowLink) -> socket.socket:
    return socket.create_connection(("127.0.0.1", way.port), timeout=5)


def read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (piece := connection.recv(size - len(data))):
        data += piece
    return data


def until_silent(connection: socket.socket) -> bytes:
    """What still comes; an end that shows is an error."""
    data = b""
    with contextlib.suppress(TimeoutError):
        while piece := connection.recv(16):
            data += piece
        pytest.fail("the end shows")
    return data


def test_what_passes_is_what_was_sent_however_late(echo: int) -> None:
    sent = bytes(range(256)) * 2000
    slow = Way(delay=0.02, lost=0.2, again=(0.005, 0.02))
    with SlowLink(echo, up=slow, down=slow) as way, connect(way) as near:
        threading.Thread(target=near.sendall, args=(sent,), daemon=True).start()
        assert read(near, len(sent)) == sent
        until(lambda: way.passed == {"up": len(sent), "down": len(sent)}, "all is counted")


def test_a_delay_and_a_rate_take_their_time(echo: int) -> None:
    with SlowLink(echo, up=Way(delay=0.05), down=Way(rate=100_000)) as way, connect(way) as near:
        begin = time.monotonic()
        near.sendall(b"x" * 10_000)
        assert read(near, 10_000) == b"x" * 10_000
        near.sendall(b"y")
        assert near.recv(1) == b"y"
        assert time.monotonic() - begin >= 0.05 + 0.1 + 0.05 - 0.06


def test_a_cut_is_a_reset_after_so_many_bytes_and_the_next_connection_is_whole(echo: int) -> None:
    with SlowLink(echo, faults=[Fault("down", 3, "cut")]) as way:
        with connect(way) as near:
            near.sendall(b"abcdef")
            with pytest.raises(ConnectionResetError):
                read(near, 6)
        with connect(way) as near:
            near.sendall(b"abcdef")
            assert read(near, 6) == b"abcdef"


def test_an_orderly_end_delivers_what_came_before(echo: int) -> None:
    with SlowLink(echo, faults=[Fault("down", 3, "fin")]) as way, connect(way) as near:
        near.sendall(b"abcdef")
        assert read(near, 6) == b"abc"


@pytest.mark.parametrize(
    ("fault", "may_arrive"),
    # An echo of the three bytes up may be back before the line freezes, or not.
    [(Fault("up", 3, "freeze"), {b"", b"abc"}), (Fault("down", 3, "freeze"), {b"abc"})],
)
def test_a_frozen_line_passes_nothing_and_shows_no_end(echo: int, fault: Fault, may_arrive: set[bytes]) -> None:
    with SlowLink(echo, faults=[fault]) as way, connect(way) as near:
        near.sendall(b"abcdef")
        assert read(near, len(min(may_arrive))) == min(may_arrive)
        near.sendall(b"more")
        near.settimeout(0.1)
        assert min(may_arrive) + until_silent(near) in may_arrive


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@pytest.mark.parametrize("who", ["far", "near"])
def test_a_reset_by_either_end_reaches_the_other(who: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, SlowLink(server.getsockname()[1]) as way:
        near = connect(way)
        far, _ = server.accept()
        far.settimeout(60)
        near.settimeout(60)
        with near, far:
            broken, other = (far, near) if who == "far" else (near, far)
            reset(broken)
            with pytest.raises(ConnectionResetError):
                other.recv(1)


def test_a_port_that_refuses_is_open_again_when_asked(echo: int) -> None:
    with SlowLink(echo, faults=[Fault("up", 1, "cut", refuse=True)]) as way:
        with connect(way) as near:
            near.sendall(b"ab")
            with pytest.raises(ConnectionResetError):
                read(near, 2)
        with pytest.raises(ConnectionRefusedError):
            connect(way)
        way.accept()
        with connect(way) as near:
            near.sendall(b"ab")
            assert read(near, 2) == b"ab"


def test_a_deaf_port_answers_no_attempt_to_connect() -> None:
    with deaf_port() as port, pytest.raises(TimeoutError):
        socket.create_connection(("127.0.0.1", port), timeout=0.1)
