"""How far a load is, in one line: the setting at work, requests, speed, acceptance, what is left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eaglelab.server.setting import setting_name
from eaglelab.sweep.rounds import Slot

__all__ = ["Progress", "SettingSoFar"]


@dataclass(frozen=True)
class SettingSoFar:
    """One setting while it is measured: requests that ended of those to come; tokens/s (probe off) and accept length."""

    steps: int | None
    ended: int
    wanted: int
    tok_s: float | None
    accept_length: float | None


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
            _accepted(records[-4 * self._concurrency :]),
            f"{told['failed']} failed" if told["failed"] else "",
            self._left(told),
        ]
        return ", ".join(part for part in parts if part)

    def settings(self, records: Sequence[Mapping[str, Any]]) -> list[SettingSoFar]:
        """Every setting so far, from the requests that count and have ended."""
        counted = [(number, slot) for number, slot in enumerate(self._slots) if slot.round is not None]
        found = []
        for steps in dict.fromkeys(slot.steps for _, slot in counted):
            own = {number: slot for number, slot in counted if slot.steps == steps}
            ended = [record for record in records if record["round"] in own and not record["code"]]
            plain = [record for record in ended if not own[record["round"]].measured]
            found.append(
                SettingSoFar(
                    steps,
                    len(ended),
                    sum(len(slot.prompts) for slot in own.values()),
                    self._tok_s(plain),
                    _accept_length(ended),
                )
            )
        return found

    def _tok_s(self, records: Sequence[Mapping[str, Any]]) -> float | None:
        """Of all requests together, by the server's clock: the time in the server is shared by `concurrency` of them."""
        spent = sum(record["chunks"][-1][0] for record in records if record["chunks"])
        tokens = sum(record["meta_info"].get("completion_tokens", 0) for record in records)
        return tokens / spent * self._concurrency / self._rate if spent else None

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


def _accept_length(records: Sequence[Mapping[str, Any]]) -> float | None:
    """(Tokens - requests) / verifies."""
    metas = [record["meta_info"] for record in records if record["meta_info"].get("spec_verify_ct")]
    verifies = sum(meta["spec_verify_ct"] for meta in metas)
    return sum(meta["completion_tokens"] - 1 for meta in metas) / verifies if verifies else None


def _accepted(records: Sequence[Mapping[str, Any]]) -> str:
    length = _accept_length(records)
    return "" if length is None else f"accept length {length:.2f}"
