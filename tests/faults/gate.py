"""A gate in the agent: it stops inside one operation, at one call of the operating system, until it is let go.

The text below goes to the host with the agent's own source, in front of its last line. The agent writes its pid into
`reached` and then waits for `go`, at most ten seconds.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["PATIENCE_S", "Gate", "impatient"]

PATIENCE_S = 4
"""The agents' own limit of silence here, after which they end by themselves; 300 in real life."""

_LAST = b"\nimport os, sys\nserve("

_TEXT = """
def _gate(op, nth, call, reached, go):
    inside, asked, called, real = [False], [0], [0], Agent.answer

    def stop():
        if os.path.exists(reached):
            return
        with open(reached + ".new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(reached + ".new", reached)
        for _ in range(2000):
            if os.path.exists(go):
                return
            time.sleep(0.005)

    def answer(self, message, data):
        if message["op"] != op:
            return real(self, message, data)
        asked[0] += 1
        if asked[0] == nth and call is None:
            stop()
        inside[0] = asked[0] == nth
        try:
            return real(self, message, data)
        finally:
            inside[0] = False

    def gated(real_call):
        def do(*args, **more):
            if inside[0]:
                called[0] += 1
                if called[0] == call[1]:
                    inside[0] = False
                    stop()
            return real_call(*args, **more)
        return do

    Agent.answer = answer
    if call is not None:
        setattr(os, call[0], gated(getattr(os, call[0])))


_gate(**%s)
"""


class Gate:
    """Where to stop: the `nth` time that `op` is asked, as it begins, or before its `call[1]`th use of `os.call[0]`."""

    def __init__(self, folder: Path, op: str, nth: int, call: tuple[str, int] | None) -> None:
        self.reached, self.go = folder / "gate.reached", folder / "gate.go"
        self._what: dict[str, Any] = {"op": op, "nth": nth, "call": call}

    @property
    def pid(self) -> int | None:
        """The agent that stands there."""
        return int(self.reached.read_text()) if self.reached.exists() else None

    def let_go(self) -> None:
        self.go.touch()

    def source(self, agent: bytes) -> bytes:
        paths = {"reached": str(self.reached), "go": str(self.go)}
        text = _TEXT % repr(json.loads(json.dumps({**self._what, **paths})))
        return _with(agent, text.encode())


def impatient(agent: bytes, seconds: int) -> bytes:
    """The agent's source with another limit of silence, after which it ends by itself."""
    if b"\n_IDLE_S = " not in agent:
        raise AssertionError("the agent's source no longer names its limit of silence")
    return _with(agent, b"_IDLE_S = %d\n" % seconds)


def _with(agent: bytes, text: bytes) -> bytes:
    """The agent's source with `text` before it begins to serve."""
    before, last, after = agent.rpartition(_LAST)
    if not last:
        raise AssertionError("the agent's source no longer ends as the gate expects")
    return before + b"\n" + text + last + after
