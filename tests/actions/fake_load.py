"""A load in memory: a result as docs/load.md has it, with the times of a server that knows what each step count costs."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["RATES", "FakeLoad"]

RATES: dict[int | None, float] = {None: 89.0, 1: 88.0, 2: 94.0, 3: 90.0, 5: 71.0}
"""Tokens a second of one request, by steps; a request is up to 0.3 % faster."""

_TTFT_S = 0.02
_IDENTITY = {
    "schema": 1,
    "probe": "1.0.0",
    "class": "EAGLEWorker",
    "rank": 0,
    "world": 1,
    "pid": 1,
    "time": 1764400000.0,
    "every": 100,
    "sync": False,
}


@dataclass
class FakeLoad:
    """One load. `launched`: steps that the server was started with; `clock_rate`: how fast its clock runs.

    `fault`: `server dies` or `killed` after half of it, `a request fails`, or none. It ends with its third poll.
    """

    id: str
    run: str
    spec: dict[str, Any]
    requests: Sequence[dict[str, Any]]
    launched: int | None
    sglang: str
    clock_rate: float = 5.0
    fault: str = ""
    polls: int = 0
    blocks: list[dict[str, Any]] = field(default_factory=list)
    _lines: list[dict[str, Any]] = field(default_factory=list)
    _stopped: bool = False

    def __post_init__(self) -> None:
        self._lines = [{"begin": {"requests": len(self.requests)}}, *self._records()]
        if self.fault in ("server dies", "killed"):
            self._lines = self._lines[: len(self._lines) // 2]
        if self.fault == "server dies":
            self._lines.append(self._end("no-answer", "8 requests in a row got none"))
        elif self.fault != "killed":
            self._lines.append(self._end("finished", ""))

    @property
    def digest(self) -> str:
        told = {key: value for key, value in self.spec.items() if key != "key"}
        return json.dumps([told, list(self.requests)], sort_keys=True)

    @property
    def over(self) -> bool:
        return self.polls >= 2 or self._stopped

    @property
    def state(self) -> str:
        return "running" if not self.over else "dead" if "end" not in self._lines[-1] else "done"

    def poll(self, offset: int) -> tuple[dict[str, Any], bytes]:
        """The first time half of it is there, then all."""
        self.polls += 1
        there = self._lines if self.over else self._lines[: len(self._lines) // 2]
        data = b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in there)
        records = [line for line in there if "index" in line]
        progress = {
            "sent": len(records),
            "running": 1,
            "finished": len([record for record in records if not record["code"]]),
            "failed": len([record for record in records if record["code"]]),
            "tokens": sum(record["chunks"][-1][1] for record in records if record["chunks"]),
            "tok_s": 450.0,
            "elapsed_s": records[-1]["ended"] if records else 0.0,
            "round": records[-1]["round"] if records else 0,
            "requests": len(self.requests),
        }
        return {"state": self.state, "progress": progress, "next": len(data), "more": False}, data[offset:]

    def stop(self) -> None:
        if not self.over:
            self._lines = [*self._lines[: len(self._lines) // 2], self._end("stopped", "")]
            self._stopped = True

    def _end(self, reason: str, what: str) -> dict[str, Any]:
        return {"end": {"reason": reason, "what": what, "client": {"busy_share": 0.1}}}

    def _records(self) -> Iterator[dict[str, Any]]:
        now, side = 0.0, self.spec["concurrency"] or 1
        for number, about in enumerate(self.spec["rounds"]):
            now += about["pause_s"]
            for first in range(0, len(about["requests"]), side):
                group = about["requests"][first : first + side]
                records = [self._record(index, number, now) for index in group]
                self._probe(records)
                now = max(record["ended"] for record in records) + 0.001
                yield from records

    def _record(self, index: int, number: int, now: float) -> dict[str, Any]:
        body = self.requests[index]["body"]
        rid, tokens = body["rid"], int(body["sampling_params"]["max_new_tokens"])
        steps = int(rid[2:].partition("/")[0]) if rid.startswith("k=") else self.launched
        cycles = -(-(tokens - 1) // 2) if steps else tokens - 1
        decode_s = (tokens - 1) / RATES[steps] / (1 + 3e-6 * (zlib.crc32(rid.encode()) % 1000))
        each = decode_s / max(cycles, 1)
        counts = [1] + [min(1 + (2 if steps else 1) * at, tokens) for at in range(1, cycles + 1)]
        times = [(_TTFT_S + at * each) / self.clock_rate for at in range(cycles + 1)]
        correct = tokens - 1 - cycles
        meta: dict[str, Any] = {"completion_tokens": tokens, "prompt_tokens": 9, "cached_tokens": 0}
        meta["finish_reason"] = {"type": "length", "length": tokens}
        if steps:
            histogram = [cycles - correct, correct, *[0] * (steps - 1)]
            meta |= {"spec_verify_ct": cycles, "spec_accept_token_num": correct, "spec_accept_histogram": histogram}
        text = hashlib.sha256(json.dumps([body.get("text"), body.get("input_ids"), tokens]).encode()).hexdigest()
        record = {
            "index": index,
            "rid": rid,
            "round": number,
            "due": now,
            "started": now,
            "ended": now + times[-1],
            "status": 200,
            "code": None,
            "error": None,
            "chunks": [list(pair) for pair in zip(times, counts, strict=True)],
            "meta_info": meta,
            "prompt_tokens": 9,
            "cached_tokens": 0,
            "output": {"of": "ids", "sha256": text, "repeated": 0.0},
            "bytes": 1000,
        }
        if self.fault == "a request fails" and index == len(self.requests) // 2:
            broken = {"code": "broken", "error": "the stream broke off: reset", "chunks": [], "meta_info": {}}
            record |= {**broken, "prompt_tokens": None, "cached_tokens": None, "output": None}
        return record

    def _probe(self, records: Sequence[dict[str, Any]]) -> None:
        """What the probe writes of requests that were sent together."""
        seen = [each for each in records if "p=0/" not in each["rid"] and each["meta_info"].get("spec_verify_ct")]
        if not seen:
            return
        meta, rid = seen[0]["meta_info"], seen[0]["rid"]
        cycles, batch = meta["spec_verify_ct"], len(seen)
        steps = len(meta["spec_accept_histogram"]) - 1
        first, last = seen[0]["chunks"][0][0], seen[0]["chunks"][-1][0]
        total = 1000 * self.clock_rate * (last - first) / cycles
        phases = {"draft": 0.5, "verify": total - 2.76, "extend": 1.26, "other": 1.0, "total": total}
        times = {name: [round(ms, 4)] * cycles for name, ms in phases.items()}
        wanted = steps if rid.startswith("k=") else None
        asked = [{"wanted": wanted, "active": steps, "cycles": cycles, "why": None}] if wanted else None
        kept = [batch * 2] * cycles
        kept[-1] = batch * (meta["completion_tokens"] - 1 - 2 * (cycles - 1))
        self.blocks.append(
            {
                "kind": "block",
                **_IDENTITY,
                "sglang": self.sglang,
                "steps": steps,
                "batch_size": batch,
                "decode_cycles": cycles,
                "cycles": cycles,
                "tokens": sum(kept),
                "correct_hist": [batch * count for count in meta["spec_accept_histogram"]],
                "unknown": 0,
                "dropped": {},
                "skipped": 0,
                "kept_tokens": kept,
                "event_ms": times,
                "host_ms": times,
                **({"steps_from_rid": asked} if asked else {}),
            }
        )
