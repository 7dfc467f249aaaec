"""Calls to the agent of one host: starts it when needed, starts it again after a lost link, turns errors into words."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import tenacity

from eaglelab.errors import HostError, LockLost
from eaglelab.remote.greeting import start_agent
from eaglelab.remote.hints import AgentFailure, explain, who_holds
from eaglelab.remote.pipe import Link, LinkLost
from eaglelab.remote.talk import Talk

__all__ = ["AgentClient", "News"]

News = Callable[[dict[str, Any]], None]

_REPEATABLE = frozenset(
    """facts lock doing read sed backup apply rollback start status stop poll tail digest list loaded
    keep gpu_state topology load_start load_poll load_stop enter end_tasks ended_tasks remove_tasks queue look_up""".split()  # noqa: SIM905
)
"""Operations that end the same however often they run, so a lost link is answered by asking again. `start` is one of
them because it carries a token: asked again, the host answers with the server that the first request started."""

_PATIENCE_S = 120.0
"""A restarted sshd or router is back within a minute; its pauses alone make 42.5 s, and a frozen link costs 25 s a try."""

_STALE_S = 20.0
"""After so long a pause a link is tried with a question that does no harm, before one that must not be asked twice."""


_LOOK_SILENCE_S = 10.0
"""So long a look waits: who makes it waits for others, and may have to end."""


class AgentClient:
    """The agent on one host.

    The first connection is tried once: a host that cannot be reached is said at once. A link that was there and is lost
    is made anew, with pauses that grow, `attempts` times in all and for two minutes at most; `lost` hears of each loss.

    `silence` of a call is how long (s) nothing may arrive: long operations send news every moment, so that a
    dead link is told from a slow host.
    """

    def __init__(
        self,
        link: Link,
        python: str,
        *,
        attempts: int = 12,
        start_silence: float = 30.0,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        lost: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.link = link
        self._python = python
        self._start_silence = start_silence
        self._clock = clock
        self._talk: Talk | None = None
        self._was_there = False
        self._given_up = False
        self._last = 0.0
        self._holder: dict[str, Any] | None = None
        self._lost: LockLost | None = None
        self.session = uuid.uuid4().hex
        self._place: dict[str, Any] | None = None
        self._again = tenacity.Retrying(
            retry=tenacity.retry_if_exception(lambda error: isinstance(error, LinkLost) and self._worth_another_try()),
            stop=tenacity.stop_any(tenacity.stop_after_attempt(attempts), tenacity.stop_before_delay(_PATIENCE_S)),
            wait=tenacity.wait_exponential(multiplier=0.5, max=5),
            before_sleep=lambda state: lost(_reason(state)),
            reraise=True,
            sleep=sleep,
        )

    def lock(self, holder: Mapping[str, Any], *, steal: bool = False) -> None:
        """Takes the host's lock and keeps it, also over a lost link, until `close`. With `steal` another loses it."""
        # An agent that is lost behind a dead link still holds it: the session says that it was ours.
        wanted = {**holder, "session": self.session}
        more: dict[str, Any] = {"steal": True} if steal else {}
        self.call("lock", holder=wanted, **more)
        self._holder = wanted

    def enter(self, run: str, task: str, session: str) -> str:
        """Works from here on in a place of its own for one server (see the agent's places.py). Returns its folder.

        `session` is that of the client that has the host's lock. Raises LockLost, also later, where somebody takes that.
        """
        self._place = None
        try:
            folder = str(self.call("enter", run=run, task=task, session=session)["folder"])
        except BaseException:
            self._drop()  # it may be in the place before
            raise
        self._place = {"run": run, "task": task, "session": session}
        return folder

    def look(self) -> None:
        """For who only waits: raises LockLost once somebody else has taken the host's lock, by a question that costs nothing.

        A link that is lost is made anew, but tried once: whoever needs the host says how that is.
        """
        if self._holder is None and self._place is None:
            return
        was_there = self._talk is not None
        try:
            self._ready(_LOOK_SILENCE_S)
            self._ask("list", {"pattern": ""}, b"", _LOOK_SILENCE_S, None)
        except LockLost:
            raise
        except LinkLost:
            if was_there:  # whoever takes a lock over ends the agent that has it
                self.look()
        except HostError:
            return

    def doing(self, text: str) -> None:
        """Lets others see what the holder of the lock is at. That may fail: nobody depends on it."""
        if self._holder is not None and self._talk is not None:
            try:
                self._talk.tell("doing", {"text": text}, 30.0)
            except HostError:
                self._drop()
            except BaseException:
                self._drop()  # of what a Ctrl-C has cut off, the next question must not be the rest
                raise

    def call(
        self, op: str, data: bytes = b"", *, silence: float = 30.0, news: News | None = None, **args: Any
    ) -> dict[str, Any]:
        """The answer's message. Raises HostError with a hint, or LinkLost when the link stays away."""
        return self.call_bytes(op, data, silence=silence, news=news, **args)[0]

    def call_bytes(
        self, op: str, data: bytes = b"", *, silence: float = 30.0, news: News | None = None, **args: Any
    ) -> tuple[dict[str, Any], bytes]:
        """As `call`, with the raw bytes that came beside the message."""
        if op == "start":
            args["token"] = uuid.uuid4().hex

        def once() -> tuple[dict[str, Any], bytes]:
            self._ready(silence)
            return self._ask(op, args, data, silence, news)

        try:
            if op in _REPEATABLE or (op == "http" and args["method"] == "GET"):
                return self._again(once)
            self._again(self._ready, silence)
        except LinkLost:
            self._given_up = True
            raise
        return once()

    @property
    def given_up(self) -> bool:
        """Whether the host was waited for in vain, and has not answered since."""
        return self._given_up

    def give_up(self) -> None:
        """Another client has waited for this host in vain: if it is lost here too, it is not waited for once more."""
        self._given_up = True

    def _worth_another_try(self) -> bool:
        """A host that stayed away once is not waited for again, until it has answered: a rescue asks it several things."""
        return self._was_there and not self._given_up

    def close(self) -> None:
        """Says goodbye, so that the agent has ended and its lock is free when this returns."""
        if self._talk is not None:
            self._talk.close()
            self._talk = None
        self.link.close()

    def _ready(self, silence: float) -> None:
        """A living agent that has the lock, if this client ever took it. Raises LockLost once it was taken over."""
        if self._lost is not None:
            raise self._lost
        if self._talk is None:
            try:
                self._talk = start_agent(self.link, self._python, self._start_silence)
            except BaseException:
                self.link.close()
                raise
            self._was_there = True
            self._last = self._clock()
            if self._holder is not None:
                self._lock_again(self._holder, silence)
            if self._place is not None:
                try:
                    self._ask("enter", self._place, b"", silence, None)
                except BaseException:
                    self._drop()  # outside of its place the next question would be one to the host's own server
                    raise
        elif self._clock() - self._last > _STALE_S:
            self._ask("list", {"pattern": ""}, b"", silence, None)

    def _lock_again(self, holder: dict[str, Any], silence: float) -> None:
        """After a lost link. Raises LockLost where somebody else has the lock by now, or has had it meanwhile."""
        try:
            other = self._ask("lock", {"holder": holder}, b"", silence, None)[0].get("before")
            lost = other is not None and any(other.get(key) != holder.get(key) for key in ("run", "since"))
        except HostError as error:
            self._drop()  # not a word more without it
            if not isinstance(error, AgentFailure) or error.code != "locked":
                raise
            other, lost = error.details.get("holder"), True
        if lost:
            self._drop()
            self._lost = LockLost(
                f"the lock of {self.link.name} was taken over: {who_holds(other or {})}",
                where=self.link.name,
                hint=f"nothing more was done there; invoke status --host {self.link.name} shows who is at work",
            )
            raise self._lost

    def _ask(
        self, op: str, args: dict[str, Any], data: bytes, silence: float, news: News | None
    ) -> tuple[dict[str, Any], bytes]:
        assert self._talk is not None  # noqa: S101 - _ready has made it
        try:
            message, raw = self._talk.ask(op, args, data, silence, news)
        except BaseException:
            # Also after a Ctrl-C: the answer that is still under way must not be taken for that of the next question.
            self._drop()
            raise
        self._last, self._given_up = self._clock(), False
        if "error" in message:
            error = explain(message["error"], self.link.name)
            if isinstance(error, LockLost):
                self._lost = error
                self._drop()
            raise error
        return message["ok"], raw

    def _drop(self) -> None:
        """Lets go of a link that may hang: first the connection, then what ran over it."""
        talk, self._talk = self._talk, None
        self.link.close()
        if talk is not None:
            talk.close()


def _reason(state: tenacity.RetryCallState) -> str:
    error = state.outcome.exception() if state.outcome else None
    return error.what if isinstance(error, HostError) else "the connection is lost"
