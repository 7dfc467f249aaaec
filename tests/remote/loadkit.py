"""A small server that streams as SGLang does, and loads to send it."""

from __future__ import annotations

import http.server
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from eaglelab.remote.agent.driver import Driver

__all__ = ["ME", "Streamer", "drive", "event", "load", "request", "streamer"]

ME = {"by": "me@here", "run": "run-1", "command": "bench", "since": "today"}
"""Whoever holds the lock of a host."""


def event(rid: str, tokens: int, total: int, **more: Any) -> bytes:
    """The answer so far, with all its text, as SGLang sends it."""
    meta = {
        "id": rid,
        "finish_reason": {"type": "length", "length": total} if tokens == total else None,
        "prompt_tokens": 7,
        "completion_tokens": tokens,
        "cached_tokens": 3,
        "spec_verify_ct": tokens // 2,
    }
    body = {"text": " x" * tokens, "output_ids": list(range(tokens)), "meta_info": {**meta, **more}}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


@dataclass
class Streamer:
    """What was asked of the server and when. `before(rid, tokens)` is called before each event; it may raise."""

    port: int = 0
    step: int = 2
    before: Callable[[str, int], None] = lambda _rid, _tokens: None
    special: dict[str, Callable[[http.server.BaseHTTPRequestHandler], None]] = field(default_factory=dict)
    asked: list[dict[str, Any]] = field(default_factory=list)
    arrivals: dict[str, float] = field(default_factory=dict)
    keys: set[str | None] = field(default_factory=set)
    events: list[tuple[str, str]] = field(default_factory=list)
    flush_answers: list[int] = field(default_factory=list)
    running: int = 0
    most: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)
    stop: Callable[[], None] = lambda: None

    def count(self, change: int, what: str, rid: str) -> None:
        with self.changed:
            self.running += change
            self.most = max(self.most, self.running)
            self.events.append((what, rid))
            self.changed.notify_all()

    def wait_for(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, seconds), self.events


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    streamer: Streamer
    body: dict[str, Any]

    def do_POST(self) -> None:
        arrived, served = time.monotonic(), self.streamer
        body = self.body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        served.keys.add(self.headers["Authorization"])
        if self.path == "/flush_cache":
            served.events.append(("flush", ""))
            self.whole(served.flush_answers.pop(0) if served.flush_answers else 200, b"flushed\n")
            return
        rid = body["rid"]
        served.asked.append(body)
        served.arrivals[rid] = arrived
        self.counted = True
        served.count(+1, "begin", rid)
        try:
            served.special.get(rid, _Handler.stream)(self)  # type: ignore[arg-type]
        except OSError:
            pass
        finally:
            self.done()

    def stream(self) -> None:
        served, body = self.streamer, self.body
        self.head()
        total = body["sampling_params"]["max_new_tokens"]
        for tokens in [*range(1, total, served.step), total]:
            served.before(body["rid"], tokens)
            self.chunk(event(body["rid"], tokens, total))
        self.chunk(b"data: [DONE]\n\n")
        self.chunk(b"")

    def head(self, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def done(self) -> None:
        if self.counted:
            self.counted = False
            self.streamer.count(-1, "end", self.body["rid"])

    def chunk(self, data: bytes) -> None:
        if not data:
            self.done()  # before the client can know, or it would seem to send the next one too early
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def whole(self, status: int, text: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def reset(self) -> None:
        """The connection as a killed server leaves it."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def log_message(self, *_: Any) -> None:
        pass


class _Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128

    def handle_error(self, *_: Any) -> None:
        """A client that has gone away is what some of these tests are about."""


@contextmanager
def streamer(**settings: Any) -> Iterator[Streamer]:
    found = Streamer(**settings)
    handler = type("Handler", (_Handler,), {"streamer": found})
    with _Server(("127.0.0.1", 0), handler) as server:
        found.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))

        def stop() -> None:
            server.shutdown()
            server.socket.close()

        found.stop = stop
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()


def request(rid: str, tokens: int = 9, at: float = 0.0) -> dict[str, Any]:
    return {"body": {"text": "Hi", "rid": rid, "sampling_params": {"max_new_tokens": tokens}}, "at": at}


def load(port: int, count: int, concurrency: int | None = 2, **changes: Any) -> dict[str, Any]:
    """A spec that sends requests 0 to `count` in one round."""
    return {
        "host": "127.0.0.1",
        "port": port,
        "key": None,
        "mode": "concurrency",
        "concurrency": concurrency,
        "silence": 30.0,
        "rounds": [{"requests": list(range(count))}],
        **changes,
    }


def drive(
    spec: dict[str, Any],
    requests: list[dict[str, Any]],
    news: list[dict[str, Any]] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The records by index, and what the last line says."""
    lines: list[dict[str, Any]] = []
    Driver(spec, requests, lines.append, (news if news is not None else []).append, clock).run()
    assert [list(line) for line in lines if "end" in line] == [["end"]]
    records = [line for line in lines if "index" in line]
    assert lines[-1]["end"]["finished"] + lines[-1]["end"]["failed"] == len(records) == lines[-1]["end"]["sent"]
    return sorted(records, key=lambda record: int(record["index"])), lines[-1]["end"]
