"""The SGLang server of this host: start it in a session of its own, look at it, stop all of it and nothing else."""

from __future__ import annotations

import os
import signal
import time
from typing import Any, Callable, Iterator

from eaglelab.remote.agent.keeper import launch, open_log
from eaglelab.remote.agent.load import Loads
from eaglelab.remote.agent.marks import MARK, find_members, identity, port_holder
from eaglelab.remote.agent.processes import (
    boot_id,
    descendants,
    describe,
    gpu_processes,
    listener,
    start_ticks,
    without_secrets,
)
from eaglelab.remote.agent.record import lives, read_exit, read_record, same_process, set_aside
from eaglelab.remote.agent.state import StateFolder
from eaglelab.remote.agent.tail import fingerprint
from eaglelab.remote.agent.wire import AgentError, Beat

__all__ = ["Server"]

_KILL_S = 15.0
_KEEPER_S = 5.0
"""How long the keeper is spared after KILL, so that it can write down how the server ended."""


class Server:
    """At most one server a state folder; `server.json` names it, `server.exit.json` tells how it ended."""

    def __init__(
        self,
        state: StateFolder,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.state = state
        self.clock = clock
        self.sleep = sleep
        self.loads = Loads(state, clock, sleep)
        self._keepers: set[int] = set()

    def record(self) -> dict[str, Any] | None:
        """None if there is none, or none that can be read."""
        return read_record(self.state)[0]

    def outputs(self) -> Iterator[str]:
        """Ways to what our server writes that need no name of it."""
        for pid in sorted(self.members()):
            yield "/proc/%d/fd/1" % pid

    def members(self) -> set[int]:
        """Living processes of our server: its session, and what left the session but is proven to be of it."""
        return self._look()[0]

    def _look(self) -> tuple[set[int], set[int]]:
        """Our server's processes, and strangers who carry its mark."""
        self._reap()
        record, damaged = read_record(self.state)
        return find_members(self.state.folder, record, damaged is not None)

    def start(
        self,
        run: str,
        command: list[str],
        env: dict[str, str],
        log: str,
        port: int,
        cwd: str,
        about: dict[str, Any],
        token: str,
    ) -> dict[str, Any]:
        """Starts `command` detached, with its output appended to `log`. Returns the record, with pid and log offset.

        `token` names this request: asked once more, after a lost link, the answer is the server that it started.
        Raises `running` if a server of ours lives, `port-taken` if somebody listens on `port`.
        """
        earlier = self._started_by(token)
        if earlier is not None:
            return earlier
        self._must_be_startable(port)
        self.state.open()
        self.state.remove("server.exit.json")
        if read_record(self.state)[1]:
            set_aside(self.state)
        shown = without_secrets(command)
        self.state.note("start", run=run, command=shown, log=log)
        out = open_log(log)
        try:
            info = os.fstat(out)
            record = dict(
                about,
                run=run,
                token=token,
                command=shown,
                env=sorted(env),  # names only: values may be secrets
                log=log,
                log_offset=info.st_size,
                log_inode=info.st_ino,
                log_device=info.st_dev,
                log_before=fingerprint(log, info.st_size),
                port=port,
                boot=boot_id(),
                time=time.time(),
                **identity(self.state.folder),
            )
            inherited = dict(os.environ, **env)
            inherited[MARK] = record["mark"]
            keeper, record = launch(self.state, command, inherited, out, cwd, record)
        finally:
            os.close(out)
        self._keepers.add(keeper)
        self.state.note_if_possible("started", run=run, pid=record["pid"])
        return record

    def _must_be_startable(self, port: int) -> None:
        ours = self.members()
        if ours:
            raise AgentError("running", "a server of ours is running already", pids=sorted(ours))
        holder = port_holder(port, self.state.folder)
        if holder is not None:
            what = "port %d is taken by pid %s of %s: %s" % (port, holder["pid"], holder["user"], holder["command"])
            if "state" in holder:
                what += (
                    "; eaglelab started it from the state folder %s (another user, or another XDG_STATE_HOME)"
                    % (holder["state"])
                )
            raise AgentError("port-taken", what, holder=holder, port=port)

    def _started_by(self, token: str) -> dict[str, Any] | None:
        """The record of the server that an earlier try of this request started; None if it came to nothing."""
        deadline = self.clock() + 10.0
        while True:
            record = self.record()
            if record is None or record.get("token") != token:
                return None
            if record["pid"] is not None:
                return record
            if not self.members() or self.clock() >= deadline:
                return None
            self.sleep(0.02)  # its keeper is about to start it

    def status(self) -> dict[str, Any]:
        """What is known of our server: record, whether its first process lives, how it ended, all living members.

        `damaged` says what is wrong with a record that cannot be read; the members are then those that carry our mark.
        `strangers`: processes that carry our server's mark, and were started by somebody else. They are let alone.
        """
        record, damaged = read_record(self.state)
        ours, strangers = self._look()
        alive = lives(record)
        return {
            "record": record,
            "damaged": damaged,
            "alive": alive,
            "exit": None if alive else self._how_it_ended(record),
            "members": sorted(ours),
            "strangers": _described(strangers),
        }

    def _how_it_ended(self, record: dict[str, Any] | None) -> dict[str, Any] | None:
        """The keeper writes it down a moment after the end; None if it cannot any more."""
        deadline = self.clock() + 2.0
        while True:
            keeper_lives = record is not None and same_process(record["session"], record["session_start"], record)
            ended = read_exit(self.state)
            if ended is not None or not keeper_lives or self.clock() >= deadline:
                return ended
            self.sleep(0.01)

    def stop(self, run: str, grace: float, beat: Beat) -> dict[str, Any]:
        """TERM to the first process, KILL to whatever is left after `grace` seconds, then proof that all is gone.

        Returns stopped (processes that were there), how (`none`, `term`, `kill`), seconds. Raises `not-stopped` with
        the processes, the port or the GPU memory that stayed. `strangers` as for `status`.
        """
        self.loads.end_all(beat)
        began = self.clock()
        there, strangers = self._look()
        record, damaged = read_record(self.state)
        how = "none"
        if there:
            gpu = set(gpu_processes() or {}) & there
            holder = listener(record["port"]) if record else None
            port = record["port"] if record and holder and holder["pid"] in there else None
            self.state.note_if_possible("stop", run=run, pids=sorted(there))
            first = record["pid"] if record and lives(record) else None
            how = self._end(self.members, first, record["session"] if record else None, grace, beat)
            self._must_be_free(port, gpu, beat)
            self.state.note_if_possible("stopped", run=run, how=how)
        if damaged:
            set_aside(self.state)
        self.state.remove("server.json")
        return {
            "stopped": sorted(there),
            "how": how,
            "seconds": round(self.clock() - began, 3),
            "damaged": damaged,
            "strangers": _described(strangers),
        }

    def stop_foreign(self, run: str, port: int, grace: float, beat: Beat) -> dict[str, Any]:
        """Stops the server that listens on `port` though it is not ours: the user asked for it by name (--takeover)."""
        holder = listener(port)
        if holder is None:
            return {"stopped": [], "how": "none"}
        if not holder["pid"]:
            raise AgentError("not-allowed", "port %d is held by a process that this user may not see" % port)
        tree = {pid: start_ticks(pid) for pid in descendants(holder["pid"])}

        def left() -> set[int]:
            return {pid for pid, start in tree.items() if start is not None and start_ticks(pid) == start}

        self.loads.end_all(beat)
        self.state.note("takeover", run=run, port=port, holder=holder)
        there = left()
        how = self._end(left, holder["pid"], None, grace, beat)
        return {"stopped": sorted(there), "how": how, "holder": holder}

    def _end(
        self, left: Callable[[], set[int]], first: int | None, keeper: int | None, grace: float, beat: Beat
    ) -> str:
        """TERM to `first`, then to what it leaves behind, then KILL to all; `keeper` comes last. Says which it took."""
        told: set[int] = set()
        deadline = self.clock() + grace
        remaining = left()
        while remaining and self.clock() < deadline:
            wanted = {first} if first in remaining else remaining - {keeper}
            for pid in sorted(wanted - told):
                _signal(pid, signal.SIGTERM)
            told |= wanted
            beat({"stopping": sorted(remaining)})
            self.sleep(0.05)
            remaining = left()
        if not remaining:
            return "term"
        began = self.clock()
        while remaining and self.clock() < began + _KILL_S:
            spared = {keeper} if self.clock() < began + _KEEPER_S else set()
            for pid in sorted(remaining - spared):
                _signal(pid, signal.SIGKILL)
            beat({"stopping": sorted(remaining)})
            self.sleep(0.05)
            remaining = left()
        if remaining:
            raise AgentError(
                "not-stopped",
                "these processes do not end: %s" % ", ".join(str(pid) for pid in sorted(remaining)),
                pids=[describe(pid) for pid in sorted(remaining)],
            )
        return "kill"

    def _must_be_free(self, port: int | None, gpu: set[int], beat: Beat) -> None:
        """Sockets and GPU memory go a moment after their process. `port`: only one that was ours until now."""
        deadline = self.clock() + 20.0
        while True:
            held = bool(gpu) and bool(gpu & set(gpu_processes() or {}))
            holder = listener(port) if port else None
            if not held and holder is None:
                return
            if self.clock() >= deadline:
                what = "GPU memory is still held by our processes"
                if holder is not None:
                    what = "port %s is still held by pid %s: %s" % (port, holder["pid"], holder["command"])
                raise AgentError("not-stopped", what, pids=sorted(gpu))
            beat({"stopping": sorted(gpu)})
            self.sleep(0.2)

    def _reap(self) -> None:
        """Collects the ended keepers of this agent, so that none is taken for alive."""
        for pid in list(self._keepers):
            if os.waitpid(pid, os.WNOHANG)[0]:
                self._keepers.discard(pid)


def _described(pids: set[int]) -> list[dict[str, Any]]:
    return [describe(pid) for pid in sorted(pids)]


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # it ended by itself just now, which is what we want
    except PermissionError as error:
        raise AgentError(
            "not-allowed", "may not end process %d: it belongs to another user" % pid, pids=[describe(pid)]
        ) from error
