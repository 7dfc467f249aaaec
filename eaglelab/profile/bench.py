"""Unprofiled (or profiled) load on a server: what each request saw, and what a setting makes of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from eaglelab.profile.pooling import Estimate, accept_length, survival, throughput, timed
from eaglelab.profile.samples import RequestSample
from eaglelab.profile.setting_key import SettingKey
from eaglelab.profile.stats import Stats, describe, rounded

__all__ = ["BENCH_DEFINITIONS", "BenchResult", "BenchSummary", "RequestSample", "summarise_bench"]

BENCH_DEFINITIONS = {
    "requests": "requests sent; those without output are in this count and in `failed` only",
    "failed": "requests that ended in an error or without a token",
    "tokens": "output tokens of all requests, the first token of each (prefill's) included",
    "tok_s": "output tokens of one request / time from sending it to its last token",
    "decode_tok_s": "(output tokens - 1) / (time from first to last token): without prefill and queueing",
    "ttft_ms": "time from sending a request to its first output token",
    "tpot_ms": "(time to last token - time to first) / (output tokens - 1)",
    "itl_ms": "time between two chunks of the stream; under speculation a chunk holds several tokens",
    "itl_token_ms": (
        "time between two chunks / new tokens in the later one, once for each of them: the ITL of SGLang's bench_serving, "
        "comparable with and without speculation"
    ),
    "e2e_ms": "time from sending a request to its last token",
    "tok_s_in_all": "output tokens of all requests / wall time of the measurement",
    "timed": "requests behind it: those of complete rounds where there are rounds, else all that were answered",
    "wall_s": "that wall time: of the complete rounds, each from its first send to its last token; else of the whole",
    "throughput": (
        "the same with its 95 % interval; the unit is the round of concurrent requests where there are at least four; "
        "else the request, which takes concurrent requests as independent and makes the interval too narrow"
    ),
    "concurrency": "sum of the requests' times in the server / wall time: how many were there on average",
    "accept_length": "(output tokens - requests) / verifies, bonus token included; a request's first token is prefill's",
    "accept_length_ci95": "over the distinct outputs: a prompt repeated without sampling is no new observation of it",
    "survival": "S_k: share of verifies in which at least k drafts were correct, from the server's histograms",
    "cached_tokens": "prompt tokens that the server took from its prefix cache",
    "repeated": "largest share, of any request, of 8-grams in the output that occurred before in it",
    "p90": "90th percentile, linear interpolation between neighbours; p95 and p99 the same way",
    "ci95": "95 % confidence interval; of a mean by Student's t over the requests (or gaps), taken as independent",
}


@dataclass(frozen=True)
class BenchResult:
    """Requests measured under one setting.

    `steps` None: no speculation. `batch` is the wanted number of concurrent requests. `wall_s`: from first send to last
    token; for samples that carry `round` and `start_s` it follows from them. `variation` names the flags and variables
    that a sweep varies. `load` names the load: settings of one took turns, those of two did not; empty: not known.
    """

    steps: int | None
    batch: int
    requests: Sequence[RequestSample]
    profiled: bool = False
    wall_s: float | None = None
    variation: str = ""
    load: str = ""

    @property
    def key(self) -> SettingKey:
        """The setting, whatever the concurrency."""
        return SettingKey(self.steps, self.variation)


@dataclass(frozen=True)
class BenchSummary:
    """A setting's figures; each None when no request gives it. Rates in tokens per second, times in ms."""

    steps: int | None
    variation: str
    batch: int
    profiled: bool
    requests: int
    failed: int
    tokens: int
    tok_s: Stats | None
    decode_tok_s: Stats | None
    throughput: Estimate | None
    timed: int
    wall_s: float | None
    concurrency: float | None
    ttft_ms: Stats | None
    tpot_ms: Stats | None
    itl_ms: Stats | None
    itl_token_ms: Stats | None
    e2e_ms: Stats | None
    acceptance: Estimate | None
    survival: tuple[Estimate, ...]
    verifies: int | None
    prompt_tokens: int | None
    cached_tokens: int | None
    repeated: float | None

    @property
    def tok_s_in_all(self) -> float | None:
        """The value of `throughput`."""
        return None if self.throughput is None else self.throughput.value

    @property
    def accept_length(self) -> float | None:
        """The value of `acceptance`: tokens per verify, bonus token included."""
        return None if self.acceptance is None else self.acceptance.value

    def to_json(self) -> dict[str, Any]:
        """One entry of a bench report; `BENCH_DEFINITIONS` says what each figure is."""
        described = ("tok_s", "decode_tok_s", "throughput", "ttft_ms", "tpot_ms", "itl_ms", "itl_token_ms", "e2e_ms")
        figures: dict[str, Stats | Estimate | None] = {name: getattr(self, name) for name in described}
        return {
            "steps": self.steps,
            "variation": self.variation,
            "batch": self.batch,
            "profiled": self.profiled,
            "requests": self.requests,
            "failed": self.failed,
            "tokens": self.tokens,
            **{name: None if figure is None else figure.to_json() for name, figure in figures.items()},
            "tok_s_in_all": rounded(self.tok_s_in_all),
            "timed": self.timed,
            "wall_s": rounded(self.wall_s),
            "concurrency": rounded(self.concurrency),
            "accept_length": rounded(self.accept_length),
            "accept_length_ci95": None if self.acceptance is None else self.acceptance.to_json()["ci95"],
            "survival": [share.to_json() for share in self.survival],
            "verifies": self.verifies,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "repeated": rounded(self.repeated),
        }


