"""The client's loop of a load: requests sent when they are due, streams read and timed, all in one thread.

Every request has a connection of its own, as in SGLang's bench_serving.
"""

from __future__ import annotations

import math
import select
import selectors
import socket
import time
from collections import deque
from typing import Any, Callable, Deque

from eaglelab.remote.agent.cost import ClientCost
from eaglelab.remote.agent.exchange import Exchange, http_request
from eaglelab.remote.agent.outcome import outcome

__all__ = ["Driver"]

_TICK_S = 0.5
_GIVE_UP = 8
"""After so many requests in a row without any answer the server is taken for gone: the rest is not sent."""

_BURST = 16
"""Starts between two looks at the sockets: a long row of them must not keep the streams that run from being read."""

_FLUSH_S = 10.0
"""How long a server that has just sent its last token may still count a request as running."""


class _Over(Exception):
    """The load ends before its last request."""


class Driver:
    """Drives a server with `requests` ({"body": ..., "at": s}), as `spec` says.

    spec: `host`, `port`, `key` (or None), `mode`: `concurrency` (the next request starts as soon as one of `concurrency`
    has ended) or `rate` (each starts `at` seconds after its round's begin; a `concurrency` then is a limit), `silence`
    (s without a byte after which a request has failed; one that has no token yet waits while any other stream moves),
    `rounds`: [{"requests": [indexes], "flush": bool, "pause_s": s}], each of which begins once the one before has
    ended.

    `emit` is given a line of the result, `publish` the progress twice a second.
    """

    def __init__(
        self,
        spec: dict[str, Any],
        requests: list[dict[str, Any]],
        emit: Callable[[dict[str, Any]], None],
        publish: Callable[[dict[str, Any]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.stopping = False
        self._spec, self._requests = spec, requests
        self._emit, self._publish, self._clock = emit, publish, clock
        self._payloads = [self._payload("/generate", dict(request["body"], stream=True)) for request in requests]
        self._selector = selectors.EpollSelector()
        self._buffer = memoryview(bytearray(1 << 18))
        self._target = _reachable(spec["host"], spec["port"])
        self._limit = spec.get("concurrency") or math.inf
        self._open: set[Exchange] = set()
        self._done: Deque[tuple[Exchange, int, float]] = deque()
        self._due: dict[int, float] = {}
        self._round, self._unanswered = 0, 0
        self._sent = self._finished = self._failed = self._tokens = 0
        self._recent: Deque[tuple[float, int]] = deque(maxlen=3)
        self._cost = ClientCost()
        self._began = self._woke = self._told = clock()

    def run(self) -> None:
        """Sends everything, or says in the last line why not."""
        self._cost = ClientCost()
        self._began = self._woke = self._told = self._clock()
        reason = "finished"
        try:
            for number, about in enumerate(self._spec["rounds"]):
                self._round = number
                self._pause(about.get("pause_s", 0.0))
                if about.get("flush"):
                    self._flush()
                self._run_round(about["requests"])
        except _Over as over:
            reason = str(over)
        for exchange in list(self._open):
            exchange.give_up("stopped", "the load was ended", self._clock())
            self._close(exchange)
        while self._done:
            self._write_one()
        self._tell(self._clock())
        self._selector.close()
        self._emit({"end": self._summary(reason)})

    def _payload(self, path: str, body: dict[str, Any]) -> bytes:
        return http_request("%s:%d" % (self._spec["host"], self._spec["port"]), path, body, self._spec.get("key"))

    def _run_round(self, indexes: list[int]) -> None:
        began, queue = self._clock(), deque(indexes)
        if self._spec["mode"] == "rate":
            queue = deque(sorted(indexes, key=lambda index: float(self._requests[index]["at"])))
        while queue or self._open:
            self._turn(self._start_due(queue, began))

    def _start_due(self, queue: Deque[int], began: float) -> float:
        """Starts what is due. Returns when to look again at the latest."""
        for _ in range(_BURST):
            if not queue or len(self._open) >= self._limit:
                return math.inf
            due: float | None = began + self._requests[queue[0]]["at"] if self._spec["mode"] == "rate" else None
            if due is not None and due > self._clock():
                return due
            self._start(queue.popleft(), due)
        return self._clock()

    def _start(self, index: int, due: float | None) -> None:
        now = self._clock()
        self._due[index] = now if due is None else due
        if due is not None and self._limit == math.inf:
            self._cost.late(now - due)
        self._sent += 1
        exchange = Exchange(index, self._payloads[index], now)
        self._connect(exchange)

    def _connect(self, exchange: Exchange) -> None:
        self._open.add(exchange)
        exchange.connect(self._target[0], self._target[1], self._selector)
        if exchange.over:
            self._close(exchange)
            self._check()

    def _pause(self, seconds: float) -> None:
        until = self._clock() + seconds
        while self._clock() < until:
            self._turn(until)

    def _flush(self) -> None:
        """Empties the server's prefix cache. It refuses while it counts a request as running."""
        deadline, tries = self._clock() + _FLUSH_S, 0
        while True:
            tries += 1
            exchange = Exchange(-1, self._payload("/flush_cache", {}), self._clock())
            self._connect(exchange)
            while not exchange.over:
                self._turn(math.inf)
            status = exchange.answer.status
            if status == 200:
                break
            if status != 400 or self._clock() >= deadline:
                what = exchange.fault[1] if exchange.fault else ""
                raise _Over("flush-failed: %s" % what)
            self._pause(0.1)
        self._emit({"flush": {"round": self._round, "tries": tries, "at": round(self._clock() - self._began, 6)}})

    def _turn(self, wake: float) -> None:
        """Waits for the sockets, until `wake` at most, and reads them. Records are written while nothing arrives."""
        now = self._clock()
        timeout = 0.0 if self._done else max(0.0, min(wake, self._told + _TICK_S) - now)
        self._cost.turn(now - self._woke)
        if timeout:
            select.select([self._selector.fileno()], [], [], timeout)  # its own timeout counts whole milliseconds
        ready = self._selector.select(0)
        self._woke = self._clock()
        arrived: list[tuple[Exchange, bytes | OSError | None, float]] = []
        for key, events in ready:
            exchange: Exchange = key.data
            if events & selectors.EVENT_WRITE:
                exchange.send(self._woke, self._selector)
                arrived.append((exchange, None, self._woke))
            else:
                arrived.append((exchange, exchange.receive(self._buffer), self._clock()))
        # The times of all are taken before any of them is read.
        for exchange, data, at in arrived:
            before = exchange.streamed
            if data is not None:
                exchange.take(data, at)
            self._tokens += exchange.streamed - before
            if exchange.over:
                self._close(exchange)
        if not ready and self._done:
            self._write_one()
        if self._woke >= self._told + _TICK_S:
            self._tick(self._woke)
        self._check()

    def _tick(self, now: float) -> None:
        silence = self._spec["silence"]
        # Before its first token a request may wait for its turn as long as the server serves others.
        any_heard = max((exchange.heard for exchange in self._open), default=now)
        for exchange in list(self._open):
            if now - (exchange.heard if exchange.streamed else any_heard) > silence:
                exchange.give_up("timeout", "no byte for %g s, after %d tokens" % (silence, exchange.streamed), now)
                self._close(exchange)
        self._tell(now)

    def _tell(self, now: float) -> None:
        self._told = now
        self._recent.append((now, self._tokens))
        then, tokens = self._recent[0]
        self._publish(
            {
                "sent": self._sent,
                "running": len(self._open),
                "finished": self._finished,
                "failed": self._failed,
                "tokens": self._tokens,
                "tok_s": round((self._tokens - tokens) / (now - then), 1) if now > then else 0.0,
                "elapsed_s": round(now - self._began, 3),
                "round": self._round,
                "requests": sum(len(about["requests"]) for about in self._spec["rounds"]),
            }
        )

    def _close(self, exchange: Exchange) -> None:
        exchange.close(self._selector)
        self._open.discard(exchange)
        self._unanswered = 0 if exchange.answered else self._unanswered + 1
        if exchange.number >= 0:
            self._done.append((exchange, self._round, self._due[exchange.number]))

    def _write_one(self) -> None:
        exchange, number, due = self._done.popleft()
        record = outcome(exchange, self._requests[exchange.number], self._began)
        record.update(round=number, due=round(due - self._began, 6))
        if record["error"] is None:
            self._finished += 1
        else:
            self._failed += 1
        self._emit(record)

    def _check(self) -> None:
        if self.stopping:
            raise _Over("stopped")
        if self._unanswered >= _GIVE_UP:
            raise _Over("no-answer: %d requests in a row got none" % self._unanswered)

    def _summary(self, reason: str) -> dict[str, Any]:
        elapsed = self._clock() - self._began
        code, _, what = reason.partition(": ")
        return {
            "reason": code,
            "what": what,
            "sent": self._sent,
            "finished": self._finished,
            "failed": self._failed,
            "unsent": sum(len(about["requests"]) for about in self._spec["rounds"]) - self._sent,
            "tokens": self._tokens,
            "elapsed_s": round(elapsed, 6),
            "client": self._cost.summary(elapsed, self._tokens),
        }


def _reachable(host: str, port: int) -> tuple[int, Any]:
    """Family and address that answers; the first one where none does, whose refusals then say so."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.settimeout(2.0)
                probe.connect(address)
                return family, address
        except OSError:
            continue
    return found[0][0], found[0][4]
