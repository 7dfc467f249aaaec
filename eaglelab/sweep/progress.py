"""How far a load is, in one line: the setting at work, requests, speed, acceptance, what is left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eaglelab.server.setting import setting_name
from eaglelab.sweep.rounds import Slot

__all__ = ["Progress"]


class Progress:
    """Of one load. `requests` are those that were sent to the host, `clock_rate` how fast the server's clock runs."""

    def __init__(
        self, slots: Sequence[Slot], requests: Sequence[Mapping[str, Any]], concurrency: int, clock_rate: float
    ) -> None:
        self._slots = slots
        self._ends = _ends(slots)
        self._wanted = [int(each["body"]["sampling_params"]["max_new_tokens"]) for each in requests]
        self._concurrency = concurrency
        self._rate = clock_rate

    def line(self, told: Mapping[str, Any] | None, records: Sequence[Mapping[str, Any]]) -> str:
        """`told` is the load's own progress (docs/load.md), `records` the requests that have ended."""
        if told is None:
            return "the load begins"
        slot = self._slot(int(told["finished"]) + int(told["failed"]))
        parts = [
            f"concurrency {self._concurrency}",
            "" if slot is None else self._setting(slot),
            f"{told['finished']} of {len(self._wanted)} requests",
            f"{told['tok_s'] / self._rate:.1f} tok/s",
            _accept_length(records[-4 * self._concurrency :]),
            f"{told['failed']} failed" if told["failed"] else "",
            self._left(told),
        ]
        return ", ".join(part for part in parts if part)

    def _slot(self, ended: int) -> Slot | None:
        return next((slot for slot, end in zip(self._slots, self._ends, strict=True) if ended < end), None)

    def _setting(self, slot: Slot) -> str:
        if slot.round is None:
            return "warming up" if slot.tokens is None else "switching"
        rounds = max((other.round or 0) for other in self._slots) + 1
        name = f"{setting_name(slot.steps)}, " if slot.steps is not None else ""
        return f"{name}round {slot.round + 1} of {rounds}"

    def _left(self, told: Mapping[str, Any]) -> str:
        """By tokens, at the speed so far."""
        done, elapsed = int(told["tokens"]), float(told["elapsed_s"])
        if done < 100 or elapsed < 2:
            return ""
        return f"about {(sum(self._wanted) - done) * elapsed / done:.0f} s left"


def _ends(slots: Sequence[Slot]) -> list[int]:
    """How many requests have ended once each slot is over."""
    ends, total = [], 0
    for slot in slots:
        total += len(slot.prompts)
        ends.append(total)
    return ends


def _accept_length(records: Sequence[Mapping[str, Any]]) -> str:
    """Over the newest requests: (tokens - requests) / verifies."""
    metas = [record["meta_info"] for record in records if record["meta_info"].get("spec_verify_ct")]
    verifies = sum(meta["spec_verify_ct"] for meta in metas)
    if not verifies:
        return ""
    return f"accept length {sum(meta['completion_tokens'] - 1 for meta in metas) / verifies:.2f}"
