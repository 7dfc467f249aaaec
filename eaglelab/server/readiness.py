"""Waits until a server has given a token, and tells every other end apart.

Six states, each with a budget of its own: queued, not started, loading, warming up, unreachable, ready. And one end: dead.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import tenacity

from eaglelab.errors import HostError
from eaglelab.remote.pipe import LinkLost
from eaglelab.server.loading import LoadLog

__all__ = ["Budgets", "Look", "ServerDied", "State", "Waiting", "poll_interval", "wait_until_ready"]


class State(enum.Enum):
    """What a starting server is, as far as one look tells."""

    QUEUED = "queued"
    NOT_STARTED = "not started"
    LOADING = "loading"
    WARMING = "warming up"
    READY = "ready"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True)
class Budgets:
    """Seconds. `total` bounds the whole wait (the host's `ready_timeout`) but for the time in a queue; the others one
    state, over all its looks."""

    total: float
    queued: float = 86400.0
    not_started: float = 10.0
    warming: float = 300.0
    unreachable: float = 600.0
    dying: float = 15.0
    """How long the first process may outlive a line that says a part of the server died."""
    ending: float = 3.0
    """How long to look for a note of how the server ended, once it is gone."""

    def of(self, state: State) -> float:
        return {
            State.QUEUED: self.queued,
            State.NOT_STARTED: self.not_started,
            State.WARMING: self.warming,
            State.UNREACHABLE: self.unreachable,
        }.get(state, self.total)


@dataclass(frozen=True)
class Look:
    """One look: the state, in words what is going on, seconds since the wait began less those in a queue (`queued`), and
    seconds left to expect."""

    state: State
    doing: str
    elapsed: float
    eta: float | None = None
    queued: float = 0.0


class ServerDied(HostError):
    """The server ended, or a part of it did, before it gave a token."""


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
    _looked: float = field(init=False)
    _spent: dict[State, float] = field(default_factory=dict)
    _dying_since: float | None = None
    _gone_since: float | None = None

    def __post_init__(self) -> None:
        self.began = self._looked = self.clock()

    def step(self) -> Look:
        """One look. Raises ServerDied, or HostError when a state has used up its budget."""
        try:
            state, doing = self._look()
        except LinkLost as error:
            state, doing = State.UNREACHABLE, error.what
        now = self.clock()
        # The time since the last look counts for what is found now: a look that ends with a lost link took long.
        self._spent[state] = self._spent.get(state, 0.0) + now - self._looked
        queued = self._spent.get(State.QUEUED, 0.0)
        self._looked, elapsed = now, now - self.began - queued
        if state is not State.READY and (elapsed > self.budgets.total or self._spent[state] > self.budgets.of(state)):
            raise self._too_long(state, doing, elapsed)
        left = max(0.0, self.expected - elapsed) if state is State.LOADING else None
        return Look(state, doing, elapsed, left, queued)

    def _look(self) -> tuple[State, str]:
        answer = self._poll()
        if answer.get("unknown"):
            return State.UNREACHABLE, str(answer["unknown"])
        if answer.get("queued"):
            return State.QUEUED, str(answer["queued"])
        if not answer["alive"]:
            return self._not_alive(answer)
        return self._alive(answer)

    def _alive(self, answer: Mapping[str, Any]) -> tuple[State, str]:
        health = answer["health"]
        if health.get("status") == 200:
            missing = self.probe.one_token()
            if missing is None:
                return State.READY, "a token came back"
            self._check_dying()
            return State.WARMING, f"answers 200, but no token: {missing}"
        self._check_dying()
        if health.get("status") == 503 or health.get("error") == "timeout" or self.log.phase in ("warming up", "ready"):
            return State.WARMING, _in_words(health)
        return State.LOADING, self._loading()

    def _poll(self) -> Mapping[str, Any]:
        answer, written = self.probe.poll(self.offset)
        self.offset = answer["offset"] + len(written)
        self.log.feed(written)
        return answer

    def _loading(self) -> str:
        shards = f": {self.log.shards[0]} of {self.log.shards[1]} shards" if self.log.shards else ""
        return self.log.phase + shards

    def _check_dying(self) -> None:
        """A launcher may outlive its scheduler for ever: what the log says counts, after a moment for it to end."""
        if not self.log.failing:
            return
        now = self.clock()
        if self._dying_since is None:
            self._dying_since = now
        if now - self._dying_since > self.budgets.dying:
            raise self._died("its first process still lives, but the server is dead")

    def _not_alive(self, answer: Mapping[str, Any]) -> tuple[State, str]:
        if answer["record"] is None:
            return State.NOT_STARTED, "no server of ours is on record there"
        if self._gone_since is None:
            # What it wrote between the reading of its log and its end is still to be read, and so is its exit code.
            self._gone_since = self.clock()
            answer = self._poll()
        ended = answer["exit"]
        if ended is None and self.clock() - self._gone_since <= self.budgets.ending:
            return State.LOADING, "it is gone; looking for how it ended"
        self.log.close()
        if ended is None:
            raise self._died("the server is gone, and nothing there says how (killed, or the machine was restarted)")
        if ended.get("why"):
            raise self._died(ended["why"])
        if ended["signal"] is not None:
            # SGLang kills its own tree after a part of it has failed: only where its log says nothing is it a guess.
            guess = ended["signal"] == 9 and self.log.death is None
            why = "; the kernel does this when memory runs out (see dmesg there), or somebody did" if guess else ""
            raise self._died(f"the server was killed by signal {ended['signal']}{why}")
        raise self._died(f"the server ended by itself with exit code {ended['code']}")

    def _died(self, how: str) -> ServerDied:
        death = self.log.death
        what = f"{how}: {death.what} ({_told(death.line)})" if death else how
        hint = death.hint if death else f"invoke logs --host {self.where} shows its log"
        return ServerDied(what + _tail(self.log.last), where=self.where, hint=hint)

    def _too_long(self, state: State, doing: str, elapsed: float) -> HostError:
        if elapsed > self.budgets.total:
            what = f"no token within {self.budgets.total:.0f} s; still {state.value}: {doing}"
        else:
            what = f"{state.value} for more than {self.budgets.of(state):.0f} s: {doing}"
        hint = {
            State.QUEUED: f"raise `queue_timeout` in inventory.yaml, or take it out of the queue: invoke stop --host {self.where}",
            State.NOT_STARTED: "put the action `start` before `wait` in the playbook",
            State.LOADING: "raise `ready_timeout` in inventory.yaml if this load takes longer",
            State.WARMING: "read its log: it loaded, but it does not serve",
        }.get(state, f"the server itself may be well: invoke status --host {self.where}, once the host can be reached")
        return HostError(what + _tail(self.log.last), where=self.where, hint=hint)


def _tail(last: Iterable[str]) -> str:
    lines = "".join(f"\n    {line[:300]}" for line in last)
    return f"\n  last lines of its log:{lines}" if lines else ""


def _told(line: str, most: int = 300) -> str:
    """The message of a log line without the traceback's module in front; the beginning says what failed."""
    text = line.strip()
    return text if len(text) <= most else f"{text[:most].rstrip()} ..."


def _in_words(health: Mapping[str, Any]) -> str:
    if "status" in health:
        return f"health says {health['status']}"
    return {"refused": "its port is closed", "timeout": "health does not answer", "broken": "health broke off"}.get(
        str(health.get("error")), "health unknown"
    )


def poll_interval(expected: float) -> float:
    """Seconds between two looks at a load that should take `expected` seconds: 2, or less where that is much of it."""
    return min(2.0, max(0.1, expected / 30))


def wait_until_ready(waiting: Waiting, *, sleep: Callable[[float], None], say: Callable[[Look], None]) -> Look:
    """Looks every `poll_interval` until ready. Raises what `Waiting.step` raises."""

    def look() -> Look:
        found = waiting.step()
        say(found)
        return found

    again = tenacity.Retrying(
        retry=tenacity.retry_if_result(lambda found: found.state is not State.READY),
        wait=tenacity.wait_fixed(poll_interval(waiting.expected)),
        sleep=sleep,
    )
    return again(look)
