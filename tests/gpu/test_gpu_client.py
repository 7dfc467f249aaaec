"""The validation's own client, against a server that answers as SGLang does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from gpu.validate.budget import Budget, OutOfTimeError
from gpu.validate.client import Ask, Client, ServerError


class Handler(BaseHTTPRequestHandler):
    """Streams the ids 10, 11, ... in chunks of two; the request's id says how it goes wrong."""

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/metrics" else 404)
        self.end_headers()
        self.wfile.write(b"all well")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        wanted, how = body["sampling_params"]["max_new_tokens"], body["rid"]
        assert body["sampling_params"] == {"max_new_tokens": wanted, "ignore_eos": True, "temperature": 0}
        self.send_response(400 if how == "refused" else 200)
        self.end_headers()
        if how == "error":
            self.event({"error": {"message": "no room"}})
        for count in range(1, wanted + 1, 2):
            first = count - 2 if how == "increments" and count > 1 else 0
            meta = {"completion_tokens": count, "spec_verify_ct": count // 2}
            self.event({"output_ids": [10 + number for number in range(first, count)], "meta_info": meta})
        if how != "cut":
            self.wfile.write(b"data: [DONE]\n\n")

    def event(self, event: dict[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def client(port: int) -> Client:
    return Client(port, Budget(30))


@pytest.mark.parametrize("how", ["cumulative", "increments"])
def test_ids_and_verifies_are_read_from_the_stream(client: Client, how: str) -> None:
    answer = client.ask(Ask(how, [1, 2], 5))
    assert answer.ids == (10, 11, 12, 13, 14)
    assert answer.verifies == 2
    assert 0 < answer.first_s <= answer.last_s < 30


def test_times_are_of_the_servers_clock(client: Client) -> None:
    client.rate = 1e6
    assert client.ask(Ask("fast", [1], 3)).last_s > 10


@pytest.mark.parametrize(
    ("how", "tokens", "said"),
    [
        ("refused", 3, "answered 400"),
        ("error", 3, "no room"),
        ("cut", 3, "broke off after 3 tokens"),
        ("even", 4, "3 tokens came, not 4"),
    ],
)
def test_what_is_no_whole_answer_is_an_error(client: Client, how: str, tokens: int, said: str) -> None:
    with pytest.raises(ServerError, match=said):
        client.ask(Ask(how, [1], tokens))


def test_requests_go_out_together_and_come_back_in_order(client: Client) -> None:
    answers = client.together([Ask(f"r{tokens}", [1], tokens) for tokens in (5, 1, 3)])
    assert [len(answer.ids) for answer in answers] == [5, 1, 3]
    assert answers[2].to_json().keys() == {"rid", "verifies", "first_s", "last_s", "tokens"}


def test_a_page_is_fetched_or_its_status_told(client: Client) -> None:
    assert client.get("/metrics") == b"all well"
    with pytest.raises(ServerError, match="answered 404"):
        client.get("/nothing")


def test_nothing_is_sent_once_the_time_is_over(port: int) -> None:
    with pytest.raises(OutOfTimeError):
        Client(port, Budget(0)).ask(Ask("late", [1], 3))


def test_nobody_listening_is_an_error_of_the_server(port: int) -> None:
    with pytest.raises(ServerError, match="x: ConnectionRefusedError"):
        Client(1, Budget(5)).ask(Ask("x", [1], 3))
