"""Waits until a server has given a token, and tells every other end apart.

Six states, each with a budget of its own: not started, loading, warming, ready, dead, unreachable.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import tenacity

from eaglelab.errors import HostError
from eaglelab.remote.pipe import LinkLost
from eaglelab.server.loading import LoadLog

__all__ = ["Budgets", "Look", "ServerDied", "State", "Waiting", "wait_until_ready"]


class State(enum.Enum):
    """What a starting server is, as far as one look tells."""

    NOT_STARTED = "not started"
    LOADING = "loading"
    WARMING = "warming up"
    READY = "ready"
    DEAD = "dead"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True)
class Budgets:
    """Seconds that a state may last in all. The host's `ready_timeout` is `LOADING`."""

    loading: float
    not_started: float = 60.0
    warming: float = 300.0
    unreachable: float = 600.0
    dying: float = 15.0
    """How long the first process may outlive a line that says a part of the server died."""

    def of(self, state: State) -> float:
        return {
            State.NOT_STARTED: self.not_started,
            State.LOADING: self.loading,
            State.WARMING: self.warming,
            State.UNREACHABLE: self.unreachable,
        }[state]


@dataclass(frozen=True)
class Look:
    """One look: the state, and in words what is going on."""

    state: State
    doing: str
    elapsed: float
    eta: float | None = None


class ServerDied(HostError):
    """The server ended, or a part of it did, before it gave a token. `last` are the log's last lines."""

    def __init__(self, what: str, *, where: str, hint: str, last: tuple[str, ...]) -> None:
        tail = "\n".join(f"    {line[:300]}" for line in last[-30:])
        super().__init__(f"{what}\n  last lines of its log:\n{tail}" if tail else what, where=where, hint=hint)
        self.last = last


class Probe(Protocol):
    """The two questions that waiting asks a host."""

    def poll(self, offset: int) -> tuple[Mapping[str, Any], bytes]:
        """The agent's `poll` answer and the log's bytes from `offset` on. Raises LinkLost."""

    def one_token(self) -> str | None:
        """None if a real token came back, else why not. Raises LinkLost."""


@dataclass
class Waiting:
    """What is known while waiting; `step` takes one look."""

    probe: Probe
    where: str
    budgets: Budgets
    expected: float
    clock: Callable[[], float]
    offset: int = 0
    log: LoadLog = field(default_factory=LoadLog)
    began: float = field(init=False)
    _changed: float = field(init=False)
    _spent: dict[State, float] = field(default_factory=dict)
    _state: State = State.NOT_STARTED
    _dying_since: float | None = None

    def __post_init__(self) -> None:
        self.began = self._changed = self.clock()

    def step(self) -> Look:
        """One look. Raises ServerDied, or HostError when a state has used up its budget."""
        now = self.clock()
        try:
            state, doing = self._look()
        except LinkLost as error:
            state, doing = State.UNREACHABLE, error.what
        self._spent[self._state] = self._spent.get(self._state, 0.0) + now - self._changed
        self._state, self._changed = state, now
        elapsed = now - self.began
        if state is not State.READY and self._spent.get(state, 0.0) > self.budgets.of(state):
            raise self._too_long(state, doing)
        left = None if state is not State.LOADING else max(0.0, self.expected - elapsed)
        return Look(state, doing, elapsed, left)

    def _look(self) -> tuple[State, str]:
        answer, written = self.probe.poll(self.offset)
        self.offset = answer["offset"] + len(written)
        self.log.feed(written)
        if not answer["alive"]:
            return self._not_alive(answer)
        self._check_dying()
        health = answer["health"]
        if health.get("status") == 200:
            missing = self.probe.one_token()
            if missing is None:
                return State.READY, "a token came back"
            return State.WARMING, f"answers 200, but no token: {missing}"
        if health.get("status") == 503 or health.get("error") == "timeout" or self.log.phase in ("warming up", "ready"):
            return State.WARMING, f"{self.log.phase} ({_in_words(health)})"
        return State.LOADING, self._loading()

    def _loading(self) -> str:
        if self.log.phase == "loading weights" and self.log.shards:
            return f"loading weights: {self.log.shards[0]} of {self.log.shards[1]} shards"
        return self.log.phase

    def _check_dying(self) -> None:
        """A launcher may outlive its scheduler for ever: what the log says counts, after a moment for it to end."""
        if self.log.death is None:
            return
        if self._dying_since is None:
            self._dying_since = self.clock()
        if self.clock() - self._dying_since > self.budgets.dying:
            raise self._died("though its first process still lives, the server is dead")

    def _not_alive(self, answer: Mapping[str, Any]) -> tuple[State, str]:
        if answer["record"] is None:
            return State.NOT_STARTED, "no server of ours is on record there"
        self.log.close()
        ended = answer["exit"]
        if ended is None:
            raise self._died(
                "the server is gone, and nothing on the host says how it ended (killed, or the machine was restarted)"
            )
        if ended["signal"] is not None:
            why = "; the kernel does this when memory runs out (see dmesg there)" if ended["signal"] == 9 else ""
            raise self._died(f"the server was killed by signal {ended['signal']}{why}")
        raise self._died(f"the server ended by itself with exit code {ended['code']}")

    def _died(self, how: str) -> ServerDied:
        death = self.log.death
        what = f"{how}: {death.what} ({death.line[-300:].strip()})" if death else how
        return ServerDied(
            what, where=self.where, hint=death.hint if death else "read its log", last=tuple(self.log.last)
        )

    def _too_long(self, state: State, doing: str) -> HostError:
        budget = self.budgets.of(state)
        hint = {
            State.LOADING: "raise `ready_timeout` in inventory.yaml if this load takes longer",
            State.WARMING: "read its log: it loaded, but it does not serve",
            State.UNREACHABLE: "the server itself may be well: invoke status, once the host can be reached",
        }.get(state, "invoke status shows what is there")
        return HostError(f"{state.value} for more than {budget:.0f} s: {doing}", where=self.where, hint=hint)


def _in_words(health: Mapping[str, Any]) -> str:
    if "status" in health:
        return f"health says {health['status']}"
    return {"refused": "its port is closed", "timeout": "health does not answer", "broken": "health broke off"}.get(
        str(health.get("error")), "health unknown"
    )


def wait_until_ready(
    waiting: Waiting,
    *,
    sleep: Callable[[float], None],
    say: Callable[[Look], None],
    interval: float = 2.0,
    first: float = 0.25,
) -> Look:
    """Looks again and again, first often, then every `interval` seconds, until ready. Raises what `Waiting.step` raises."""

    def look() -> Look:
        found = waiting.step()
        say(found)
        return found

    again = tenacity.Retrying(
        retry=tenacity.retry_if_result(lambda found: found.state is not State.READY),
        wait=tenacity.wait_exponential(multiplier=first, exp_base=1.3, max=interval),
        sleep=sleep,
        reraise=True,
    )
    return again(look)
