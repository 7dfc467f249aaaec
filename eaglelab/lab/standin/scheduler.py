"""The scheduler's loop: takes requests in, forms batches, runs the worker, gives tokens back.

One loop turn is one batch: waiting requests are prefilled first, else all running ones decode one cycle. Everything
it knows of time is the virtual clock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from .args import Release, ServerArgs
from .batch import Result
from .device import Gpu
from .logs import DecodeStats, PrefillStats, decode_line, prefill_line
from .request import Request, meta_info
from .worker import SpecWorker

__all__ = ["PlainWorker", "Scheduler", "Worker"]

logger = logging.getLogger(__name__)


class Worker(Protocol):
    """What the scheduler drives: `SpecWorker`, or `PlainWorker` where the server does not speculate."""

    @property
    def overlap(self) -> bool: ...
    @property
    def draft_tokens(self) -> int: ...
    def prefill(self, requests: list[Request]) -> None: ...
    def decode(self, requests: list[Request]) -> Result: ...
    def before_next(self) -> None: ...
    def after_cycle(self) -> None: ...


class PlainWorker:
    """Decoding without speculation: one token a step, the whole of it on the GPU."""

    overlap = False
    draft_tokens = 0

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu

    def prefill(self, requests: list[Request]) -> None:
        self._gpu.run(self._gpu.costs.prefill(sum(request.prompt_tokens for request in requests)))
        self._gpu.stream.synchronize()
        for request in requests:
            request.position = 1

    def decode(self, requests: list[Request]) -> Result:
        self._gpu.run(self._gpu.costs.plain(len(requests)))
        self._gpu.stream.synchronize()
        for request in requests:
            request.position += 1
        return Result([1] * len(requests), [], lambda: None)

    def before_next(self) -> None:
        """Nothing: the host's work hides under the GPU's."""

    def after_cycle(self) -> None:
        """Nothing: the host's work hides under the GPU's."""


@dataclass
class _Interval:
    """Counts since the last `Decode batch` line, what that line said, and counts since the start (`total_*`)."""

    began: float = 0.0
    tokens: int = 0
    accepted: int = 0
    verifies: int = 0
    cycles: int = 0
    throughput: float = 0.0
    accept_length: float = 0.0
    total_accepted: int = 0
    total_verifies: int = 0


@dataclass
class Scheduler:
    """State of one scheduler. `send` gets the messages for the launcher; `vocabulary` and `kv_tokens` are counts."""

    args: ServerArgs
    release: Release
    gpu: Gpu
    worker: Worker
    send: Callable[[dict[str, Any]], None]
    vocabulary: int
    kv_tokens: int
    waiting: list[Request] = field(default_factory=list)
    running: list[Request] = field(default_factory=list)
    _pending: tuple[list[Request], Result] | None = None
    _interval: _Interval = field(default_factory=_Interval)
    _last_prefill: float = 0.0

    @property
    def idle(self) -> bool:
        return not self.waiting and not self.running and self._pending is None

    def handle(self, message: dict[str, Any]) -> None:
        """One message of the launcher."""
        kind = message.pop("kind")
        if kind == "generate":
            self.waiting.append(Request(**message, arrived=self.gpu.clock.now))
        elif kind == "abort":
            self._abort(message["rid"], message["abort_all"])
        elif kind == "flush_cache":
            success = self.idle
            if success:
                logger.info("Cache flushed successfully!")
                self._interval.total_accepted = self._interval.total_verifies = 0
            else:
                logger.warning(
                    "Cache not flushed because there are pending requests. "
                    f"#queue-req: {len(self.waiting)}, #running-req: {len(self.running)}"
                )
            self.send({"kind": "reply", "id": message["id"], "value": success})
        elif kind == "internal_state":
            self.send({"kind": "reply", "id": message["id"], "value": self.internal_state()})
        elif kind == "gauges":
            self.send({"kind": "reply", "id": message["id"], "value": self.gauges()})

    def turn(self) -> None:
        """Run one batch."""
        room = self.args.max_running_requests - len(self.running)
        if self.waiting and room > 0:
            self._settle()
            batch, self.waiting = self.waiting[:room], self.waiting[room:]
            self._prefill(batch)
        elif self.running:
            self._decode()
        else:
            self._settle()

    def internal_state(self) -> dict[str, Any]:
        state: dict[str, Any] = {
            "last_gen_throughput": self._interval.throughput,
            "memory_usage": {"token_capacity": self.kv_tokens},
            "effective_max_running_requests_per_dp": self.args.max_running_requests,
        }
        if self._interval.total_verifies:
            state["avg_spec_accept_length"] = self._interval.total_accepted / self._interval.total_verifies
        return state

    def gauges(self) -> dict[str, float]:
        """What `/metrics` shows beside the running requests; set with each `Decode batch` line, of its interval alone."""
        return {"gen_throughput": self._interval.throughput, "spec_accept_length": self._interval.accept_length}

    # One batch ----------------------------------------------------------------------------------------------------

    def _prefill(self, batch: list[Request]) -> None:
        clock = self.gpu.clock
        self.worker.prefill(batch)
        tokens = sum(request.prompt_tokens for request in batch)
        gap, self._last_prefill = clock.now - self._last_prefill, clock.now
        stats = PrefillStats(
            sequences=len(batch),
            tokens=tokens,
            kv_usage=self._kv_used() / self.kv_tokens,
            running=len(self.running),
            queued=len(self.waiting),
            throughput=tokens / gap if gap > 0 else 0.0,
        )
        logger.info(prefill_line(stats, self.release))
        clock.pace()
        for request in batch:
            request.take(1, self.gpu.acceptance.seed, self.vocabulary, clock.now)
        self.running += batch
        self._report(batch)

    def _decode(self) -> None:
        batch = list(self.running)
        if not self.worker.overlap:
            self._finish_cycle(batch, self.worker.decode(batch))
            self.worker.after_cycle()
            return
        if self._pending is not None:
            self.worker.before_next()
        launched = self.worker.decode(batch)
        self._settle()
        self._pending = (batch, launched)

    def _settle(self) -> None:
        """Read the result of the cycle before, if one is still out."""
        if self._pending is not None:
            (batch, result), self._pending = self._pending, None
            self._finish_cycle(batch, result)

    def _finish_cycle(self, batch: list[Request], result: Result) -> None:
        result.wait()
        clock, interval = self.gpu.clock, self._interval
        clock.pace()
        for index, request in enumerate(batch):
            if request.finish_reason is not None:
                continue
            taken = request.take(result.tokens[index], self.gpu.acceptance.seed, self.vocabulary, clock.now)
            interval.tokens += taken
            if result.correct:
                request.count_verify(result.correct[index])
                interval.accepted += result.correct[index] + 1
                interval.verifies += 1
        interval.cycles += 1
        if interval.cycles % self.args.decode_log_interval == 0:
            self._log_decode(len(batch))
        self._report(batch)

    def _log_decode(self, running: int) -> None:
        interval, now = self._interval, self.gpu.clock.now
        interval.throughput = interval.tokens / (now - interval.began)
        interval.accept_length = interval.accepted / interval.verifies if interval.verifies else 0.0
        stats = DecodeStats(
            running=running,
            queued=len(self.waiting),
            kv_tokens=self._kv_used(),
            kv_usage=self._kv_used() / self.kv_tokens,
            throughput=interval.throughput,
            accepted=interval.accepted,
            verifies=interval.verifies,
            draft_tokens=self.worker.draft_tokens,
        )
        logger.info(decode_line(stats, self.release))
        interval.total_accepted += interval.accepted
        interval.total_verifies += interval.verifies
        interval.began, interval.tokens, interval.accepted, interval.verifies = now, 0, 0, 0

    def _kv_used(self) -> int:
        return sum(request.prompt_tokens + len(request.output) for request in self.running)

    def _abort(self, rid: str, everything: bool) -> None:
        reason = {"type": "abort", "message": "Abort in waiting queue" if not self.running else "Aborted"}
        hit = [r for r in (*self.waiting, *self.running) if everything or r.rid.startswith(rid)]
        for request in hit:
            request.finish(reason, self.gpu.clock.now)
        self.waiting = [request for request in self.waiting if request not in hit]
        self._report(hit)

    def _report(self, batch: list[Request]) -> None:
        """Tell the launcher of new tokens (streams) and of what is finished; drop the latter."""
        for request in batch:
            if request.sent < 0 or not (request.stream or request.finish_reason is not None):
                continue
            tokens, request.sent = request.output[request.sent :], len(request.output)
            meta = meta_info(request, self.release, self.args.speculative_num_draft_tokens or 0)
            self.send({"kind": "output", "rid": request.rid, "tokens": tokens, "meta": meta})
            if request.finish_reason is not None:
                request.sent = -1
        self.running = [request for request in self.running if request.finish_reason is None]


def make_worker(gpu: Gpu, args: ServerArgs, release: Release, chosen: tuple[str, str] | None) -> Worker:
    """The worker for `chosen` (module and class), or the plain one."""
    return PlainWorker(gpu) if chosen is None else SpecWorker(*chosen, gpu, args, release)
