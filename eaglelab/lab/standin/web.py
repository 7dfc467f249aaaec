"""The little of HTTP/1.1 that a client of SGLang needs: one request a time on kept connections, streamed bodies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

__all__ = ["Handler", "Reply", "WebRequest", "serve_connection"]

MAX_BODY = 64 << 20
DISCONNECT_POLL = 0.5
"""Seconds between two looks at whether the client of a slow answer is still there."""


@dataclass(frozen=True)
class WebRequest:
    """A request; `headers` by lower-case name."""

    method: str
    path: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    peer: str = "127.0.0.1:0"

    def json(self) -> Any:
        """The body as JSON ({} where it is empty).

        Raises:
            ValueError: it is not JSON.
        """
        return json.loads(self.body) if self.body.strip() else {}


@dataclass(frozen=True)
class Reply:
    """A status with a whole body, or a stream of pieces."""

    status: int = 200
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    stream: AsyncGenerator[bytes, None] | None = None

    @classmethod
    def of_json(cls, value: Any, status: int = 200) -> Reply:
        return cls(status, json.dumps(value).encode(), "application/json")


Handler = Callable[[WebRequest], Awaitable[Reply]]


async def _read(reader: asyncio.StreamReader, peer: str) -> WebRequest | None:
    """The next request of the connection; None at its end."""
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = int(headers.get("content-length") or 0)
    if length > MAX_BODY:
        return None
    return WebRequest(method, target.partition("?")[0], headers, await reader.readexactly(length), peer)


def _head(reply: Reply) -> bytes:
    length = "transfer-encoding: chunked" if reply.stream is not None else f"content-length: {len(reply.body)}"
    phrase = HTTPStatus(reply.status).phrase
    return f"HTTP/1.1 {reply.status} {phrase}\r\ncontent-type: {reply.content_type}\r\n{length}\r\n\r\n".encode()


async def _write(writer: asyncio.StreamWriter, reply: Reply) -> None:
    writer.write(_head(reply) + reply.body)
    if reply.stream is not None:
        async for piece in reply.stream:
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
    await writer.drain()


async def _answer(handler: Handler, request: WebRequest, reader: asyncio.StreamReader) -> Reply:
    """The handler's reply; the handler is cancelled if the client closes first.

    Raises:
        ConnectionAbortedError: it did.
    """
    task = asyncio.ensure_future(handler(request))
    while not (await asyncio.wait({task}, timeout=DISCONNECT_POLL))[0]:
        if reader.at_eof():
            task.cancel()
            raise ConnectionAbortedError(request.path)
    return task.result()


async def serve_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handler: Handler) -> None:
    """Answer requests until the client closes. A client that goes away in mid-answer ends the answer's stream."""
    host, port = writer.get_extra_info("peername")[:2]
    reply: Reply | None = None
    try:
        while request := await _read(reader, f"{host}:{port}"):
            reply = await _answer(handler, request, reader)
            await _write(writer, reply)
            if request.headers.get("connection", "").lower() == "close":
                break
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError, ValueError):
        pass
    finally:
        if reply is not None and reply.stream is not None:
            await reply.stream.aclose()
        writer.close()
