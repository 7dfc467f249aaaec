"""A client of the server that shares no code with the project's own: what it sees is checked against the probe."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from gpu.validate.budget import Budget

__all__ = ["Answer", "Ask", "Client", "ServerError"]

_SILENCE_S = 120.0


class ServerError(Exception):
    """The server did not answer as it should."""


@dataclass(frozen=True)
class Ask:
    """A greedy request of exactly `tokens` tokens."""

    rid: str
    prompt: Sequence[int]
    tokens: int


@dataclass(frozen=True)
class Answer:
    """`ids` are the output tokens, `verifies` the cycles that the server counts for it (None: it does not say).

    Times are seconds of the server's clock from sending the request to its first and its last token.
    """

    rid: str
    ids: tuple[int, ...]
    verifies: int | None
    first_s: float
    last_s: float

    @property
    def decode_rate(self) -> float:
        """Tokens per second after the first token."""
        return (len(self.ids) - 1) / (self.last_s - self.first_s)

    def to_json(self) -> dict[str, Any]:
        """Without the ids."""
        found = asdict(self)
        del found["ids"]
        return {**found, "tokens": len(self.ids)}


class Client:
    """`rate`: seconds that the server's clock runs in one second of wall time (1, but for the simulated GPU)."""

    def __init__(self, port: int, budget: Budget) -> None:
        self._port = port
        self.budget = budget
        self.rate = 1.0

    def get(self, path: str) -> bytes:
        """The body of a GET. Raises ServerError for anything but 200."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=self.budget.limit(30.0))
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read()
        except OSError as error:
            raise ServerError(f"GET {path}: {error}") from error
        finally:
            connection.close()
        if response.status != 200:
            raise ServerError(f"GET {path} answered {response.status}")
        return body

    def ask(self, request: Ask) -> Answer:
        """Sends one request and reads its stream. Raises ServerError."""
        sampling = {"max_new_tokens": request.tokens, "ignore_eos": True, "temperature": 0}
        body = {"input_ids": list(request.prompt), "rid": request.rid, "sampling_params": sampling, "stream": True}
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=self.budget.limit(_SILENCE_S))
        try:
            began = time.monotonic()
            connection.request("POST", "/generate", json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != 200:
                raise ServerError(f"{request.rid}: /generate answered {response.status}: {response.read(500)!r}")
            return self._read(request, response, began)
        except (OSError, http.client.HTTPException) as error:
            raise ServerError(f"{request.rid}: {type(error).__name__}: {error}") from error
        finally:
            connection.close()

    def _read(self, request: Ask, response: http.client.HTTPResponse, began: float) -> Answer:
        first = last = 0.0
        ids: list[int] = []
        meta: Mapping[str, Any] = {}
        while (line := response.readline()).strip() != b"data: [DONE]":
            if not line:
                raise ServerError(f"{request.rid}: the stream broke off after {len(ids)} tokens")
            if not line.startswith(b"data:"):
                continue
            event = json.loads(line[5:])
            if "error" in event:
                raise ServerError(f"{request.rid}: {event['error']}")
            meta, last = event["meta_info"], time.monotonic()
            first = first or last
            # Cumulative by default, increments on a server that was asked for them.
            whole = len(event["output_ids"]) == meta["completion_tokens"]
            ids = list(event["output_ids"]) if whole else [*ids, *event["output_ids"]]
        if len(ids) != request.tokens:
            raise ServerError(f"{request.rid}: {len(ids)} tokens came, not {request.tokens}")
        times = [(at - began) * self.rate for at in (first, last)]
        return Answer(request.rid, tuple(ids), meta.get("spec_verify_ct"), *times)

    def together(self, requests: Sequence[Ask]) -> list[Answer]:
        """All at once; back when the last has ended, in the order of `requests`."""
        with ThreadPoolExecutor(len(requests)) as pool:
            return list(pool.map(self.ask, requests))
