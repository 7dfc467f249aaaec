"""Facts from the requests of one setting, as the client and the server counted them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from eaglelab.diagnosis.facts import Sheet
from eaglelab.profile.bench import BenchResult, summarise_bench
from eaglelab.profile.pooling import accept_length
from eaglelab.profile.samples import RequestSample

__all__ = ["put_requests"]

_LATER = 5
"""Cycles of a request before the ones that its first is compared with."""


def put_requests(sheet: Sheet, result: BenchResult, source: str) -> None:
    """What they were, how fast, and what was accepted. Facts that are there already (from the probe) stay."""
    summary = summarise_bench(result)
    answered = [sample for sample in result.requests if sample.answered]
    sheet.put("batch", result.batch, source)
    sheet.put("requests", summary.requests, source)
    sheet.put("failed_requests", summary.failed, source)
    sheet.put("tok_s", summary.tok_s_in_all, source)
    sheet.put("output_tokens", summary.tokens, source)
    sheet.put("repeated", summary.repeated, source)
    lengths = [sample.prompt_tokens + sample.tokens for sample in answered if sample.prompt_tokens]
    sheet.put("longest_text", max(lengths, default=None), source)
    hashes = {sample.output_hash for sample in answered if sample.output_hash}
    sheet.put("distinct_outputs", len(hashes) or None, source)
    if summary.cached_tokens is not None and summary.prompt_tokens:
        sheet.put("cached_share", summary.cached_tokens / summary.prompt_tokens, source)
    if result.steps is not None:
        sheet.put("steps", result.steps, source)
        _put_acceptance(sheet, result, answered, source)
    elif summary.tpot_ms is not None:
        sheet.put("plain_ms", summary.tpot_ms.mean, f"{source}, time per output token without speculation")


def _put_acceptance(sheet: Sheet, result: BenchResult, answered: Sequence[RequestSample], source: str) -> None:
    summary = summarise_bench(result)
    sheet.put("accept_length", summary.accept_length, source)
    sheet.put("accept_verifies", summary.verifies, source)
    if summary.survival:
        sheet.put("first_draft_right", summary.survival[0].value, source)
    if result.steps and result.steps <= len(summary.survival):
        sheet.put("last_draft_right", summary.survival[result.steps - 1].value, source)
    by_round = [found.value for each in _rounds(answered) if (found := accept_length(each)) is not None]
    if len(by_round) > 2:
        sheet.put("accept_length_cv", statistics.stdev(by_round) / statistics.fmean(by_round), f"{source}, by round")
    chunks = [list(sample.chunk_tokens[1:]) for sample in answered if len(sample.chunk_tokens) > 2 * _LATER]
    if chunks:
        place = f"{source}, tokens of each chunk"
        sheet.put("accept_first_cycle", statistics.fmean(each[0] for each in chunks), place)
        later = [tokens for each in chunks for tokens in each[_LATER - 1 : -1]]
        sheet.put("accept_later_cycles", statistics.fmean(later), place)
        sheet.put("accept_first_half", _mean(each[: len(each) // 2] for each in chunks), place)
        sheet.put("accept_second_half", _mean(each[len(each) // 2 : -1] for each in chunks), place)


def _rounds(samples: Iterable[RequestSample]) -> list[list[RequestSample]]:
    found: dict[int, list[RequestSample]] = {}
    for sample in samples:
        if sample.round is not None:
            found.setdefault(sample.round, []).append(sample)
    return list(found.values())


def _mean(parts: Iterable[Sequence[int]]) -> float | None:
    tokens = [each for part in parts for each in part]
    return statistics.fmean(tokens) if tokens else None
