"""Calls to the agent of one host: starts it when needed, starts it again after a lost link, turns errors into words."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import tenacity

from eaglelab.errors import HostError
from eaglelab.remote.agent.wire import READY, decode_header, encode_frame
from eaglelab.remote.hints import explain
from eaglelab.remote.payload import BOOTSTRAP, agent_source
from eaglelab.remote.pipe import Link, LinkLost, Pipe

__all__ = ["AgentClient"]

_REPEATABLE = frozenset(
    {"facts", "lock", "read", "sed", "backup", "apply", "rollback", "status", "stop", "poll", "tail", "list"}
)
"""Operations that end the same however often they run, so a lost link is answered by asking again."""

_START_S = 30.0


class AgentClient:
    """The agent on one host.

    `silence` of a call is how long (s) nothing may arrive: long operations send news every moment, so that a
    dead link is told from a slow host.
    """

    def __init__(
        self, link: Link, python: str, *, attempts: int = 4, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.link = link
        self._python = python
        self._pipe: Pipe | None = None
        self._buffer = b""
        self._holder: dict[str, Any] | None = None
        self._again = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(LinkLost),
            stop=tenacity.stop_after_attempt(attempts),
            wait=tenacity.wait_exponential(multiplier=0.5, max=8),
            reraise=True,
            sleep=sleep,
        )

    def lock(self, holder: Mapping[str, Any]) -> None:
        """Takes the host's lock and keeps it, also over a lost link, until `close`."""
        self._holder = None
        self.call("lock", holder=dict(holder))
        self._holder = dict(holder)

    def call(
        self,
        op: str,
        data: bytes = b"",
        *,
        silence: float = 30.0,
        news: Callable[[dict[str, Any]], None] | None = None,
        **args: Any,
    ) -> dict[str, Any]:
        """The answer's message. Raises HostError with a hint, or LinkLost when the link stays away."""
        return self.call_bytes(op, data, silence=silence, news=news, **args)[0]

    def call_bytes(
        self,
        op: str,
        data: bytes = b"",
        *,
        silence: float = 30.0,
        news: Callable[[dict[str, Any]], None] | None = None,
        **args: Any,
    ) -> tuple[dict[str, Any], bytes]:
        """As `call`, with the raw bytes that came beside the message."""

        def once() -> tuple[dict[str, Any], bytes]:
            try:
                return self._ask(op, args, data, silence, news)
            except LinkLost:
                self._drop()
                raise

        return self._again(once) if op in _REPEATABLE else once()

    def close(self) -> None:
        self._drop()
        self.link.close()

    def _drop(self) -> None:
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None
        self._buffer = b""

    def _ask(
        self, op: str, args: dict[str, Any], data: bytes, silence: float, news: Callable[[dict[str, Any]], None] | None
    ) -> tuple[dict[str, Any], bytes]:
        if self._pipe is None:
            self._pipe = self._start()
            if self._holder is not None:
                self._ask("lock", {"holder": self._holder}, b"", silence, None)
        self._pipe.send(encode_frame({"op": op, "args": args}, data), silence)
        while True:
            message, raw = self._frame(silence)
            if "beat" in message:
                if news is not None:
                    news(message["beat"])
            elif "error" in message:
                raise explain(message["error"], self.link.name)
            else:
                return message["ok"], raw

    def _start(self) -> Pipe:
        """Feeds the agent to the host's Python and waits for its greeting; what a login shell prints before is dropped."""
        pipe = self.link.open([self._python, "-I", "-S", "-c", BOOTSTRAP])
        source = agent_source()
        seen = b""
        try:
            pipe.send(b"%d\n" % len(source) + source, _START_S)
            while READY not in seen:
                piece = pipe.receive(_START_S)
                if not piece:
                    raise self._no_agent(pipe, seen)
                seen += piece
        except LinkLost as error:
            ended = self._no_agent(pipe, seen) if "gone" in error.what or "broke" in error.what else error
            pipe.close()
            raise ended from error
        except HostError:
            pipe.close()
            raise
        self._buffer = seen.split(READY, 1)[1]
        return pipe

    def _no_agent(self, pipe: Pipe, seen: bytes) -> HostError:
        code, stderr = pipe.ended()
        text = (stderr or seen.decode(errors="replace")).strip()
        hint = "set `python` of this host in inventory.yaml to the Python that runs SGLang there"
        if "EAGLELAB-PYTHON-TOO-OLD" in text:
            version = text.rsplit("EAGLELAB-PYTHON-TOO-OLD", 1)[1].split()[0]
            return HostError(
                f"{self._python} is Python {version}; 3.8 or later is needed", where=self.link.name, hint=hint
            )
        if code in (126, 127) or "not found" in text or "No such file" in text:
            return HostError(f"there is no Python at {self._python}: {text}", where=self.link.name, hint=hint)
        if code is None:
            return LinkLost("the connection broke while the agent was started", where=self.link.name)
        return HostError(
            f"{self._python} ended with {code} before the agent ran: {text[-500:]}", where=self.link.name, hint=hint
        )

    def _frame(self, silence: float) -> tuple[dict[str, Any], bytes]:
        while b"\n" not in self._buffer:
            self._more(silence)
        line, self._buffer = self._buffer.split(b"\n", 1)
        try:
            size, raw = decode_header(line)
        except ValueError as error:
            raise LinkLost(
                f"the agent sent something that is no answer: {line[:80]!r}", where=self.link.name
            ) from error
        pieces, have = [self._buffer], len(self._buffer)
        while have < size + raw:
            pieces.append(self._receive(silence))
            have += len(pieces[-1])
        whole = b"".join(pieces)
        self._buffer = whole[size + raw :]
        return json.loads(whole[:size]), whole[size : size + raw]

    def _more(self, silence: float) -> None:
        self._buffer += self._receive(silence)

    def _receive(self, silence: float) -> bytes:
        if self._pipe is None:
            raise LinkLost("the agent is not running", where=self.link.name)
        piece = self._pipe.receive(silence)
        if not piece:
            raise LinkLost("the connection was closed from the other side", where=self.link.name)
        return piece
