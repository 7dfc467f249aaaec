"""Requests to the SGLang server from its own host, so that the SSH link is in no measurement."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from typing import Any

from eaglelab.remote.agent.wire import AgentError, Beat

__all__ = ["generate", "request"]


_MOST_BODY = 64 << 20
"""Bytes of an answer; whoever has the server's port may send without end."""


def _headers(key: str | None) -> dict[str, str]:
    headers = {"Content-Type": "application/json"}
    if key:
        headers["Authorization"] = "Bearer " + key
    return headers


def request(
    host: str, port: int, method: str, path: str, body: dict[str, Any] | None, key: str | None, timeout: float
) -> dict[str, Any]:
    """One request. Returns status and body (parsed where it is JSON); or error: refused | timeout | broken."""
    import http.client  # takes as long to import as all else together, and patching needs none of it

    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request(method, path, json.dumps(body) if body is not None else None, _headers(key))
        with connection.getresponse() as response:
            text = response.read(_MOST_BODY).decode(errors="replace")
    except ConnectionRefusedError:
        return {"error": "refused"}
    except socket.timeout:  # TimeoutError itself only from Python 3.10 on
        return {"error": "timeout"}
    except (OSError, http.client.HTTPException) as error:
        return {"error": "broken", "text": str(error)}
    finally:
        connection.close()
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        parsed = text[:2000]
    return {"status": response.status, "body": parsed}


def generate(
    host: str,
    port: int,
    body: dict[str, Any],
    key: str | None,
    timeout: float,
    beat: Beat,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Any]:
    """One streamed `/generate`, timed where the server runs.

    Returns e2e_s and ttft_s (seconds), chunks: [[seconds since the first byte was sent, tokens so far], ...],
    meta_info of the last chunk. `timeout` (s) bounds the silence between two chunks.
    Raises AgentError `refused`, `http-error` (with the status), `timeout` or `broken` (the stream ended early).
    """
    import http.client

    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    began = clock()
    try:
        connection.request("POST", "/generate", json.dumps(dict(body, stream=True)), _headers(key))
        with connection.getresponse() as response:  # which may own the socket that the connection had
            if response.status != 200:
                raise AgentError(
                    "http-error",
                    "the server answered %d to /generate: %s"
                    % (response.status, response.read(500).decode(errors="replace")),
                    status=response.status,
                )
            return _read_stream(response, began, beat, clock)
    except ConnectionRefusedError as error:
        raise AgentError("refused", "nothing listens on port %d" % port) from error
    except socket.timeout as error:
        raise AgentError("timeout", "no token for %.0f s" % timeout) from error
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
        raise AgentError("broken", "the stream broke off: %s" % (error or type(error).__name__)) from error
    finally:
        connection.close()


def _read_stream(response: Any, began: float, beat: Beat, clock: Callable[[], float]) -> dict[str, Any]:
    chunks: list[list[float]] = []
    last: dict[str, Any] = {}
    said, finished = began, False
    while not finished:
        line = response.readline()
        if not line:
            break
        now = clock()
        if not line.startswith(b"data:"):
            continue
        payload = line[5:].strip()
        if payload == b"[DONE]":
            finished = True
            continue
        last = json.loads(payload)
        if "error" in last:
            raise AgentError("http-error", "the server reports: %s" % json.dumps(last["error"])[:500], status=200)
        chunks.append([round(now - began, 6), last["meta_info"]["completion_tokens"]])
        if now - said >= 0.5:
            said = now
            beat({"tokens": chunks[-1][1]})
    if not chunks:
        raise AgentError("broken", "the server closed the stream without a token")
    meta = last["meta_info"]
    if not meta.get("finish_reason"):
        raise AgentError(
            "broken", "the stream ended after %d tokens without a finish reason" % chunks[-1][1], tokens=chunks[-1][1]
        )
    return {
        "e2e_s": chunks[-1][0],
        "ttft_s": chunks[0][0],
        "chunks": chunks,
        "meta_info": meta,
        "text": str(last.get("text", ""))[-2000:],
    }
