"""The SGLang server of this host: start it in a session of its own, look at it, stop all of it and nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

from eaglelab.remote.agent.files import os_error, write_new
from eaglelab.remote.agent.journal import Journal
from eaglelab.remote.agent.processes import (
    boot_id,
    descendants,
    describe,
    gpu_processes,
    listener,
    marked,
    session_members,
    start_ticks,
)
from eaglelab.remote.agent.wire import AgentError, Beat

__all__ = ["MARK", "Server"]

MARK = "EAGLELAB_SERVER"
"""Environment variable that every process of a server of ours inherits; its value is the state folder."""


class Server:
    """At most one server a state folder; `server.json` names it, `server.exit.json` tells how it ended."""

    def __init__(
        self, journal: Journal, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.journal = journal
        self.clock = clock
        self.sleep = sleep

    def record(self) -> dict[str, Any] | None:
        return self.journal.read("server.json")

    def members(self) -> set[int]:
        """Living processes of our server: its session, and what left the session but carries our mark."""
        found = marked("%s=%s" % (MARK, self.journal.folder))
        record = self.record()
        if record and record.get("boot") == boot_id():
            found |= session_members(record["session"], record["session_start"])
        found.discard(os.getpid())
        return found

    def start(
        self, run: str, command: list[str], env: dict[str, str], log: str, port: int, cwd: str, about: dict[str, Any]
    ) -> dict[str, Any]:
        """Starts `command` detached, with its output appended to `log`. Returns the record, with pid and log offset.

        Raises `running` if a server of ours lives, `port-taken` if somebody listens on `port`.
        """
        ours = self.members()
        if ours:
            raise AgentError("running", "a server of ours is running already", pids=sorted(ours))
        holder = listener(port)
        if holder is not None:
            raise AgentError(
                "port-taken",
                "port %d is taken by pid %s of %s: %s" % (port, holder["pid"], holder["user"], holder["command"]),
                holder=holder,
                port=port,
            )
        self.journal.open()
        self.journal.remove("server.exit.json")
        self.journal.note("start", run=run, command=command, log=log)
        try:
            os.makedirs(os.path.dirname(log), exist_ok=True)
            out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise os_error(error, "cannot write the server log %s" % log) from error
        info = os.fstat(out)
        record = dict(
            about,
            run=run,
            command=command,
            log=log,
            log_offset=info.st_size,
            log_inode=info.st_ino,
            port=port,
            boot=boot_id(),
            time=time.time(),
        )
        record["env"] = sorted(env)  # names only: values may be secrets
        full = dict(os.environ, **env)
        full[MARK] = self.journal.folder
        pid = self._launch(command, full, out, cwd, record)
        self.journal.note("started", run=run, pid=pid)
        return self.record() or {}

    def _launch(self, command: list[str], env: dict[str, str], out: int, cwd: str, record: dict[str, Any]) -> int:
        """Forks a keeper that leads a new session, starts the server in it, and writes down how it ends."""
        reading, writing = os.pipe()
        keeper = os.fork()
        if keeper == 0:
            os.close(reading)
            try:
                _keep(self.journal, command, env, out, cwd, record, writing)
            finally:
                os._exit(0)  # never back into the agent's loop: two processes would answer the controller
        os.close(writing)
        os.close(out)
        with os.fdopen(reading, "rb") as pipe:
            answer = json.loads(pipe.read() or b'{"error": "the keeper process ended before it started the server"}')
        if "error" in answer:
            os.waitpid(keeper, 0)
            raise AgentError("start-failed", "cannot start the server: %s" % answer["error"])
        return int(answer["pid"])

    def status(self) -> dict[str, Any]:
        """What is known of our server: record, whether its first process lives, how it ended, all living members."""
        _reap()
        record = self.record()
        alive = _lives(record)
        return {
            "record": record,
            "alive": alive,
            "exit": None if alive else self.journal.read("server.exit.json"),
            "members": sorted(self.members()),
        }

    def stop(self, run: str, grace: float, beat: Beat) -> dict[str, Any]:
        """TERM to the first process, KILL to whatever is left after `grace` seconds, then proof that all is gone.

        Returns stopped (processes that were there), how (`none`, `term`, `kill`), seconds. Raises `not-stopped` with
        the processes, the port or the GPU memory that stayed.
        """
        began, record, there = self.clock(), self.record(), self.members()
        gpu_before = set(gpu_processes() or {}) & there
        if there:
            self.journal.note("stop", run=run, pids=sorted(there))
            if record and _lives(record):
                os.kill(record["pid"], signal.SIGTERM)
        result = self._end(self.members, there, grace, beat)
        self._must_be_free(record["port"] if record else 0, gpu_before, beat)
        if record:
            self.journal.remove("server.json")
            self.journal.note("stopped", run=run, how=result["how"])
        result["seconds"] = round(self.clock() - began, 3)
        return result

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

        self.journal.note("takeover", run=run, port=port, holder=holder)
        there = left()
        os.kill(holder["pid"], signal.SIGTERM)
        return dict(self._end(left, there, grace, beat), holder=holder)

    def _end(self, left: Callable[[], set[int]], there: set[int], grace: float, beat: Beat) -> dict[str, Any]:
        how = "term" if there else "none"
        if not self._gone(left, grace, beat):
            how = "kill"
            for pid in sorted(left()):
                _kill(pid)
            if not self._gone(left, 15.0, beat):
                raise AgentError(
                    "not-stopped",
                    "these processes do not end: %s" % ", ".join(str(pid) for pid in sorted(left())),
                    pids=[describe(pid) for pid in sorted(left())],
                )
        return {"stopped": sorted(there), "how": how}

    def _gone(self, left: Callable[[], set[int]], seconds: float, beat: Beat) -> bool:
        deadline = self.clock() + seconds
        while True:
            _reap()
            remaining = left()
            if not remaining:
                return True
            if self.clock() >= deadline:
                return False
            beat({"stopping": sorted(remaining)})
            self.sleep(0.05)

    def _must_be_free(self, port: int, gpu: set[int], beat: Beat) -> None:
        """Sockets and GPU memory go a moment after their process."""
        deadline = self.clock() + 20.0
        while True:
            held = bool(gpu) and bool(gpu & set(gpu_processes() or {}))
            holder = listener(port) if port else None
            if not held and holder is None:
                return
            if self.clock() >= deadline:
                what = (
                    "GPU memory is still held by our processes"
                    if held
                    else "port %d is held by pid %s: %s"
                    % (port, (holder or {}).get("pid"), (holder or {}).get("command"))
                )
                raise AgentError("not-stopped", what, pids=sorted(gpu))
            beat({"stopping": sorted(gpu)})
            self.sleep(0.2)


def _lives(record: dict[str, Any] | None) -> bool:
    if record is None or record.get("boot") != boot_id() or record["pid_start"] is None:
        return False
    return bool(start_ticks(record["pid"]) == record["pid_start"])


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it ended by itself just now, which is what we want
    except PermissionError as error:
        raise AgentError(
            "not-allowed", "may not end process %d: it belongs to another user" % pid, pids=[describe(pid)]
        ) from error


def _reap() -> None:
    """Collects ended children (keepers started by this agent), so that none is taken for alive."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _keep(
    journal: Journal, command: list[str], env: dict[str, str], out: int, cwd: str, record: dict[str, Any], writing: int
) -> None:
    """The keeper's whole life: lead a session, start the server, report its pid, wait, write down how it ended."""
    answer: dict[str, Any] = {}
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for target, source in ((0, nothing), (1, out), (2, out)):
            os.dup2(source, target)
        os.set_inheritable(writing, False)
        for descriptor in range(3, 256):
            if descriptor != writing:
                try:
                    os.close(descriptor)
                except OSError:
                    continue  # not open
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=env, cwd=cwd)
        session = os.getpid()
        record.update(
            pid=server.pid, pid_start=start_ticks(server.pid), session=session, session_start=start_ticks(session)
        )
        journal.write("server.json", record)
        answer = {"pid": server.pid}
    except (OSError, AgentError, subprocess.SubprocessError) as error:
        answer = {"error": str(error)}
    os.write(writing, json.dumps(answer).encode())
    os.close(writing)
    if "error" in answer:
        return
    code = server.wait()
    ended = {
        "pid": server.pid,
        "code": code if code >= 0 else None,
        "signal": -code if code < 0 else None,
        "time": time.time(),
    }
    write_new(os.path.join(journal.folder, "server.exit.json"), json.dumps(ended).encode())
