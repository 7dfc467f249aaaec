"""Questions and answers over a pipe to a running agent, one at a time."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from eaglelab.remote.agent.wire import decode_header, encode_frame
from eaglelab.remote.pipe import LinkLost, Pipe

__all__ = ["Talk"]


class Talk:
    """A pipe whose other end speaks frames. After any exception it is out of step and of no more use."""

    def __init__(self, pipe: Pipe, name: str, received: bytes = b"") -> None:
        self._pipe = pipe
        self._name = name
        self._buffer = received
        self._untold = 0

    def ask(
        self,
        op: str,
        args: dict[str, Any],
        data: bytes,
        silence: float,
        news: Callable[[dict[str, Any]], None] | None,
    ) -> tuple[dict[str, Any], bytes]:
        """Sends one request; its answer (`ok` or `error`) and the raw bytes beside it. Raises LinkLost."""
        self._pipe.send(encode_frame({"op": op, "args": args}, data), silence)
        while True:
            message, raw = self._frame(silence)
            if self._untold:
                self._untold -= "beat" not in message
            elif "beat" not in message:
                return message, raw
            elif news is not None:
                news(message["beat"])

    def tell(self, op: str, args: dict[str, Any], silence: float) -> None:
        """Sends one request and waits for nothing: its answer, whatever it says, is passed over. Raises LinkLost."""
        self._pipe.send(encode_frame({"op": op, "args": args}), silence)
        self._untold += 1

    def close(self) -> None:
        self._pipe.close()

    def _frame(self, silence: float) -> tuple[dict[str, Any], bytes]:
        while b"\n" not in self._buffer:
            self._buffer += self._receive(silence)
        line, self._buffer = self._buffer.split(b"\n", 1)
        try:
            size, raw = decode_header(line)
        except ValueError as error:
            raise LinkLost(f"the agent sent something that is no answer: {line[:80]!r}", where=self._name) from error
        pieces, have = [self._buffer], len(self._buffer)
        while have < size + raw:
            pieces.append(self._receive(silence))
            have += len(pieces[-1])
        whole = b"".join(pieces)
        self._buffer = whole[size + raw :]
        return json.loads(whole[:size]), whole[size : size + raw]

    def _receive(self, silence: float) -> bytes:
        piece = self._pipe.receive(silence)
        if not piece:
            raise LinkLost("the connection was closed from the other side", where=self._name)
        return piece
