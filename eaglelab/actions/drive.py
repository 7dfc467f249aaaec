"""Drives a server through a load on its own host, and watches it: the load goes on whatever becomes of link or controller."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eaglelab.context import Context
from eaglelab.errors import HostError

__all__ = ["LoadResult", "Watch", "drive"]

_LOOK_S = 0.5
_SILENCE_S = 30.0


@dataclass
class LoadResult:
    """The lines of a load. `records` are requests in the order in which they ended; `end` is the load's own account."""

    lines: list[dict[str, Any]] = field(default_factory=list)

    @property
    def records(self) -> list[dict[str, Any]]:
        return [line for line in self.lines if "index" in line]

    @property
    def end(self) -> dict[str, Any] | None:
        return next((line["end"] for line in self.lines if "end" in line), None)


Watch = Callable[[Mapping[str, Any] | None, LoadResult], None]
"""Told twice a second how far the load is (see `ID.progress.json` in docs/load.md; None before it has begun)."""


def drive(
    context: Context, name: str, spec: Mapping[str, Any], requests: Sequence[Mapping[str, Any]], watch: Watch
) -> LoadResult:
    """Starts the load `name` of this run, or finds it where an earlier try has started it, and waits for its end.

    Raises HostError where it did not come to its end: the server is gone, or something ended it.
    """
    run = context.run
    answer = context.client.call(
        "load_start", silence=_SILENCE_S, spec=dict(spec), requests=list(requests), id=name, run=run
    )
    result, offset, more = LoadResult(), 0, True
    while answer["state"] == "running" or more:
        answer, data = context.client.call_bytes("load_poll", silence=_SILENCE_S, offset=offset, id=name, run=run)
        result.lines += [json.loads(line) for line in data.splitlines()]
        offset, more = answer["next"], answer["more"]
        watch(answer["progress"], result)
        if answer["state"] == "running" and not more:
            context.sleep(_LOOK_S)
    _must_be_whole(context, name, result, expected=len(requests))
    return result


def _must_be_whole(context: Context, name: str, result: LoadResult, *, expected: int) -> None:
    host = context.host.name
    hint = f"invoke logs --host {host} shows what the server says"
    if result.end is None:
        raise HostError(f"load {name} is gone without a result: its process was killed", where=host, hint=hint)
    if result.end["reason"] != "finished":
        done = f"{len(result.records)} of {expected} requests had ended"
        raise HostError(f"load {name}: {result.end['what'] or result.end['reason']} ({done})", where=host, hint=hint)
    failed = [record for record in result.records if record["code"]]
    if failed and len(failed) == len(result.records):
        raise HostError(f"load {name}: no request was answered: {failed[0]['error']}", where=host, hint=hint)
