"""The SGLang server of this host: start it in a session of its own, look at it, stop all of it and nothing else."""

from __future__ import annotations

import os
import time
from typing import Any, Callable, Iterable, Iterator

from eaglelab.remote.agent.keeper import open_log
from eaglelab.remote.agent.launchers.contract import Launcher, Order, Seen, name_of
from eaglelab.remote.agent.launchers.known import Launchers
from eaglelab.remote.agent.launchers.process import end_tree
from eaglelab.remote.agent.load import Loads
from eaglelab.remote.agent.marks import identity, port_holder
from eaglelab.remote.agent.processes import (
    boot_id,
    descendants,
    describe,
    gpu_processes,
    listener,
    start_ticks,
    without_secrets,
)
from eaglelab.remote.agent.record import read_record, set_aside
from eaglelab.remote.agent.state import StateFolder
from eaglelab.remote.agent.tail import fingerprint
from eaglelab.remote.agent.wire import AgentError, Beat

__all__ = ["Server"]


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
        self.launchers = Launchers(state, lambda: self.clock(), lambda seconds: self.sleep(seconds))

    def record(self) -> dict[str, Any] | None:
        """None if there is none, or none that can be read."""
        return read_record(self.state)[0]

    def outputs(self) -> Iterator[str]:
        """Ways to what our server writes that need no name of it."""
        for pid in sorted(self.members()):
            yield "/proc/%d/fd/1" % pid

    def members(self) -> set[int]:
        """Living processes of our server on this host, proven to be of it."""
        return set(self._look()[2].members)

    def _look(self) -> tuple[Launcher, dict[str, Any] | None, Seen, str | None]:
        """Who started our server, its record, what is seen of it, and what is wrong with a record that is damaged."""
        record, damaged = read_record(self.state)
        launcher = self.launchers.of(record)
        seen = self.launchers.process.see(None, damaged is not None) if record is None else launcher.see(record)
        return launcher, record, seen, damaged

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
        launcher: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Starts `command` detached, with its output appended to `log`. Returns the record, with pid and log offset.

        `token` names this request: asked once more, after a lost link, the answer is the server that it started.
        `launcher`: its `name`, and its options beside that; None is a process of this host.
        Raises `running` if a server of ours lives, `port-taken` if somebody listens on `port`.
        """
        options = dict(launcher or {"name": "process"})
        starter = self.launchers.named(options.pop("name"))
        earlier = self._started_by(token)
        if earlier is not None:
            return earlier
        self._must_be_startable(port if starter.here else None)
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
                launcher=starter.name,
                name=name_of(token),
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
            record = starter.start(Order(command, env, log, out, port, cwd, options), record)
        finally:
            os.close(out)
        self.state.note_if_possible("started", run=run, name=record["name"], pid=record.get("pid"))
        return record

    def _must_be_startable(self, port: int | None) -> None:
        seen = self._look()[2]
        if seen.there:
            raise AgentError("running", "a server of ours is running already", pids=sorted(seen.members))
        holder = None if port is None else port_holder(port, self.state.folder)
        if holder is not None and port is not None:
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
            launcher = self.launchers.of(record)
            whole = launcher.started(record)
            if whole is not None:
                return whole
            if not launcher.see(record).there or self.clock() >= deadline:
                return None
            self.sleep(0.02)  # it is about to be started

    def status(self) -> dict[str, Any]:
        """What is known of our server: record, whether its first process lives, how it ended, all living members.

        `damaged` says what is wrong with a record that cannot be read; the members are then those that carry our mark.
        `strangers`: processes that carry our server's mark, and were started by somebody else. They are let alone.
        """
        launcher, record, seen, damaged = self._look()
        return {
            "record": record,
            "damaged": damaged,
            "alive": seen.alive,
            "there": seen.there,
            "exit": seen.exit,
            "members": sorted(seen.members),
            "strangers": _described(seen.strangers),
            "queued": seen.queued,
            "unknown": seen.unknown,
            "address": seen.address,
            "elsewhere": not launcher.here,
            "node": seen.node,
            "port": seen.port,
            "gpus": list(seen.gpus),
            "waited": seen.waited,
        }

    def stop(self, run: str, grace: float, beat: Beat) -> dict[str, Any]:
        """TERM to the first process, KILL to whatever is left after `grace` seconds, then proof that all is gone.

        Returns stopped (processes that were there), how (`none`, `term`, `kill`), seconds. Raises `not-stopped` with
        the processes, the port or the GPU memory that stayed. `strangers` as for `status`.
        """
        self.loads.end_all(beat)
        began = self.clock()
        launcher, record, seen, damaged = self._look()
        if seen.unknown is not None:
            raise AgentError("not-stopped", "nothing can be said of our server: %s" % seen.unknown)
        there = set(seen.members)
        how = "none"
        if seen.there:
            gpu = set(gpu_processes() or {}) & there
            port = seen.port or (record["port"] if record else None)
            holder = listener(port) if port else None
            port = port if holder and holder["pid"] in there else None
            self.state.note_if_possible("stop", run=run, pids=sorted(there))
            if record is None:
                how = self.launchers.process.end(None, grace, beat, damaged is not None)
            else:
                how = launcher.end(record, grace, beat)
            self._must_be_free(port, gpu, beat)
            self.state.note_if_possible("stopped", run=run, how=how)
        if record is not None:
            launcher.clear(record)
        if damaged:
            set_aside(self.state)
        self.state.remove("server.json")
        return {
            "stopped": sorted(there) or ([record["name"]] if record and seen.there else []),
            "how": how,
            "seconds": round(self.clock() - began, 3),
            "damaged": damaged,
            "strangers": _described(seen.strangers),
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
        how = end_tree(self.launchers.process, left, holder["pid"], None, grace, beat)
        return {"stopped": sorted(there), "how": how, "holder": holder}

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


def _described(pids: Iterable[int]) -> list[dict[str, Any]]:
    return [describe(pid) for pid in sorted(pids)]
