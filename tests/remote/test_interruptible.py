from __future__ import annotations

import sys
import threading
import time

import pytest
from linkkit import BreakingLink

from eaglelab.interruption import Interruption
from eaglelab.remote.client import AgentClient
from eaglelab.remote.interruptible import InterruptibleLink
from eaglelab.remote.pipe import Late, LinkLost, Silent


class Script:
    """A pipe that answers what it is told to: bytes, or a silence (None) that ends after the time it was given."""

    def __init__(self, *answers: bytes | Exception | None) -> None:
        self.answers = list(answers)
        self.waits: list[float] = []
        self.now = 0.0

    def receive(self, timeout: float) -> bytes:
        self.waits.append(timeout)
        answer = self.answers.pop(0) if self.answers else None
        if answer is None:
            self.now += timeout
            raise Late(f"no answer for {timeout:g} s")
        if isinstance(answer, Exception):
            raise answer
        return answer

    def send(self, data: bytes, timeout: float) -> None:
        self.now += 0.0


class ScriptLink:
    name, sudo_user = "here", None

    def __init__(self, pipe: Script) -> None:
        self.pipe = pipe

    def open(self, command: object) -> Script:
        return self.pipe

    def close(self) -> None: ...


def pipe_of(script: Script, stop: Interruption) -> object:
    return InterruptibleLink(ScriptLink(script), stop, clock=lambda: script.now).open(["x"])


def test_what_comes_is_passed_on_at_once() -> None:
    script = Script(b"hello")
    assert pipe_of(script, Interruption()).receive(30) == b"hello"


def test_a_silence_is_told_with_the_time_that_was_given_for_it() -> None:
    script = Script()
    with pytest.raises(Silent, match=r"no answer for 1 s"):
        pipe_of(script, Interruption()).receive(1.0)
    assert script.now == pytest.approx(1.0)
    assert max(script.waits) <= 0.25


def test_a_line_that_broke_is_no_silence_to_be_waited_through() -> None:
    with pytest.raises(Silent, match="the connection broke"):
        pipe_of(Script(None, Silent("the connection broke: no sign of life")), Interruption()).receive(30)


@pytest.mark.parametrize("what", ["send", "receive", "open"])
def test_every_way_to_use_it_is_ended_once_and_then_works(what: str) -> None:
    stop, script = Interruption(), Script(b"one", b"two")
    link = InterruptibleLink(ScriptLink(script), stop)
    pipe = link.open(["x"])
    uses = {
        "send": lambda: pipe.send(b"x", 1.0),
        "receive": lambda: pipe.receive(1.0),
        "open": lambda: link.open(["x"]),
    }
    stop.ask()
    with pytest.raises(KeyboardInterrupt):
        uses[what]()
    uses[what]()


def test_a_sleep_is_ended_early_and_once() -> None:
    stop = Interruption()
    threading.Timer(0.05, stop.ask).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        stop.sleep(600)
    assert time.monotonic() - began < 60
    stop.sleep(0.001)


def test_a_client_whose_call_is_ended_asks_a_new_agent_next() -> None:
    stop, bare = Interruption(), BreakingLink()
    client = AgentClient(InterruptibleLink(bare, stop), sys.executable, sleep=stop.sleep, start_silence=10)
    try:
        client.call("list", pattern="/nowhere")
        threading.Timer(0.1, stop.ask).start()
        with pytest.raises(KeyboardInterrupt):
            _ask_for_ever(client)
        assert client.call("list", pattern="/nowhere") == {"paths": []}
        assert len(bare.pipes) == 2
    finally:
        client.close()


def _ask_for_ever(client: AgentClient) -> None:
    while True:
        client.call("list", pattern="/nowhere")


def test_waiting_for_a_lost_link_can_be_ended() -> None:
    class Gone(BreakingLink):
        gone = False

        def open(self, command):  # type: ignore[no-untyped-def]
            if self.gone:
                raise LinkLost("no route")
            return super().open(command)

    stop, bare = Interruption(), Gone()
    client = AgentClient(InterruptibleLink(bare, stop), sys.executable, sleep=stop.sleep, start_silence=10)
    client.call("list", pattern="/nowhere")
    client.close()
    bare.gone = True
    threading.Timer(0.1, stop.ask).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        client.call("list", pattern="/nowhere")
    assert time.monotonic() - began < 30  # its tries alone would take 42 s
