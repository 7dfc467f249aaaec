"""A server as a process of this host, in a session of its own that our keeper leads."""

from __future__ import annotations

import os
import signal
from typing import Any, Callable

from eaglelab.remote.agent.keeper import launch
from eaglelab.remote.agent.launchers.contract import Launcher, Order, Seen, climb
from eaglelab.remote.agent.marks import MARK, find_members
from eaglelab.remote.agent.processes import describe
from eaglelab.remote.agent.record import lives, read_exit, same_process
from eaglelab.remote.agent.wire import AgentError, Beat

__all__ = ["ProcessLauncher", "end_tree"]

_KEEPER_S = 5.0
"""How long the keeper is spared after KILL, so that it can write down how the server ended."""


class ProcessLauncher(Launcher):
    """The default. It needs nothing of the host but Linux."""

    name = "process"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._keepers: set[int] = set()

    def start(self, order: Order, record: dict[str, Any]) -> dict[str, Any]:
        inherited = dict(os.environ, **order.env)
        inherited[MARK] = record["mark"]
        keeper, record = launch(self.state, order.command, inherited, order.out, order.cwd, record)
        self._keepers.add(keeper)
        return record

    def started(self, record: dict[str, Any]) -> dict[str, Any] | None:
        return record if record["pid"] is not None else None

    def see(self, record: dict[str, Any] | None, damaged: bool = False) -> Seen:
        """Without a record, whatever was started from this state folder counts; `damaged`: there is one, unreadable."""
        ours, strangers = self._look(record, damaged)
        alive = lives(record)
        ended = None if alive else self._how_it_ended(record)
        return Seen(alive, bool(ours), frozenset(ours), frozenset(strangers), ended)

    def end(self, record: dict[str, Any] | None, grace: float, beat: Beat, damaged: bool = False) -> str:
        first = record["pid"] if record and lives(record) else None
        keeper = record["session"] if record else None
        return end_tree(self, lambda: self._look(record, damaged)[0], first, keeper, grace, beat)

    def _look(self, record: dict[str, Any] | None, damaged: bool) -> tuple[set[int], set[int]]:
        """Our server's processes, and strangers who carry its mark."""
        for pid in list(self._keepers):  # the ended ones of this agent, so that none is taken for alive
            if os.waitpid(pid, os.WNOHANG)[0]:
                self._keepers.discard(pid)
        return find_members(self.state.folder, record, damaged)

    def _how_it_ended(self, record: dict[str, Any] | None) -> dict[str, Any] | None:
        """The keeper writes it down a moment after the end; None if it cannot any more."""
        deadline = self.clock() + 2.0
        while True:
            keeper_lives = record is not None and same_process(record["session"], record["session_start"], record)
            ended = read_exit(self.state)
            if ended is not None or not keeper_lives or self.clock() >= deadline:
                return ended
            self.sleep(0.01)


def end_tree(
    launcher: Launcher,
    left: Callable[[], set[int]],
    first: int | None,
    keeper: int | None,
    grace: float,
    beat: Beat,
) -> str:
    """TERM to `first`, then to what it leaves behind, then KILL to all; `keeper` comes last. Says which it took."""
    told: set[int] = set()

    def term(remaining: set[int]) -> None:
        wanted = {first} if first in remaining else remaining - {keeper}
        for pid in sorted(wanted - told):
            _signal(pid, signal.SIGTERM)
        told.update(wanted)

    def kill(remaining: set[int], since: float) -> None:
        spared = {keeper} if since < _KEEPER_S else set()
        for pid in sorted(remaining - spared):
            _signal(pid, signal.SIGKILL)

    return climb(launcher, left, term, kill, grace, beat)


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # it ended by itself just now, which is what we want
    except PermissionError as error:
        raise AgentError(
            "not-allowed", "may not end process %d: it belongs to another user" % pid, pids=[describe(pid)]
        ) from error