def summarise_bench(result: BenchResult) -> BenchSummary:
    """Describe one setting. Requests without output tokens are left out of every figure but the counts."""
    answered = [request for request in result.requests if request.answered]
    decoded = [request for request in answered if request.tokens > 1 and request.decode_s > 0]
    counted, wall_s = timed(result.requests, result.wall_s)
    return BenchSummary(
        steps=result.steps,
        variation=result.variation,
        batch=result.batch,
        profiled=result.profiled,
        requests=len(result.requests),
        failed=len(result.requests) - len(answered),
        tokens=sum(request.tokens for request in answered),
        tok_s=describe([request.tokens / request.e2e_s for request in answered]),
        decode_tok_s=describe([(request.tokens - 1) / request.decode_s for request in decoded]),
        throughput=throughput(result.requests, result.wall_s),
        timed=len(counted),
        wall_s=wall_s,
        concurrency=math.fsum(request.e2e_s for request in counted) / wall_s if wall_s else None,
        ttft_ms=describe([1000 * request.ttft_s for request in answered]),
        tpot_ms=describe([1000 * request.decode_s / (request.tokens - 1) for request in decoded]),
        itl_ms=describe([1000 * gap for request in answered for gap in request.itl_s]),
        itl_token_ms=describe([1000 * gap for request in answered for gap in _token_gaps(request)]),
        e2e_ms=describe([1000 * request.e2e_s for request in answered]),
        acceptance=accept_length(answered),
        survival=survival(answered),
        verifies=_total(request.verifies for request in answered),
        prompt_tokens=_total(request.prompt_tokens for request in answered),
        cached_tokens=_total(request.cached_tokens for request in answered),
        repeated=max((request.repeated for request in answered if request.repeated is not None), default=None),
    )


def _token_gaps(request: RequestSample) -> Iterator[float]:
    """Seconds a token, as bench_serving has it: a chunk without a new token adds its gap to the next one's."""
    waited = 0.0
    for gap, tokens in zip(request.itl_s, request.chunk_tokens[1:], strict=False):
        waited += gap
        if tokens:
            yield from [waited / tokens] * tokens
            waited = 0.0


def _total(counts: Iterable[int | None]) -> int | None:
    """Of those that are known; None where none is."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
