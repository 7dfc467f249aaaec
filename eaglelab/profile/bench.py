"""Unprofiled (or profiled) load on a server: what each request saw, and what a setting makes of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from eaglelab.profile.stats import Stats, describe, rounded

__all__ = ["BENCH_DEFINITIONS", "BenchResult", "BenchSummary", "RequestSample", "summarise_bench"]

BENCH_DEFINITIONS = {
    "tok_s": "output tokens of one request / time from sending it to its last token",
    "decode_tok_s": "(output tokens - 1) / (time from first to last token): without prefill and queueing",
    "ttft_ms": "time from sending a request to its first output token",
    "tpot_ms": "(time to last token - time to first) / (output tokens - 1)",
    "itl_ms": "time between two chunks of the stream; under speculation a chunk holds several tokens",
    "tok_s_in_all": "output tokens of all requests / wall time of the measurement",
    "accept_length": "(output tokens - requests) / verifies, bonus token included; a request's first token is prefill's",
}


@dataclass(frozen=True)
class RequestSample:
    """One finished request. Times in seconds from sending it; `itl_s` are the gaps between chunks of the stream.

    `verifies` is the number of verify passes that served it (`spec_verify_ct`), None when the server does not say.
    """

    tokens: int
    ttft_s: float
    e2e_s: float
    itl_s: Sequence[float] = ()
    verifies: int | None = None


@dataclass(frozen=True)
class BenchResult:
    """Requests measured under one setting. `steps` None: no speculation. `wall_s`: from first send to last token."""

    steps: int | None
    batch: int
    requests: Sequence[RequestSample]
    profiled: bool = False
    wall_s: float | None = None


@dataclass(frozen=True)
class BenchSummary:
    """A setting's figures; each None when no request gives it. Rates in tokens per second, times in ms."""

    steps: int | None
    batch: int
    profiled: bool
    requests: int
    tokens: int
    tok_s: Stats | None
    decode_tok_s: Stats | None
    tok_s_in_all: float | None
    ttft_ms: Stats | None
    tpot_ms: Stats | None
    itl_ms: Stats | None
    accept_length: float | None

    def to_json(self) -> dict[str, Any]:
        """One entry of a bench report; `BENCH_DEFINITIONS` says what each figure is."""
        stats = {
            name: None if value is None else value.to_json()
            for name, value in (
                ("tok_s", self.tok_s),
                ("decode_tok_s", self.decode_tok_s),
                ("ttft_ms", self.ttft_ms),
                ("tpot_ms", self.tpot_ms),
                ("itl_ms", self.itl_ms),
            )
        }
        return {
            "steps": self.steps,
            "batch": self.batch,
            "profiled": self.profiled,
            "requests": self.requests,
            "tokens": self.tokens,
            **stats,
            "tok_s_in_all": rounded(self.tok_s_in_all),
            "accept_length": rounded(self.accept_length),
        }


def summarise_bench(result: BenchResult) -> BenchSummary:
    """Describe one setting. Requests without output tokens are left out of every figure but the count."""
    answered = [request for request in result.requests if request.tokens > 0 and request.e2e_s > 0]
    decoded = [request for request in answered if request.tokens > 1 and request.e2e_s > request.ttft_s]
    tokens = sum(request.tokens for request in answered)
    return BenchSummary(
        steps=result.steps,
        batch=result.batch,
        profiled=result.profiled,
        requests=len(result.requests),
        tokens=tokens,
        tok_s=describe([request.tokens / request.e2e_s for request in answered]),
        decode_tok_s=describe([(request.tokens - 1) / (request.e2e_s - request.ttft_s) for request in decoded]),
        tok_s_in_all=tokens / result.wall_s if result.wall_s else None,
        ttft_ms=describe([1000 * request.ttft_s for request in answered]),
        tpot_ms=describe([1000 * (request.e2e_s - request.ttft_s) / (request.tokens - 1) for request in decoded]),
        itl_ms=describe([1000 * gap for request in answered for gap in request.itl_s]),
        accept_length=_accept_length(answered),
    )


def _accept_length(requests: Iterable[RequestSample]) -> float | None:
    """Pooled over the requests whose verifies are known."""
    known = [(request.tokens - 1, request.verifies) for request in requests if request.verifies]
    verifies = sum(count for _, count in known if count)
    return sum(tokens for tokens, _ in known) / verifies if verifies else None
