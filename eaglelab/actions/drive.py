"""Drives a server through a load on its own host, and watches it: the load goes on whatever becomes of link or controller."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eaglelab.context import Context
from eaglelab.errors import HostError
from eaglelab.remote.hints import AgentFailure
from eaglelab.server.launching import is_there
from eaglelab.server.readiness import ServerDied

__all__ = ["LoadResult", "Watch", "drive", "load_name", "run_command"]

_LOOK_S = 0.5
_SILENCE_S = 30.0
_ENDING_S = 15.0


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

    Raises HostError where it did not come to its end: ServerDied if that is why, else something ended the load.
    """
    answer = context.client.call(
        "load_start", silence=_SILENCE_S, spec=dict(spec), requests=list(requests), id=name, run=context.run
    )
    result = _follow(context, name, answer["state"], watch)
    _must_be_whole(context, name, result, expected=len(requests))
    return result


def run_command(
    context: Context, name: str, command: Sequence[str], env: Mapping[str, str], watch: Watch
) -> Mapping[str, Any]:
    """The same with a client that is a command of the host. Returns its end: `code` or `signal`, and `seconds`.

    Its output is in `ID.out` beside the load's other files. Raises HostError where nobody saw it end.
    """
    answer = context.client.call(
        "load_command",
        silence=_SILENCE_S,
        command=list(command),
        env=dict(env),
        cwd=context.facts["state"],  # not home: a folder named sglang there would come before the package
        id=name,
        run=context.run,
    )
    result = _follow(context, name, answer["state"], watch)
    if result.end is None:
        raise _gone(context, name)
    return result.end


def _follow(context: Context, name: str, state: str, watch: Watch) -> LoadResult:
    """All lines of a load, once it has ended."""
    result, offset, more = LoadResult(), 0, True
    while state == "running" or more:
        answer, data = context.client.call_bytes(
            "load_poll", silence=_SILENCE_S, offset=offset, id=name, run=context.run
        )
        result.lines += [json.loads(line) for line in data.splitlines()]
        state, offset, more = answer["state"], answer["next"], answer["more"]
        watch(answer["progress"], result)
        if state == "running" and not more:
            context.sleep(_LOOK_S)
    return result


def load_name(context: Context, base: str, note: str, begun: Mapping[str, Any]) -> tuple[str, bool]:
    """What the load that begins now is named, and whether an earlier try of this run began it; else it is a new one.

    `begun` is all that it depends on, the server included: kept in the bundle's file `note`, and compared.
    """
    earlier = context.bundle.read(note) if context.begun_before else None
    if earlier is not None and {key: earlier.get(key) for key in begun} == begun and goes_on(context, earlier["load"]):
        context.say.line(f"  going on with the load {earlier['load']}, begun {earlier['at']}")
        return str(earlier["load"]), True
    tries = [context.resumed, context.attempt] if context.attempt else [context.resumed] if context.resumed else []
    name = "-".join([base, *map(str, tries)])
    context.bundle.json(note, {**begun, "load": name, "at": time.strftime("%Y-%m-%d %H:%M")})
    return name, False


def goes_on(context: Context, name: str) -> bool:
    """Whether it runs, or has come to its end; one that was killed or lost its server is begun anew."""
    try:
        answer, _ = context.client.call_bytes("load_poll", id=name, run=context.run, offset=0)
        if answer["state"] == "running":
            return True
        end = _follow(context, name, answer["state"], lambda *_: None).end
    except AgentFailure:
        return False
    return end is not None and end["reason"] == "finished" and not end.get("signal")


def _gone(context: Context, name: str) -> HostError:
    return HostError(f"load {name} is gone without a result: its process was killed", **_where(context))


def _where(context: Context) -> dict[str, str]:
    host = context.host.name
    return {"where": host, "hint": f"{context.invoke('logs')} shows what the server says"}


def _settled(context: Context) -> Mapping[str, Any]:
    """The server's status, once it is said how it ended, if it is ending: an engine takes a moment for that."""
    deadline = context.clock() + _ENDING_S
    while True:
        status = context.client.call("status")
        ending = not status["alive"] and is_there(status) and not status.get("exit")
        if not ending or context.clock() >= deadline:
            return status
        context.sleep(_LOOK_S)


def _must_be_whole(context: Context, name: str, result: LoadResult, *, expected: int) -> None:
    if result.end is None:
        raise _gone(context, name)
    if result.end["reason"] != "finished":
        done = f"{len(result.records)} of {expected} requests had ended"
        status = _settled(context)
        if not status["alive"]:
            why = (status.get("exit") or {}).get("why")
            raise ServerDied(
                f"the server died during load {name} ({done}){f': {why}' if why else ''}", **_where(context)
            )
        raise HostError(f"load {name}: {result.end['what'] or result.end['reason']} ({done})", **_where(context))
    failed = [record for record in result.records if record["code"]]
    if failed and len(failed) == len(result.records):
        raise HostError(f"load {name}: no request was answered: {failed[0]['error']}", **_where(context))
