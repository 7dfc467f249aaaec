"""The agent's loop: one request frame in, any number of progress frames and one answer out, until stdin ends."""

from __future__ import annotations

import gc
import glob
import os
import signal
import sys
import time
from types import CodeType
from typing import Any, BinaryIO

from eaglelab.remote.agent.checkup import flags_not_known, variables_not_known
from eaglelab.remote.agent.contents import parse_contents
from eaglelab.remote.agent.ended import Ended
from eaglelab.remote.agent.facts import facts, gpu_state, known_loads, topology
from eaglelab.remote.agent.files import read_file, sed
from eaglelab.remote.agent.flocks import FolderLocks, alone_in
from eaglelab.remote.agent.http import generate, request
from eaglelab.remote.agent.journal import Journal
from eaglelab.remote.agent.kept import keep_code, state_folder
from eaglelab.remote.agent.launchers.slurm_queue import queue_of
from eaglelab.remote.agent.lock import Lock
from eaglelab.remote.agent.manifest import manifest_entries, read_manifest
from eaglelab.remote.agent.places import Places, heartbeat
from eaglelab.remote.agent.server import Server
from eaglelab.remote.agent.state import StateFolder
from eaglelab.remote.agent.tail import digest_range, read_tail
from eaglelab.remote.agent.wire import READY, AgentError, Reply, encode_frame, read_frame

__all__ = ["Agent", "serve"]

_CHUNK = 4 << 20

_IDLE_S = 300
"""An agent that hears nothing for so long ends and lets go of the lock: a controller that lost its power or its
network says no goodbye, and sshd would wait for it for hours."""

_PATIENCE_S = 10.0
"""A rollback waits so long for somebody's lock on a worker's folder: a backup or a sync of files ends by then."""

_UNDER_LOCK = frozenset(
    {
        *("backup", "apply", "rollback", "start", "stop", "stop_foreign", "keep", "loaded"),
        *("load_start", "load_command", "load_stop", "end_tasks", "remove_tasks"),
    }
)
"""Operations that change the host: one operator at a time."""

_OF_HOST = frozenset({"lock", "backup", "apply", "rollback", "stop_foreign", "end_tasks", "remove_tasks"})
"""Operations on what all places of a host share: not from within one."""

_BEAT_S = 5.0


class _ControllerGone(Exception):
    """Nobody reads the answers any more."""


