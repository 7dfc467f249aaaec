"""Requests to the server from its own host: a stream is timed, or its failure is told apart."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from serverkit import free_port

from eaglelab.remote.agent.http import generate, request
from eaglelab.remote.agent.wire import AgentError

Answer = Callable[[http.server.BaseHTTPRequestHandler], None]


@dataclass
class Web:
    """One answer for every request; `requests` keeps what was asked."""

    port: int
    requests: list[dict[str, Any]] = field(default_factory=list)
    release: threading.Event = field(default_factory=threading.Event)


@contextmanager
def web(answer: Callable[[http.server.BaseHTTPRequestHandler, Web], None]) -> Iterator[Web]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def respond(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            found.requests.append(
                {"method": self.command, "path": self.path, "key": self.headers.get("Authorization"), "body": body}
            )
            answer(self, found)

        do_GET = do_POST = respond  # noqa: N815 - the names are http.server's

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found = Web(server.server_address[1])
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        try:
            yield found
        finally:
            found.release.set()
            server.shutdown()


def chunk(tokens: int, finish: dict[str, Any] | None = None) -> bytes:
    meta = {"completion_tokens": tokens, "finish_reason": finish, "id": "r"}
    return b"data: " + json.dumps({"text": "x" * tokens, "meta_info": meta}).encode() + b"\n\n"


def stream(*pieces: bytes, status: int = 200) -> Callable[[http.server.BaseHTTPRequestHandler, Web], None]:
    def answer(handler: http.server.BaseHTTPRequestHandler, _: Web) -> None:
        handler.send_response(status)
        handler.end_headers()
        for piece in pieces:
            handler.wfile.write(piece)

    return answer


def ask(port: int, *, timeout: float = 5.0, **more: Any) -> dict[str, Any]:
    ticks = iter(range(1000))
    more.setdefault("beat", lambda _: None)
    return generate("127.0.0.1", port, {"text": "hi"}, None, timeout, clock=lambda: float(next(ticks)), **more)


DONE = b"data: [DONE]\n\n"
STOP = {"type": "length", "length": 3}


def test_a_stream_is_timed_chunk_by_chunk() -> None:
    beats: list[dict[str, Any]] = []
    with web(stream(chunk(1), b": a comment\n\n", chunk(2), chunk(4, STOP), DONE)) as server:
        answer = ask(server.port, beat=beats.append)
    # One tick of the clock at the start, and one a line: a chunk is a line and a blank line.
    assert answer["chunks"] == [[1.0, 1], [5.0, 2], [7.0, 4]]
    assert (answer["ttft_s"], answer["e2e_s"]) == (1.0, 7.0)
    assert answer["meta_info"]["finish_reason"] == STOP
    assert answer["text"] == "xxxx"
    assert [beat["tokens"] for beat in beats] == [1, 2, 4]
    assert json.loads(server.requests[0]["body"]) == {"text": "hi", "stream": True}


def test_the_key_goes_into_the_header() -> None:
    with web(stream(chunk(1, STOP), DONE)) as server:
        generate("127.0.0.1", server.port, {}, "tops3cret", 5.0, lambda _: None)
    assert server.requests[0]["key"] == "Bearer tops3cret"


def test_a_stream_without_the_final_word_but_with_a_finish_reason_is_whole() -> None:
    with web(stream(chunk(3, STOP))) as server:
        assert ask(server.port)["meta_info"]["completion_tokens"] == 3


@pytest.mark.parametrize(
    ("pieces", "code", "what"),
    [
        ((chunk(1), chunk(2)), "broken", "ended after 2 tokens without a finish reason"),
        ((chunk(1), chunk(2), DONE), "broken", "ended after 2 tokens without a finish reason"),
        ((DONE,), "broken", "closed the stream without a token"),
        ((), "broken", "closed the stream without a token"),
        ((chunk(1), b'data: {"error": {"message": "out of memory"}}\n\n'), "http-error", "out of memory"),
        ((b"data: {half\n\n",), "broken", "the stream broke off"),
        ((b"data: [1]\n\n",), "broken", "the stream broke off"),
        ((b'data: {"text": "x"}\n\n',), "broken", "the stream broke off"),
    ],
)
def test_a_stream_that_ends_badly_is_no_result(pieces: tuple[bytes, ...], code: str, what: str) -> None:
    with web(stream(*pieces)) as server, pytest.raises(AgentError, match=what) as refused:
        ask(server.port)
    assert refused.value.code == code


def test_a_chunked_stream_that_is_cut_in_the_middle_is_broken() -> None:
    def answer(handler: http.server.BaseHTTPRequestHandler, _: Web) -> None:
        handler.protocol_version = "HTTP/1.1"
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        data = chunk(1)
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data) + b"ff\r\ndata: {")
        handler.close_connection = True

    with web(answer) as server, pytest.raises(AgentError) as refused:
        ask(server.port)
    assert refused.value.code == "broken"


def test_a_stream_that_falls_silent_is_a_timeout() -> None:
    def answer(handler: http.server.BaseHTTPRequestHandler, server: Web) -> None:
        stream(chunk(1))(handler, server)
        server.release.wait(10)

    with web(answer) as server, pytest.raises(AgentError, match="no token for 0 s") as refused:
        ask(server.port, timeout=0.1)
    assert refused.value.code == "timeout"


def test_an_answer_of_503_keeps_its_status() -> None:
    with web(stream(b"loading", status=503)) as server, pytest.raises(AgentError, match=r"503 .*loading") as refused:
        ask(server.port)
    assert (refused.value.code, refused.value.details["status"]) == ("http-error", 503)


def test_a_closed_port_is_refused() -> None:
    port = free_port()
    with pytest.raises(AgentError, match=f"nothing listens on port {port}") as refused:
        ask(port)
    assert refused.value.code == "refused"
    assert request("127.0.0.1", port, "GET", "/health", None, None, 1.0) == {"error": "refused"}


def test_a_request_gives_status_and_parsed_body() -> None:
    with web(stream(b'{"ok": 1}', status=200)) as server:
        answer = request("127.0.0.1", server.port, "POST", "/flush", {"a": 1}, "k", 5.0)
    assert answer == {"status": 200, "body": {"ok": 1}}
    seen = server.requests[0]
    assert (seen["method"], seen["path"], seen["key"], seen["body"]) == ("POST", "/flush", "Bearer k", b'{"a": 1}')


def test_a_body_that_is_no_json_comes_as_text_cut_to_size() -> None:
    with web(stream(b"\xff" + b"x" * 5000, status=500)) as server:
        answer = request("127.0.0.1", server.port, "GET", "/", None, None, 5.0)
    assert answer["status"] == 500
    assert answer["body"] == "\ufffd" + "x" * 1999


def test_a_server_that_accepts_and_says_nothing_is_a_timeout() -> None:
    with web(lambda _, server: server.release.wait(10)) as server:
        assert request("127.0.0.1", server.port, "GET", "/health", None, None, 0.1) == {"error": "timeout"}


def test_a_server_that_hangs_up_is_broken() -> None:
    with web(lambda *_: None) as server:
        assert request("127.0.0.1", server.port, "GET", "/health", None, None, 5.0)["error"] == "broken"


def test_an_answer_without_end_or_bottom_is_cut_and_taken_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    with web(stream(b"[" * 100_000)) as server:
        assert request("127.0.0.1", server.port, "GET", "/", None, None, 5.0)["body"] == "[" * 2000
        monkeypatch.setattr("eaglelab.remote.agent.http._MOST_BODY", 10)
        assert request("127.0.0.1", server.port, "GET", "/", None, None, 5.0)["body"] == "[" * 10
