"""What a launcher is: start, alive, stop, env and log of a server, in whatever way the host runs its servers."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

from eaglelab.remote.agent.processes import describe
from eaglelab.remote.agent.state import StateFolder
from eaglelab.remote.agent.wire import AgentError, Beat

__all__ = ["Launcher", "Order", "Seen", "climb", "name_of"]

_LAST_S = 15.0


class Order(NamedTuple):
    """A server that is wanted. `env` is what it gets beside what it inherits; `out` is open at the end of its `log`."""

    command: list[str]
    env: dict[str, str]
    log: str
    out: int
    port: int
    cwd: str
    options: dict[str, Any]


class Seen(NamedTuple):
    """A server at one look.

    `alive`: its first process runs. `there`: something of it is left to be ended, alive or not. `members` are its
    processes on this host, `strangers` processes that carry its mark and are somebody else's. `exit`: how it ended
    (code, signal and, where the launcher says more than these, why); None if it has not, or nothing tells.
    `queued`: why it is not started yet. `unknown`: why nothing can be said now. `address`: where it is reached, None
    for this host; `node` its name. Of a server in a place of its own (see places.py) also `port`, None until it has
    one, the node's `gpus`, one a line of text, and how long (s) it was in the queue.
    """

    alive: bool = False
    there: bool = False
    members: frozenset[int] = frozenset()
    strangers: frozenset[int] = frozenset()
    exit: dict[str, Any] | None = None
    queued: str | None = None
    unknown: str | None = None
    address: str | None = None
    node: str | None = None
    port: int | None = None
    gpus: tuple[str, ...] = ()
    waited: float | None = None


class Launcher:
    """Starts one server of a state folder, looks at it, ends it.

    A record is written before anything is started, and names it by the request's token (`name_of`): an agent that is
    killed at any moment leaves nothing that the next one does not find.
    """

    name = ""
    here = True
    """Whether its servers run on this very host, so that its port must be free."""

    def __init__(self, state: StateFolder, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self.state = state
        self.clock = clock
        self.sleep = sleep

    def check(self, options: dict[str, Any], host: str) -> None:
        """Raises AgentError where a server that binds to `host` cannot be run so from here. Nothing is changed."""

    def installation(self, _options: dict[str, Any], _targets: list[str]) -> Any:
        """Where the SGLang lies that a server would run (see image.py); None: where this host's Python has it."""
        return None

    def start(self, order: Order, record: dict[str, Any]) -> dict[str, Any]:
        """Starts it, writes the record and returns it. Raises AgentError; nothing runs then, and no record is left."""
        raise NotImplementedError

    def started(self, record: dict[str, Any]) -> dict[str, Any] | None:
        """The whole record of what an earlier try of the same request has started; None if that came to nothing."""
        raise NotImplementedError

    def see(self, record: dict[str, Any]) -> Seen:
        """One look."""
        raise NotImplementedError

    def end(self, record: dict[str, Any], grace: float, beat: Beat) -> str:
        """TERM, KILL after `grace` seconds; says which it took (term, kill). Raises `not-stopped`."""
        raise NotImplementedError

    def clear(self, record: dict[str, Any]) -> None:
        """Removes what was made for a server that is gone. May be repeated."""


def name_of(token: str) -> str:
    """What a server is called where names are needed: the same however often its start is asked for."""
    return "eaglelab-" + token[:16]


def climb(
    launcher: Launcher,
    left: Callable[[], Any],
    term: Callable[[Any], None],
    kill: Callable[[Any, float], None],
    grace: float,
    beat: Beat,
    pause: float = 0.05,
    kill_s: float = _LAST_S,
) -> str:
    """`term` until nothing is left or `grace` seconds are over, then `kill`. Says which it took.

    `left` gives what is left (numbers or names), `kill` also gets for how long (s) it has been tried.
    Raises `not-stopped` where something is left `kill_s` seconds after the first `kill`.
    """
    deadline = launcher.clock() + grace
    remaining = left()
    while remaining and launcher.clock() < deadline:
        term(remaining)
        beat({"stopping": sorted(remaining)})
        launcher.sleep(pause)
        remaining = left()
    if not remaining:
        return "term"
    began = launcher.clock()
    while remaining and launcher.clock() < began + kill_s:
        kill(remaining, launcher.clock() - began)
        beat({"stopping": sorted(remaining)})
        launcher.sleep(pause)
        remaining = left()
    if remaining:
        pids = [pid for pid in sorted(remaining) if isinstance(pid, int)]
        raise AgentError(
            "not-stopped",
            "these %s do not end: %s" % ("processes" if pids else "jobs", ", ".join(map(str, sorted(remaining)))),
            pids=[describe(pid) for pid in pids],
        )
    return "kill"