class Agent:
    """The operations by name: `op_NAME(**arguments)` returns a message, or a message and raw bytes.

    Raw bytes that came beside the request are the argument `data`; `beat` sends news while an operation works. `fresh`:
    the sha256 and the code of this agent, where they are not kept on the host yet.
    """

    def __init__(self, journal: Journal, out: BinaryIO, fresh: tuple[str, CodeType] | None = None) -> None:
        self.journal = journal
        self.out = out
        self.state: StateFolder = journal
        self._fresh = fresh
        self.server = Server(journal)
        self.loads = self.server.loads
        self.places = Places(journal, Server)
        self.ended = Ended(self.places, Server)
        self.lock = Lock(journal)
        self.session: str | None = None
        self._place_lock: Lock | None = None
        self._beaten = 0.0
        self.folders = FolderLocks()

    def op_facts(self, **about: Any) -> Any:
        return facts(self.journal, **about)

    def op_lock(self, holder: dict[str, Any], steal: bool = False) -> Any:
        before = self.lock.take(holder, steal)
        fresh, self._fresh = self._fresh, None
        if fresh is not None:  # only now: whoever has no lock changes nothing here
            keep_code(self.journal.folder, *fresh)
        return {"before": before}

    def op_enter(self, run: str, task: str, session: str) -> Any:
        """From here on the server at hand is that of a place (see places.py). `session` took the lock of this host; once
        somebody else has taken it nothing is answered any more: who only waits is to hear of it, too. An agent that is in
        that place still is ended: it is one that its controller has lost, or whose run has lost the host."""
        self._must_hold(session)
        state = self.places.enter(run, task)
        lock = Lock(state)
        lock.take({"run": run, "session": session}, steal=True)
        if self._place_lock is not None:
            self._place_lock.let_go()
        self.session, self.state, self._place_lock = session, state, lock
        self.server = Server(self.state)
        self.loads = self.server.loads
        self._beaten = 0.0
        return {"folder": self.state.folder}

    def op_end_tasks(self, run: str, grace: float, of: str | None = None) -> Any:
        """Ends the servers in the places of run `of`; None: in all. `kept`: how many places there are still."""
        stopped = self.places.end(run, of, grace, self.beat)
        return {"stopped": stopped, "kept": len(self.places.all())}

    def op_ended_tasks(self, run: str) -> Any:
        """The places, not of `run`, whose servers are gone; see ended.py."""
        return {"ended": self.ended.all(run, self.beat)}

    def op_remove_tasks(self, run: str, tasks: list[list[str]]) -> Any:
        return {"removed": self.ended.remove(run, tasks, self.beat)}

    def op_queue(self, options: dict[str, Any]) -> Any:
        return queue_of(options, time.time())

    def op_doing(self, text: str) -> Any:
        self.lock.doing(text)
        return {}

    def op_read(self, path: str) -> Any:
        return read_file(os.path.expanduser(path))

    def op_sed(self, path: str, ranges: list[list[int]]) -> Any:
        return {"lines": sed(path, ranges)}

    def op_backup(
        self,
        run: str,
        patch: str,
        by: str,
        files: list[dict[str, Any]],
        originals: list[dict[str, Any]],
        data: bytes = b"",
    ) -> Any:
        self.folders.hold((file["path"] for file in files), self.beat)
        return self.journal.backup(run, patch, by, files, parse_contents(originals, data))

    def op_apply(self, run: str, files: list[dict[str, Any]], data: bytes = b"") -> Any:
        self.folders.hold((file["path"] for file in files), self.beat)
        return {"files": self.journal.apply(run, parse_contents(files, data))}

    def op_rollback(self, run: str) -> Any:
        self._hold_known(_PATIENCE_S)
        return self.journal.rollback(run)

    def op_start(self, **what: Any) -> Any:
        if self.session is None:  # else the run that has the lock holds them
            self._hold_known()
        return self.server.start(**what)

    def _hold_known(self, patience: float = 0.5) -> None:
        self.folders.hold((entry["path"] for entry in manifest_entries(self.journal)), self.beat, patience)

    def op_status(self) -> Any:
        return dict(
            self.server.status(),
            lock=self.lock.holder(),
            manifest=read_manifest(self.journal),
            states=self.journal.states(),
            **({} if self.session is not None else self.places.status(self.beat)),
        )

    def op_stop(self, run: str, grace: float) -> Any:
        return self.server.stop(run, grace, self.beat)

    def op_stop_foreign(self, run: str, port: int, grace: float) -> Any:
        return self.server.stop_foreign(run, port, grace, self.beat)

    def op_poll(
        self, path: str, offset: int, http: dict[str, Any], inode: int | None = None, before: str | None = None
    ) -> Any:
        """One look at a starting server: its process, its health, what it wrote since `offset`."""
        status = self.server.status()
        address = status["address"] if status["elsewhere"] else http["host"]
        port = status["port"] if (status["record"] or {}).get("apart") else http["port"]
        health: dict[str, Any] = {"error": "refused"}
        if address is not None and port is not None:
            health = request(address, port, "GET", http["path"], None, http["key"], http["timeout"])
        tail, written = self.op_tail(path, offset, _CHUNK, inode, before)
        return dict(status, health=health, **tail), written

    def op_tail(self, path: str, offset: int, limit: int, inode: int | None = None, before: str | None = None) -> Reply:
        return read_tail(path, offset, limit, inode, before, self.server.outputs())

    def op_digest(self, path: str, offset: int, end: int, inode: int | None = None) -> Any:
        return digest_range(path, offset, end, inode, self.beat, self.server.outputs())

    def op_keep(self, suffix: str, data: bytes = b"") -> Any:
        return {"path": self.state.keep(suffix, data)}

    def op_gpu_state(self) -> Any:
        return {"gpus": gpu_state()}

    def op_topology(self) -> Any:
        return {"text": topology()}

    def op_look_up(self, package: str, flags: list[str], variables: list[str]) -> Any:
        """What of these the SGLang in `package` does not know; see checkup.py."""
        return {"flags": flags_not_known(package, flags), "variables": variables_not_known(package, variables)}

    def op_loaded(self, key: str, seconds: float) -> Any:
        """Remembers how long a load took, for the estimate of the next one."""
        with alone_in(self.journal.folder):  # the agents in places do so, too
            loads = known_loads(self.journal)
            loads[key] = (loads.get(key, []) + [round(seconds, 1)])[-5:]
            self.journal.write("loads.json", loads)
        return {}

    def op_list(self, pattern: str) -> Any:
        return {"paths": sorted(glob.glob(os.path.expanduser(pattern)))}

    def op_http(self, **what: Any) -> Any:
        return request(**what)

    def op_generate(self, **what: Any) -> Any:
        return generate(beat=self.beat, **what)

    def op_load_start(self, **what: Any) -> Any:
        return self.loads.start(**what)

    def op_load_command(self, **what: Any) -> Any:
        return self.loads.start_command(**what)

    def op_load_poll(self, **what: Any) -> Reply:
        return self.loads.poll(**what)

    def op_load_stop(self, **what: Any) -> Any:
        return self.loads.stop(**what)

    def _must_be_ours(self, op: str) -> None:
        """Raises AgentError where `op` may not be done by whoever asks for it."""
        if self.session is None:
            if op in _UNDER_LOCK and not self.lock.held:
                raise AgentError("not-locked", "%s changes the host and needs its lock" % op)
            return
        if op in _OF_HOST:
            raise AgentError("not-locked", "%s is not for a place of its own" % op)
        self._must_hold(self.session)
        self._show_alive()

    def _must_hold(self, session: str) -> None:
        """Raises `lock-lost` where `session` was not the last to take the lock of this host."""
        last = self.lock.last()
        if last.get("session") != session:
            raise AgentError("lock-lost", "the lock of this host was taken over", holder=last)

    def _show_alive(self) -> None:
        """For the job's own watchdog: somebody is at work here."""
        now = time.monotonic()
        if self.state is not self.journal and (now - self._beaten >= _BEAT_S or not self._beaten):
            self._beaten = now
            try:
                with open(heartbeat(self.state), "w") as file:
                    file.write("%d\n" % time.time())
            except OSError:
                pass  # a full disk: the log that grows is a sign, too

    def beat(self, news: dict[str, Any]) -> None:
        self.send({"beat": news})

    def send(self, frame: dict[str, Any], raw: bytes = b"") -> None:
        try:
            self.out.write(encode_frame(frame, raw))
            self.out.flush()
        except BrokenPipeError as error:
            raise _ControllerGone from error

    def answer(self, message: dict[str, Any], data: bytes) -> None:
        """Runs one request and writes its frames. Whatever goes wrong becomes an answer; the loop goes on."""
        try:
            operation = getattr(self, "op_" + message["op"])
            self._must_be_ours(message["op"])
            result = operation(**message["args"], **({"data": data} if data else {}))
        except AgentError as error:
            self.send({"error": {"code": error.code, "what": error.what, "details": error.details}})
        except _ControllerGone:
            raise
        except Exception as error:
            import traceback  # here, for the sake of every start that goes well

            self.send(
                {
                    "error": {
                        "code": "bug",
                        "what": "%s: %s" % (type(error).__name__, error),
                        "details": {"traceback": traceback.format_exc()},
                    }
                }
            )
        else:
            frame, raw = result if isinstance(result, tuple) else (result, b"")
            self.send({"ok": frame}, raw)


def serve(source: BinaryIO, out: BinaryIO, fresh: tuple[str, CodeType] | None = None) -> None:
    """Answers requests until the controller closes the stream, is gone, or has been silent for too long."""
    agent = Agent(Journal(state_folder()), out, fresh)
    gc.freeze()
    gc.enable()
    try:
        out.write(READY)
        out.flush()
        while True:
            signal.alarm(_IDLE_S)  # unhandled, it ends the process
            frame = read_frame(source)
            signal.alarm(0)
            if frame is None:
                return
            agent.answer(frame[0], frame[1])
    except (_ControllerGone, BrokenPipeError):
        # Python would fail once more when it flushes stdout at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
