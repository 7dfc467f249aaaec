"""Status codes of the endpoints by release and state, without a scheduler."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from eaglelab.lab.standin.args import Release, parse
from eaglelab.lab.standin.routes import Routes
from eaglelab.lab.standin.web import Reply, WebRequest

GAUGES = {"gen_throughput": 94.0, "spec_accept_length": 1.5}


class Engine:
    """Answers every request with one finished output at once."""

    max_total_num_tokens = 1000
    unfinished: list[str] = []

    def __init__(self) -> None:
        self.last_output = 0.0
        self.aborted: list[tuple[str, bool]] = []

    async def generate(self, body: dict[str, Any], rid: str, stream: bool) -> AsyncGenerator[dict[str, Any], None]:
        if "fail" in str(body.get("text")):
            raise ValueError("no such thing")
        self.last_output = float("inf")
        yield {"text": " the", "output_ids": [1], "meta_info": {"id": rid, "finish_reason": {"type": "length"}}}

    async def ask(self, kind: str) -> Any:
        answers = {"internal_state": {"avg_spec_accept_length": 1.9}, "gauges": GAUGES}
        return answers.get(kind, True)

    def abort(self, rid: str, everything: bool) -> None:
        self.aborted.append((rid, everything))


def ask(
    path: str, release: str = "0.5.9", status: str = "up", flags: str = "", headers: dict[str, str] | None = None
) -> Reply:
    routes = Routes(parse(["--model", "m", *flags.split()]), Release.of(release), release, Engine(), {}, 1000.0)
    routes.status = status
    body = b'{"text": "x"}' if path == "/generate" else b""
    return asyncio.run(routes(WebRequest("GET", path, headers or {}, body)))


@pytest.mark.parametrize(
    ("path", "release", "status", "code"),
    [
        ("/health", "0.5.9", "starting", 503),
        ("/health", "0.5.9", "up", 200),
        ("/health", "0.5.9", "stopping", 503),
        ("/health", "0.4.6", "starting", 200),
        ("/health_generate", "0.4.6", "starting", 503),
        ("/health_generate", "0.5.9", "up", 200),
        ("/model_info", "0.5.9", "up", 200),
        ("/model_info", "0.5.5", "up", 404),
        ("/server_info", "0.5.9", "up", 200),
        ("/server_info", "0.5.5", "up", 404),
        ("/get_server_info", "0.4.3", "up", 200),
        ("/metrics", "0.5.9", "up", 404),
        ("/generate", "0.5.9", "starting", 200),
    ],
)
def test_endpoints_answer_as_the_release_does(path: str, release: str, status: str, code: int) -> None:
    assert ask(path, release, status).status == code


def test_a_key_is_asked_for_everywhere_but_at_health() -> None:
    key = "--api-key secret"
    assert ask("/v1/models", flags=key).status == 401
    assert ask("/v1/models", flags=key, headers={"authorization": "Bearer secret"}).status == 200
    assert ask("/health", flags=key).status == 200


def test_metrics_are_there_with_their_flag() -> None:
    shown = ask("/metrics", flags="--enable-metrics").body
    assert b'sglang:gen_throughput{model_name="m"} 94.0' in shown
    assert b'# TYPE sglang:spec_accept_length gauge\nsglang:spec_accept_length{model_name="m"} 1.5\n' in shown


def test_old_names_of_endpoints_are_called_deprecated(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        ask("/get_model_info", "0.5.5")
        assert caplog.messages == []
        ask("/get_model_info", "0.5.6")
    assert caplog.messages == [
        "Endpoint '/get_model_info' is deprecated and will be removed in a future version. "
        "Please use '/model_info' instead."
    ]


def test_the_access_log_has_the_form_of_uvicorn(capsys: pytest.CaptureFixture[str]) -> None:
    ask("/nowhere")
    assert capsys.readouterr().out.endswith('] INFO:     127.0.0.1:0 - "GET /nowhere HTTP/1.1" 404 Not Found\n')


def test_an_error_in_a_stream_is_an_event_and_in_an_answer_a_400() -> None:
    routes = Routes(parse(["--model", "m"]), Release.of("0.5.9"), "0.5.9", Engine(), {}, 1000.0)

    async def both() -> tuple[Reply, list[bytes]]:
        whole = await routes(WebRequest("POST", "/generate", body=b'{"text": "fail"}'))
        stream = (await routes(WebRequest("POST", "/generate", body=b'{"text": "fail", "stream": true}'))).stream
        assert stream is not None
        return whole, [event async for event in stream]

    whole, events = asyncio.run(both())
    assert (whole.status, json.loads(whole.body)) == (400, {"error": {"message": "no such thing"}})
    assert events == [b'data: {"error": {"message": "no such thing"}}\n\n', b"data: [DONE]\n\n"]
