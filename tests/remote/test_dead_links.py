"""A peer that falls silent without a word - no byte, no end - is noticed in every phase, and named."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import CALM, lose_patience, socket_of
from serverkit import until
from slowlink import Fault, SlowLink, Way, deaf_port
from sshd import Sshd
from test_agent_http import web

from eaglelab.host import HostSettings
from eaglelab.remote.client import AgentClient
from eaglelab.remote.pipe import LinkLost
from eaglelab.remote.ssh import SshLink
from eaglelab.remote.watched import Patience, WatchedSocket

pytestmark = pytest.mark.sshd

QUICK = Patience(probe=0.1, dead=0.6)
LARGE = 4 << 20


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    server = Sshd(tmp_path_factory.mktemp("sshd"), host_keys=("ed25519",))
    yield server
    server.close()


def through(way: SlowLink, sshd: Sshd, patience: Patience = QUICK, **changes: object) -> SshLink:
    """A link to the server over the bad line, where it is known by the same key."""
    known = sshd.folder / f"known_{way.port}"
    known.write_text(sshd.known_hosts.read_text().replace(f":{sshd.port} ", f":{way.port} "))
    changes = {"port": way.port, "known_hosts": (str(known),), "connect_timeout": 0.6, **changes}
    return SshLink("gpu", sshd.endpoint(**changes), patience=patience)


def client(link: SshLink) -> AgentClient:
    return AgentClient(link, sys.executable, attempts=1, start_silence=60.0)


@pytest.fixture(scope="module")
def marks(sshd: Sshd) -> dict[str, dict[str, int]]:
    """How many bytes have passed, each way, when a healthy connection ends a phase."""
    with SlowLink(sshd.port) as way:
        link = through(way, sshd, Patience())
        link._transport()
        found = {"login": dict(way.passed)}
        pipe = link.open(["cat"])
        found["open"] = dict(way.passed)
        pipe.send(b"x", 5.0)
        assert pipe.receive(5.0) == b"x"
        pipe.close()
        link.close()
        agent = client(link)
        agent.call("status", silence=60.0)
        found["agent"] = dict(way.passed)
        agent.close()
    return found


def given_up(fault: Fault, sshd: Sshd, op: str = "status", data: bytes = b"", **args: Any) -> LinkLost:
    threads = threading.active_count()
    with SlowLink(sshd.port, faults=[fault]) as way:
        agent = client(through(way, sshd))
        begin = time.monotonic()
        with pytest.raises(LinkLost) as lost:
            agent.call(op, data, silence=60.0, **args)
        assert time.monotonic() - begin < 30  # nothing waited for any of the 60 s
        agent.close()
    until(lambda: threading.active_count() <= threads, "no thread of the connection is left")
    return lost.value


def test_by_default_a_dead_link_is_noticed_within_half_a_minute_in_every_phase() -> None:
    patience, connect = Patience(), HostSettings().connect_timeout
    assert max(connect, patience.probe + patience.dead) < 30


def test_a_host_that_answers_no_attempt_to_connect_is_given_up(sshd: Sshd) -> None:
    with deaf_port() as port:
        link = SshLink("gpu", sshd.endpoint(port=port, connect_timeout=0.3))
        with pytest.raises(LinkLost, match=r"no answer within 0\.3 s") as lost:
            link.open(["true"])
    assert "gpu" in str(lost.value)


@pytest.mark.parametrize("direction", ["up", "down"])
@pytest.mark.parametrize("phase", ["banner", "keys", "login", "open", "start", "upload"])
def test_a_line_that_dies_before_the_agent_speaks_is_given_up_and_named(
    sshd: Sshd, marks: dict[str, dict[str, int]], phase: str, direction: Any
) -> None:
    login, opened, agent = (marks[name][direction] for name in ("login", "open", "agent"))
    at = {
        "banner": 5,
        "keys": 300,
        "login": login - 20,
        "open": login,
        "start": opened - 10,
        "upload": agent - 100,
    }[phase]
    error = given_up(Fault(direction, at, "freeze"), sshd)
    assert error.where.startswith("gpu")
    assert "0.6 s" in error.what, error


def test_a_line_that_dies_while_an_answer_is_awaited_is_given_up(sshd: Sshd) -> None:
    def never(_: Any, server: Any) -> None:
        way.freeze()
        lose_patience(link, 0.6)
        server.release.wait(60)

    with web(never) as server, SlowLink(sshd.port) as way:
        link = through(way, sshd, CALM, connect_timeout=30.0)
        agent = client(link)
        with pytest.raises(LinkLost, match=r"no sign of life for 0\.6 s"):
            agent.call(
                "generate",
                silence=60.0,
                host="127.0.0.1",
                port=server.port,
                body={},
                key=None,
                timeout=30.0,
            )
        server.release.set()
        agent.close()


def test_a_line_that_dies_in_a_long_upload_is_given_up(sshd: Sshd, marks: dict[str, dict[str, int]]) -> None:
    fault = Fault("up", marks["agent"]["up"] + (1 << 20), "freeze")
    assert "0.6 s" in given_up(fault, sshd, "apply", b"x" * LARGE, run="run-1", files=[]).what


def test_a_line_that_dies_in_a_long_download_is_given_up(
    sshd: Sshd, marks: dict[str, dict[str, int]], tmp_path: Path
) -> None:
    (tmp_path / "large").write_bytes(os.urandom(LARGE))
    fault = Fault("down", marks["agent"]["down"] + (1 << 20), "freeze")
    assert "0.6 s" in given_up(fault, sshd, "read", path=str(tmp_path / "large")).what


def test_a_frozen_server_is_given_up_though_its_machine_acknowledges(sshd: Sshd) -> None:
    link = SshLink("gpu", sshd.endpoint(), patience=CALM)
    agent = client(link)
    agent.call("status")
    with sshd.frozen():
        lose_patience(link, 0.6)
        with pytest.raises(LinkLost, match=r"no sign of life for 0\.6 s"):
            agent.call("status", silence=60.0)
    agent.close()


def test_a_host_that_lives_and_takes_its_time_is_waited_for(sshd: Sshd) -> None:
    clock, asked = Clock(), [0]

    def counted(ask: Callable[[], None]) -> Callable[[], None]:
        def count() -> None:
            ask()
            asked[0] += 1

        return count

    def slowly(handler: Any, _: Any) -> None:
        way = socket_of(link)
        way.asked = counted(way.asked)  # type: ignore[method-assign]
        way._clock = clock
        lose_patience(link, 1.0)
        for _ in range(3):  # each time nine tenths of what it may owe pass, once it has owed nothing
            before = asked[0]
            until(lambda: asked[0] > before and way._asked is None, "a question was asked and answered")  # noqa: B023
            clock.now += 0.9
        handler.send_response(200)
        handler.end_headers()

    with web(slowly) as server, SlowLink(sshd.port) as line:
        link = through(line, sshd, CALM, connect_timeout=30.0)
        agent = client(link)
        about = {"host": "127.0.0.1", "path": "/x", "body": None, "key": None, "timeout": 60.0}
        answer = agent.call("http", silence=60.0, method="GET", port=server.port, **about)
        assert answer["status"] == 200
        assert clock.now > 2 * 1.0  # longer than a silent host would have been waited for
        agent.close()


@pytest.mark.parametrize(
    ("up", "down"),
    [
        (Way(delay=0.1), Way(delay=0.1)),
        (Way(lost=0.05, seed=5), Way(lost=0.05, seed=7)),
    ],
    ids=["late", "lossy"],
)
def test_a_bad_line_changes_the_duration_only(sshd: Sshd, tmp_path: Path, up: Way, down: Way) -> None:
    (tmp_path / "worker.py").write_bytes(os.urandom(300_000))

    def calls(way: SlowLink) -> list[Any]:
        agent = AgentClient(through(way, sshd, Patience(), connect_timeout=60.0), sys.executable, attempts=1)
        agent.lock({"by": "me", "run": "run-1"})
        path = str(tmp_path / "worker.py")
        found = [
            agent.call_bytes("read", path=path),
            agent.call_bytes("tail", path=path, offset=100, limit=1000),
            agent.call("list", pattern=f"{tmp_path}/*"),
            agent.call("rollback", run="run-1"),
        ]
        agent.close()
        assert len(way.connections) == 1  # no retry was needed
        return found

    with SlowLink(sshd.port) as good, SlowLink(sshd.port, up=up, down=down) as bad:
        assert calls(bad) == calls(good)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def pair() -> Iterator[tuple[WatchedSocket, socket.socket, Clock]]:
    near, far = socket.socketpair()
    near.settimeout(0.01)
    clock = Clock()
    with near, far:
        yield WatchedSocket(near, 20.0, clock), far, clock


def test_a_pause_of_our_own_is_not_the_other_end_s_silence(pair: tuple[WatchedSocket, socket.socket, Clock]) -> None:
    watched, far, clock = pair
    clock.now = 3600.0
    with pytest.raises(TimeoutError):
        watched.recv(1)
    watched.asked()
    far.sendall(b"x")
    clock.now = 7200.0  # the machine slept; the answer lies there
    assert watched.recv(1) == b"x"
    with pytest.raises(TimeoutError):
        watched.recv(1)


def test_a_question_without_an_answer_ends_the_line(pair: tuple[WatchedSocket, socket.socket, Clock]) -> None:
    watched, far, clock = pair
    watched.asked()
    clock.now = 5.0
    watched.asked()  # the second does not begin anew
    clock.now = 19.9
    with pytest.raises(TimeoutError):
        watched.recv(1)
    clock.now = 20.0
    with pytest.raises(ConnectionAbortedError, match="no sign of life for 20 s"):
        watched.recv(1)
    assert watched.reason == "no sign of life for 20 s"
    assert far.recv(1) == b""


def fill(watched: WatchedSocket) -> None:
    while True:
        watched.send(b"x" * 65536)


def test_bytes_that_nobody_takes_end_the_line(pair: tuple[WatchedSocket, socket.socket, Clock]) -> None:
    watched, far, clock = pair
    with pytest.raises(TimeoutError):
        fill(watched)
    clock.now = 19.0
    far.recv(1 << 20)
    watched.send(b"x")  # somebody took some: the clock begins anew
    with pytest.raises(TimeoutError):
        fill(watched)
    clock.now = 38.0
    with pytest.raises(TimeoutError):
        watched.send(b"x" * 65536)
    clock.now = 39.0
    with pytest.raises(ConnectionAbortedError, match="the host took nothing for 20 s"):
        watched.send(b"x")


def test_a_port_that_refuses_for_half_a_minute_after_a_cut_is_met_again(sshd: Sshd) -> None:
    """Such as an sshd that is started anew. Four tries, with pauses of 3.5 s in all, would not be enough."""
    with SlowLink(sshd.port) as way:
        paused = [0.0]

        def sleep(seconds: float) -> None:
            paused[0] += seconds
            if paused[0] >= 30.0 and not way.listening:
                way.accept()

        agent = AgentClient(through(way, sshd, CALM), sys.executable, attempts=12, sleep=sleep)
        agent.lock({"by": "me", "run": "run-1", "command": "bench", "since": "today"})
        way.refuse()
        way.cut()
        assert agent.call("rollback", run="run-1")["nothing"]
        assert 30.0 <= paused[0] < 60.0
        agent.close()
