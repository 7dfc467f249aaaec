"""What one finished request of a load leaves behind: its times, the server's own account, a digest of its text."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Sequence

from eaglelab.remote.agent.exchange import Exchange

__all__ = ["outcome", "repeated_share"]

_GRAM = 8


def outcome(exchange: Exchange, request: dict[str, Any], began: float) -> dict[str, Any]:
    """The record of a request. All times are seconds: `started`, `ended` since `began`, those of `chunks` since `started`.

    `chunks`: [[time, tokens so far], ...], one for each event that brought tokens. `error` is None, or what went wrong
    with `code` to tell it by: refused, timeout, broken, http, aborted, stopped.
    """
    status, fault, meta, output = exchange.answer.status, exchange.fault, {}, None
    if exchange.last and fault is None:
        try:
            parsed = json.loads(exchange.last[5:])
            meta = dict(parsed["meta_info"])
            output = _digest_of(parsed, exchange.streamed)
            fault = _fault_of(meta, exchange.streamed)
        except (ValueError, KeyError, TypeError) as error:
            fault = ("broken", "the last event cannot be read: %s" % error)
    elif fault is None:
        fault = ("broken", "the server closed the stream without a token")
    # Every moment is rounded on the load's clock, and durations are differences of these: what came before stays before.
    started = round(exchange.began - began, 6)
    return {
        "index": exchange.number,
        "rid": request["body"].get("rid"),
        "started": started,
        "ended": round(exchange.ended - began, 6),
        "status": status,
        "code": fault[0] if fault else None,
        "error": fault[1] if fault else None,
        "chunks": [
            [round(round(at - began, 6) - started, 6), count] for at, count in zip(exchange.times, exchange.tokens)
        ],
        "meta_info": meta,
        "prompt_tokens": meta.get("prompt_tokens"),
        "cached_tokens": meta.get("cached_tokens"),
        "output": output,
        "bytes": exchange.received,
    }


def _fault_of(meta: dict[str, Any], tokens: int) -> tuple[str, str] | None:
    reason = meta.get("finish_reason")
    if not reason:
        return ("broken", "the stream ended after %d tokens without a finish reason" % tokens)
    if isinstance(reason, dict) and reason.get("type") == "abort":
        return ("aborted", "the server aborted it after %d tokens: %s" % (tokens, reason.get("message")))
    return None


def _digest_of(parsed: dict[str, Any], tokens: int) -> dict[str, Any] | None:
    """sha256 and repetition of the output ids, or of the text where the release sends none.

    None where the last event holds only the end of the output: a server may be told to stream in increments.
    """
    ids = parsed.get("output_ids")
    if ids is None:
        ids = parsed.get("token_ids")
    if ids is not None:
        if len(ids) != tokens:
            return None
        digest = hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()
        return {"of": "ids", "sha256": digest, "repeated": repeated_share(ids)}
    text = str(parsed["text"])
    digest = hashlib.sha256(text.encode()).hexdigest()
    return {"of": "text", "sha256": digest, "repeated": repeated_share(text.split())}


def repeated_share(items: Sequence[Any]) -> float:
    """Which part of the runs of eight (ids or words) has occurred before: 0 for varied text, close to 1 for a loop."""
    grams = [tuple(items[at : at + _GRAM]) for at in range(len(items) - _GRAM + 1)]
    return round(1 - len(set(grams)) / len(grams), 4) if grams else 0.0
