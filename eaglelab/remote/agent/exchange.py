"""One HTTP request on a connection of its own that never blocks, so that one thread times many streams at once."""

from __future__ import annotations

import errno
import json
import os
import re
import selectors
import socket
from array import array
from typing import Any

__all__ = ["Exchange", "HttpAnswer", "http_request"]

_COUNT = re.compile(rb'"completion_tokens":\s*(\d+)')
_KEPT = 2000
"""Bytes of an answer that is no stream: enough to say what the server complains of."""


def http_request(host: str, path: str, body: dict[str, Any], key: str | None) -> bytes:
    """A POST as bytes. The server is asked to close: each request pays for its connection, as a new client's does."""
    content = json.dumps(body, separators=(",", ":")).encode()
    lines = [
        "POST %s HTTP/1.1" % path,
        "Host: %s" % host,
        "Content-Type: application/json",
        "Content-Length: %d" % len(content),
        "Connection: close",
    ]
    if key:
        lines.append("Authorization: Bearer %s" % key)
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


class HttpAnswer:
    """Bytes of a connection in, pieces of the body out: chunked, of a given length, or up to the end.

    `status` is None until the head has arrived. Raises ValueError on what is no HTTP.
    """

    def __init__(self) -> None:
        self.status: int | None = None
        self.over = False
        self._buffer = bytearray()
        self._chunked = False
        self._left: int | None = None

    def feed(self, data: bytes) -> list[bytes]:
        self._buffer += data
        if self.status is None and not self._head():
            return []
        if self._chunked:
            return self._chunks()
        piece = bytes(self._buffer)
        self._buffer.clear()
        if self._left is not None:
            piece = piece[: self._left]
            self._left -= len(piece)
            self.over = self._left == 0
        return [piece] if piece else []

    def closed(self) -> bool:
        """The connection has ended. Whether that is the end of the answer."""
        if self.status is not None and not self._chunked and self._left is None:
            self.over = True
        return self.over

    def _head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > 65536 or not b"HTTP/".startswith(bytes(self._buffer[:5])):
                raise ValueError("this is no HTTP: %r" % bytes(self._buffer[:60]))
            return False
        first, *lines = bytes(self._buffer[:end]).decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        words = first.split(None, 2)
        if len(words) < 2 or not words[0].startswith("HTTP/"):
            raise ValueError("this is no HTTP: %r" % first[:60])
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        self.status = int(words[1])
        self._chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        if not self._chunked and "content-length" in headers:
            self._left = int(headers["content-length"])
            self.over = self._left == 0
        return True

    def _chunks(self) -> list[bytes]:
        pieces = []
        while not self.over:
            if self._left is None:
                end = self._buffer.find(b"\r\n")
                if end < 0:
                    break
                self._left = int(bytes(self._buffer[:end]).partition(b";")[0], 16)
                del self._buffer[: end + 2]
            if self._left == 0:
                self.over = True
            elif len(self._buffer) < self._left + 2:
                break
            else:
                pieces.append(bytes(self._buffer[: self._left]))
                del self._buffer[: self._left + 2]
                self._left = None
        return pieces


