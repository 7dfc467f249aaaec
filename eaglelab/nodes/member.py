"""One host of a server of several: begins each task with the others, does its part, and ends when another one fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eaglelab.errors import EaglelabError, HostError, InputError, Interrupted, NotOurs
from eaglelab.idle import Idle
from eaglelab.nodes.ends import End, died_first
from eaglelab.nodes.lockstep import Apart, Failure, Lockstep
from eaglelab.nodes.watch import Watch, how_it_ended
from eaglelab.remote.pipe import LinkLost
from eaglelab.server.readiness import ServerDied

if TYPE_CHECKING:
    from eaglelab.actions.base import Action
    from eaglelab.context import Context
    from eaglelab.interruption import Interruption

__all__ = ["Member", "NodeGone"]

_PATIENCE_S = 5.0
"""How long to wait for what the others find out about their own ends."""


class NodeGone(HostError):
    """Another node of the server is out for good, so there is nothing more to be tried."""


class _Called(KeyboardInterrupt):
    """Ends what a host is at because another one failed. It passes wherever a Ctrl-C passes."""


@dataclass
class Member:
    """`name` is one of those that `lockstep` keeps together; `differences` says in what their identities differ."""

    name: str
    lockstep: Lockstep
    identity: Callable[[Context], Mapping[str, Any]]
    differences: Callable[[Mapping[str, Mapping[str, Any]]], list[str]]
    interruption: Interruption | None = None
    _told: bool = False
    _at_work: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        if self.interruption is not None:
            self.interruption.also = self._check

    @property
    def rank(self) -> int:
        return self.lockstep.names.index(self.name)

    @property
    def first(self) -> bool:
        """Whether it is rank 0, which serves the requests."""
        return self.rank == 0

    def perform(
        self, context: Context, at: str, action: Action, do: Callable[[], dict[str, Any]], follow: Callable[[], None]
    ) -> dict[str, Any]:
        """One task of a playbook: what all of them get for it. After a failure `do` is done without the others.

        `follow`: what is left to all but the first once that one has done it for them.
        """
        if self._told:
            return do()
        with self._together(context):
            self._begin(context, at)
            if action.nodes == "first":
                found = self._by_the_first(context, at, do)
                if not (self.first or context.options.check):
                    follow()
            elif action.nodes == "in turn":
                found = self._in_turn(context, at, do)
            else:
                found = do()
            if action.agree is None or action.nodes == "first":
                return found
            return action.agree(context, found, self._meet(context, f"{at}: found", found))

    def meet(self, context: Context, at: str) -> None:
        """Waits for the others, outside of a playbook. Raises as `perform` does."""
        if not self._told:
            with self._together(context):
                self._begin(context, at)

    def agreed(self, context: Context, at: str, mine: bool) -> bool:
        """Whether all say so."""
        with self._together(context):
            return all(self._meet(context, at, mine).values())

    def again(self, context: Context) -> None:
        """The next try, once all have put back what was left of the one before. Raises NodeGone where one has not."""
        try:
            self.lockstep.again(self.name, Idle(context, "the other nodes"))
        except Apart as error:
            raise self._gone() from error
        self._told = False

    def folders(self, own: Path) -> Sequence[Path]:
        """Where in the bundle the nodes' files go, by rank. `own` is this node's."""
        return [own.parent / name for name in self.lockstep.names]

    def _begin(self, context: Context, at: str) -> None:
        """Hosts that are not equal are told apart before anything is changed on one of them."""
        words = self._meet(context, at, self.identity(context) if context.found.facts else None)
        known = {name: word for name, word in words.items() if word is not None}
        told = self.differences(known) if len(known) == len(words) else []
        if told:
            what = f"these hosts are not equal, and one server cannot run on them: {'; '.join(told)}"
            raise HostError(what, where=self.name, hint="make them equal; nothing was changed")

    def _by_the_first(self, context: Context, at: str, do: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        first = self.lockstep.names[0]
        result = do() if self.first else None
        watches = not self.first and context.found.record is not None and not context.options.check
        idle = Watch(context, f"{first}: {at}") if watches else Idle(context, "the other nodes")
        found: dict[str, Any] = self._meet(context, f"{at}: done", result, idle)[first]
        return found

    def _in_turn(self, context: Context, at: str, do: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for rank, name in enumerate(self.lockstep.names):
            if rank == self.rank:
                found = do()
            self._meet(context, f"{at}: {name}", None)
        return found

    def _meet(self, context: Context, at: str, word: Any, idle: Callable[[], None] | None = None) -> Mapping[str, Any]:
        return self.lockstep.meet(self.name, at, word, idle or Idle(context, "the other nodes"))

    def _check(self) -> None:
        """Asked wherever this host waits for something: whether another one has failed meanwhile."""
        with self._lock:
            failure = self.lockstep.failure
            if not self._at_work or self._told or failure is None or failure.name == self.name:
                return
            self._told = True
        raise _Called

    @contextmanager
    def _together(self, context: Context) -> Iterator[None]:
        """What fails in here fails on all; whichever it is, the error says which node was the first to fail."""
        self._at_work = True
        try:
            yield
        except (Apart, _Called) as error:
            raise self._ended(context, None) from error
        except KeyboardInterrupt:
            self._fail(Interrupted("interrupted", where=self.name), out=True)
            raise
        except InputError:
            self._fail(HostError("refused", where=self.name), out=True)
            raise
        except EaglelabError as error:
            self._fail(error, out=isinstance(error, LinkLost | NotOurs) or error.exit_code == 3)
            raise self._ended(context, error) from error
        except BaseException as error:
            self._fail(error, out=True)
            raise
        finally:
            self._at_work = False

    def _fail(self, error: BaseException, *, out: bool) -> None:
        with self._lock:
            self._told = True
        self.lockstep.fail(self.name, error, out=out)

    def _ended(self, context: Context, own: EaglelabError | None) -> BaseException:
        """The error of this node. `own`: what failed here; None where it was ended for another's sake."""
        with self._lock:
            self._told = True
        failure = self.lockstep.failure
        if failure is None:
            return self._gone()
        if own is None and failure.name == self.name and isinstance(failure.error, EaglelabError):
            return failure.error
        if own is None and isinstance(failure.error, Interrupted):
            if self.interruption is not None:
                self.interruption.forget()  # it was the same Ctrl-C
            return KeyboardInterrupt()
        if isinstance(own, NotOurs):
            return own
        end = None if isinstance(own, LinkLost) else how_it_ended(context, context.sleep)
        ends: dict[str, End | None] = dict.fromkeys(self.lockstep.names)
        ends.update(self.lockstep.account(self.name, end, _PATIENCE_S))
        return self._error(context, own, failure, ends)

    def _error(
        self, context: Context, own: EaglelabError | None, failure: Failure, ends: Mapping[str, End | None]
    ) -> EaglelabError:
        first, hint = died_first(ends), context.invoke("logs")
        if first is not None and first == self.name:
            end = ends[first]
            assert end is not None  # noqa: S101 - it died
            self.lockstep.cause = first
            return ServerDied(f"node {self.rank} died: {end.died.what}", where=self.name, hint=end.died.hint)
        if isinstance(own, LinkLost):
            return own
        if first is not None:
            what = f"ended, because the server died with node {self.lockstep.names.index(first)}, {first}"
            return ServerDied(what, where=self.name, hint=hint)
        if own is not None:
            self.lockstep.cause = self.lockstep.cause or self.name
            return own
        kind = NodeGone if failure.out else ServerDied if isinstance(failure.error, ServerDied) else HostError
        return kind(f"ended, because {failure.name} failed", where=self.name, hint=_hint(failure.error))

    def _gone(self) -> NodeGone:
        failure = self.lockstep.failure
        what = f"ended, because {failure.name} failed" if failure else "ended, because another node has"
        return NodeGone(what, where=self.name, hint=_hint(failure.error) if failure else "")


def _hint(error: BaseException) -> str:
    return error.hint if isinstance(error, EaglelabError) else ""
