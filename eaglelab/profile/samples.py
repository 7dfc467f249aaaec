"""One request as the client saw it, and what the server says of it in `meta_info`, whatever release it is."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["RequestSample", "Served", "sample_of_record", "served"]

# The same two figures under the names of each era: from 0.5.12, 0.5.11 and 0.5.4 on. The first that is there counts.
_CORRECT = ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
_HISTOGRAM = ("spec_correct_drafts_histogram", "spec_accept_histogram")


@dataclass(frozen=True)
class RequestSample:
    """One request. Times in seconds of the server's clock, from sending it; `itl_s` are the gaps between chunks.

    `chunk_tokens` are the new tokens of each chunk, the first included (one more than `itl_s`), empty where not known.
    `start_s` is when it was sent, from the measurement's begin; `round` the round of concurrent requests it was sent in.
    `tokens` is the server's count (`completion_tokens`), `arrived` the token ids that the client itself counted, if it did.
    `verifies` (`spec_verify_ct`), `correct_drafts` and `correct_hist` (index j: verifies with j correct drafts) are the
    server's own counts, None where it gives none. `output_hash` tells whether two outputs are the same; `repeated` is
    the share of the output's 8-grams that occurred before in it. `error` says why a request failed; its figures are 0.
    """

    tokens: int
    ttft_s: float
    e2e_s: float
    itl_s: Sequence[float] = ()
    verifies: int | None = None
    chunk_tokens: Sequence[int] = ()
    start_s: float | None = None
    round: int | None = None
    rid: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    arrived: int | None = None
    correct_drafts: int | None = None
    correct_hist: Sequence[int] | None = None
    output_hash: str | None = None
    repeated: float | None = None
    error: str | None = None

    @property
    def answered(self) -> bool:
        """Whether it has figures: it did not fail, and gave at least one token."""
        return self.error is None and self.tokens > 0 and self.e2e_s > 0

    @property
    def decode_s(self) -> float:
        """From the first token to the last."""
        return self.e2e_s - self.ttft_s


@dataclass(frozen=True)
class Served:
    """What `meta_info` says of one request; None for what the release does not say."""

    tokens: int | None
    prompt_tokens: int | None
    cached_tokens: int | None
    verifies: int | None
    correct_drafts: int | None
    correct_hist: tuple[int, ...] | None


def served(meta: Mapping[str, Any]) -> Served:
    """Read `meta_info` of any release. What is no whole number of at least 0 counts as not said."""
    histogram = next((meta[name] for name in _HISTOGRAM if isinstance(meta.get(name), list)), None)
    counts = None if histogram is None else [_count(value) for value in histogram]
    known = None if counts is None or None in counts else tuple(value or 0 for value in counts)
    said = next((_count(meta[name]) for name in _CORRECT if name in meta), None)
    if said is None and known is not None:
        said = sum(j * count for j, count in enumerate(known))
    return Served(
        tokens=_count(meta.get("completion_tokens")),
        prompt_tokens=_count(meta.get("prompt_tokens")),
        cached_tokens=_count(meta.get("cached_tokens")),
        verifies=_count(meta.get("spec_verify_ct")) or None,
        correct_drafts=said,
        correct_hist=known,
    )


def sample_of_record(
    record: Mapping[str, Any], *, clock_rate: float = 1.0, round_number: int | None = None
) -> RequestSample:
    """A record of the agent's load (`outcome`) as a sample; wall times become the server's, times `clock_rate`.

    `round_number` replaces the record's own where rounds of several settings must carry the same number to be compared.
    """
    number = record["round"] if round_number is None else round_number
    start_s = record["started"] * clock_rate
    if record["error"] is not None or not record["chunks"]:
        error = str(record["error"] or "no token")
        return RequestSample(0, 0.0, 0.0, start_s=start_s, round=number, rid=record["rid"], error=error)
    times = [at * clock_rate for at, _ in record["chunks"]]
    so_far = [tokens for _, tokens in record["chunks"]]
    said, output = served(record["meta_info"]), record["output"] or {}
    return RequestSample(
        tokens=so_far[-1] if said.tokens is None else said.tokens,
        ttft_s=times[0],
        e2e_s=times[-1],
        itl_s=tuple(after - before for before, after in itertools.pairwise(times)),
        verifies=said.verifies,
        chunk_tokens=(so_far[0], *(after - before for before, after in itertools.pairwise(so_far))),
        start_s=start_s,
        round=number,
        rid=record["rid"],
        prompt_tokens=said.prompt_tokens,
        cached_tokens=said.cached_tokens,
        # The agent gives no digest of ids that are not as many as the stream said.
        arrived=so_far[-1] if output.get("of") == "ids" else None,
        correct_drafts=said.correct_drafts,
        correct_hist=said.correct_hist,
        output_hash=output.get("sha256"),
        repeated=output.get("repeated"),
    )


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