class Exchange:
    """A request from its first byte to the end of its answer. `over` once there is nothing more to come.

    `times` and `tokens` grow by one entry for each event of the stream that brought tokens: when its bytes were taken
    from the socket (on the caller's clock), and how many tokens the answer has so far. Of an event only that count is
    read, since each holds the whole text so far; `last` is the last of them, whole.
    `fault` is (code, what): refused, timeout, broken or http. `answered`: the head of an answer has come.
    """

    def __init__(self, number: int, payload: bytes, began: float) -> None:
        self.number = number
        self.began = began
        self.heard = began
        self.ended = began
        self.times = array("d")
        self.tokens = array("q")
        self.last = b""
        self.body = b""
        self.received = 0
        self.over = False
        self.fault: tuple[str, str] | None = None
        self.answer = HttpAnswer()
        self._unsent = memoryview(payload)
        self._partial = b""
        self._word = False
        self.socket: socket.socket | None = None

    @property
    def answered(self) -> bool:
        return self.answer.status is not None

    @property
    def streamed(self) -> int:
        """Tokens so far."""
        return self.tokens[-1] if self.tokens else 0

    def connect(self, family: int, address: Any, selector: selectors.BaseSelector) -> None:
        try:
            connection = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            self.end("broken", "cannot open a connection: %s" % error, self.began)
            return
        self.socket = connection
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = connection.connect_ex(address)
        if code in (0, errno.EINPROGRESS):
            selector.register(connection, selectors.EVENT_WRITE, self)
        else:
            self._failed(OSError(code, os.strerror(code)), self.began)

    def send(self, now: float, selector: selectors.BaseSelector) -> None:
        """What the socket takes of the request; then it is only read."""
        assert self.socket is not None
        try:
            code = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, os.strerror(code))
            self._unsent = self._unsent[self.socket.send(self._unsent) :]
        except BlockingIOError:
            return
        except OSError as error:
            self._failed(error, now)
            return
        self.heard = now
        if not self._unsent:
            selector.modify(self.socket, selectors.EVENT_READ, self)

    def receive(self, buffer: memoryview) -> bytes | OSError | None:
        """What has arrived: b"" at the end of the connection, None where nothing has."""
        assert self.socket is not None
        try:
            return bytes(buffer[: self.socket.recv_into(buffer)])
        except BlockingIOError:
            return None
        except OSError as error:
            return error

    def take(self, data: bytes | OSError, now: float) -> None:
        """Reads what `receive` gave, which arrived at `now`."""
        self.heard = now
        if isinstance(data, OSError):
            self._failed(data, now)
        elif not data:
            self._closed(now)
        else:
            self.received += len(data)
            try:
                for piece in self.answer.feed(data):
                    self._take_body(piece, now)
            except (ValueError, KeyError, TypeError) as error:
                self.end("broken", "the answer cannot be read: %s" % error, now)
                return
            if self.answer.over:
                self._complete(now)

    def give_up(self, code: str, what: str, now: float) -> None:
        """No more is waited for; an answer whose last word has come is whole all the same."""
        if self._word:
            self._complete(now)
        else:
            self.end(code, what, now)

    def end(self, code: str, what: str, now: float) -> None:
        if not self.over:
            self.over, self.ended = True, now
            self.fault = self.fault or (code, what)

    def close(self, selector: selectors.BaseSelector) -> None:
        if self.socket is not None:
            if self.socket in selector.get_map():
                selector.unregister(self.socket)
            self.socket.close()
            self.socket = None

    def _take_body(self, piece: bytes, now: float) -> None:
        if self.answer.status != 200:
            self.body = (self.body + piece)[:_KEPT]
            return
        if not self._partial and piece.endswith(b"\n\n") and piece.find(b"\n\n") == len(piece) - 2:
            self._event(piece, now)
            return
        *events, self._partial = (self._partial + piece).split(b"\n\n")
        for event in events:
            self._event(event, now)

    def _event(self, event: bytes, now: float) -> None:
        if not event.startswith(b"data:"):
            return
        # In a string of JSON the quotes would be escaped, so this is the key itself.
        found = _COUNT.match(event, max(0, event.rfind(b'"completion_tokens":')))
        if found is None:
            self._other_event(event[5:].strip())
            return
        self.last = event
        count = int(found.group(1))
        if count > self.streamed:
            self.times.append(now)
            self.tokens.append(count)

    def _other_event(self, content: bytes) -> None:
        if content == b"[DONE]":
            self._word = True
            return
        parsed = json.loads(content)
        if "error" not in parsed:
            raise ValueError("no completion_tokens in %r" % content[:80])
        self.fault = ("http", "the server reports: %s" % json.dumps(parsed["error"])[:500])

    def _closed(self, now: float) -> None:
        if self.answer.closed() or self._word:
            self._complete(now)
        else:
            self.end("broken", "the server closed the connection after %d tokens" % self.streamed, now)

    def _complete(self, now: float) -> None:
        self.over, self.ended = True, now
        if self.answer.status != 200:
            text = self.body.decode(errors="replace").strip()
            self.fault = ("http", "the server answered %s: %s" % (self.answer.status, text[:500]))

    def _failed(self, error: OSError, now: float) -> None:
        if isinstance(error, ConnectionRefusedError):
            self.end("refused", "nothing listens there", now)
        else:
            self.end("broken", "the connection broke after %d tokens: %s" % (self.streamed, error), now)
