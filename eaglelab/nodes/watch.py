"""Watches one node's own process and log, while rank 0 is asked for tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from eaglelab.context import Context, LogMark
from eaglelab.errors import HostError, NotOurs
from eaglelab.nodes.ends import End, blames_another
from eaglelab.server.readiness import Budgets, ServerDied, State, Waiting

__all__ = ["Watch", "how_it_ended"]

_LOOK_S = 0.5
_TAIL = 64 << 10
_ENDING_S, _ENDING_LOOK_S = 1.5, 0.1


class _OwnProcess:
    """The first of a probe's two questions: the second one, for a token, goes to rank 0 only."""

    def __init__(self, context: Context, mark: LogMark) -> None:
        self._context = context
        self._mark = mark
        self.answer: Mapping[str, Any] = {}

    def poll(self, offset: int) -> tuple[Mapping[str, Any], bytes]:
        client, mark = self._context.client, self._mark
        status = client.call("status")
        tail, written = client.call_bytes(
            "tail", path=mark.path, offset=offset, limit=_TAIL, inode=mark.inode, before=mark.before
        )
        self._mark = LogMark(mark.path, offset, tail["inode"] or None, tail["before"])
        self.answer = {**status, **tail}
        return self.answer, written

    def one_token(self) -> str | None:
        return None


@dataclass
class _Watching(Waiting):
    """Waits for nothing: its process lives, or it has died."""

    def _alive(self, answer: Mapping[str, Any]) -> tuple[State, str]:  # noqa: ARG002 - as its base has it
        self._check_dying()
        return State.LOADING, self._loading()


def _watching(context: Context, mark: LogMark) -> _Watching:
    lost = context.host.server.node_lost_after
    return _Watching(
        probe=_OwnProcess(context, mark),
        where=context.host.name,
        budgets=Budgets(total=math.inf, unreachable=lost),
        expected=0.0,
        clock=context.clock,
        offset=mark.offset,
    )


@dataclass
class Watch:
    """Called while a node waits for rank 0. `says`: what rank 0 is asked for meanwhile."""

    context: Context
    says: str
    _watching: _Watching = field(init=False)
    _looked: float = field(default=-math.inf)

    def __post_init__(self) -> None:
        self._watching = _watching(self.context, self.context.log)

    def __call__(self) -> None:
        """Raises ServerDied where this node's process has ended, HostError where its host stays unreachable."""
        context = self.context
        context.sleep(0)
        if context.clock() - self._looked < _LOOK_S:
            return
        look = self._watching.step()
        while look.state is State.UNREACHABLE:  # whatever rank 0 says meanwhile: this node could not do what comes next
            context.say.progress(f"{self.says}; {look.state.value}: {look.doing}")
            context.sleep(_LOOK_S)
            look = self._watching.step()
        self._looked = context.clock()
        state = "its own process lives" if look.state is State.LOADING else f"{look.state.value}: {look.doing}"
        context.say.progress(f"{self.says}; {state}")


def how_it_ended(context: Context, sleep: Callable[[float], None]) -> End | None:
    """A look at this node's server after something has failed. None where it lives on, or nothing can be said of it."""
    if context.found.record is None or context.options.check:
        return None
    try:
        mark = context.log
        size = int(context.client.call("tail", path=mark.path, offset=-1, limit=0, inode=mark.inode)["offset"])
        start = max(mark.offset, size - _TAIL)
        seen = _watching(context, mark if start == mark.offset else LogMark(mark.path, start, mark.inode))
        for _ in range(round(_ENDING_S / _ENDING_LOOK_S)):
            seen.step()
            sleep(_ENDING_LOOK_S)
    except ServerDied as died:
        seen.log.close()
        ended = getattr(seen.probe, "answer", {}).get("exit") or {}
        return End(died, ended.get("time"), blames_another(seen.log.last))
    except NotOurs:
        raise
    except HostError:
        pass
    return None
