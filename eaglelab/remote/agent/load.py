"""Loads: processes of this host that drive its server with requests, whatever becomes of the agent or the link."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import shlex
import signal
import socket
import time
from typing import Any, Callable

from eaglelab.remote.agent.files import os_error
from eaglelab.remote.agent.load_process import BEGIN, BEGUN, Prepare, commanding, driving, run_load
from eaglelab.remote.agent.processes import boot_id, start_ticks, started, without_secrets
from eaglelab.remote.agent.shapes import is_count, is_number, is_pid, is_text
from eaglelab.remote.agent.state import StateFolder
from eaglelab.remote.agent.wire import AgentError, Beat, Reply

__all__ = ["Loads"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_NEEDED = {"id": is_text, "run": is_text, "pid": is_pid, "pid_start": is_count, "boot": is_text, "what": is_text}
_KNOWN = {"time": is_number, "requests": is_count}
_PIECE = 4 << 20


class Loads:
    """The loads of a state folder, below `runs/RUN/load/`.

    `ID.json` names the process, `ID.jsonl` is the result, `ID.progress.json` how far it is. The first line of the
    result is {"begin": ...}, then one for each finished request (and cache flush), the last {"end": ...}. A load that
    is a command has no lines between, and writes its output to `ID.out`.
    """

    def __init__(
        self,
        state: StateFolder,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.state = state
        self.clock = clock
        self.sleep = sleep
        self._children: set[int] = set()

    def start(
        self,
        id: str,  # noqa: A002 - the wire's word
        run: str,
        spec: dict[str, Any],
        requests: list[dict[str, Any]],
    ) -> dict[str, Any]:
        """Starts the load `id` of `run` (see Driver for `spec` and `requests`) and returns `state` and `record`.

        Asked once more, after a lost link, it answers with the load that the first request started. Raises
        AgentError `load-exists` if that was another load, `load-running` while any load of ours runs here,
        `bad-load` where a name or the spec cannot be used, `load-failed` if the process did not begin.
        """
        _must_be_whole(spec, requests)
        about = {
            "requests": len(requests),
            "spec": {key: value for key, value in spec.items() if key not in ("key", "rounds")},
        }
        # Without the key, which is written nowhere, not even as a digest.
        told = {key: value for key, value in spec.items() if key != "key"}
        return self._start(id, run, [told, requests], about, driving(spec, requests))

    def start_command(
        self,
        id: str,  # noqa: A002
        run: str,
        command: list[str],
        env: dict[str, str],
        cwd: str,
    ) -> dict[str, Any]:
        """The same with a command that sends requests of its own; of `env`, which may hold secrets, names are kept."""
        told = [command, sorted(env), cwd]
        about = {"command": without_secrets(command), "env": sorted(env)}
        return self._start(id, run, told, about, commanding(command, env, cwd))

    def _start(self, name: str, run: str, told: Any, about: dict[str, Any], prepare: Prepare) -> dict[str, Any]:
        """`told` is what tells this load from another of that name, `about` what its record says of it."""
        what = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
        base = self._base(run, name)
        record = self._record(base)
        if record is not None and self._begun(base, record):
            if record["what"] != what:
                raise AgentError("load-exists", "run %s has another load named %s" % (run, name))
            return {"state": self._look(base, record), "record": record}
        for other in self.running():
            raise AgentError(
                "load-running", "load %s of run %s is still running here" % (other["id"], other["run"]), load=other
            )
        self._prepare(base)
        record = dict(about, id=name, run=run, what=what, boot=boot_id(), time=time.time())
        pid = self._launch(base, record, prepare)
        self._children.add(pid)
        return {"state": "running", "record": record}

    def poll(self, id: str, run: str, offset: int) -> Reply:  # noqa: A002
        """How the load stands, and the whole lines of its result from byte `offset` on.

        `state`: running, done (its last line is there) or dead (it has gone without one). `next`: the offset to ask
        from; `more`: lines are waiting there already. `record`, `progress` (None before the first). Raises AgentError
        `no-load`.
        """
        base = self._base(run, id)
        record = self._record(base)
        if record is None:
            raise AgentError("no-load", "run %s has no load named %s" % (run, id))
        standing = self._look(base, record)  # before the result is read, so that `done` means that all of it is there
        try:
            with open(base + ".jsonl", "rb") as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(offset)
                piece = file.read(_PIECE)
        except FileNotFoundError:
            size, piece = 0, b""
        lines = piece[: piece.rfind(b"\n") + 1]
        about = {"state": standing, "record": record, "progress": self._progress(base), "next": offset + len(lines)}
        return dict(about, more=offset + len(piece) < size), lines

    def stop(self, id: str, run: str, grace: float = 5.0) -> dict[str, Any]:  # noqa: A002
        """Ends the load: TERM, KILL after `grace` seconds. Returns `how` (none, term, kill) and its `state`."""
        base = self._base(run, id)
        record = self._record(base)
        how = "none" if record is None else self._end(record, grace)
        return {"how": how, "state": None if record is None else self._look(base, record)}

    def running(self) -> list[dict[str, Any]]:
        """The records of all living loads."""
        pattern = os.path.join(glob.escape(self.state.folder), "runs", "*", "load", "*.json")
        bases = [path[: -len(".json")] for path in sorted(glob.glob(pattern)) if not path.endswith(".progress.json")]
        found = []
        for base in bases:
            try:
                record = self._record(base)
            except AgentError:
                continue  # damaged by hand: a load must not keep its server from being stopped
            if record is not None and self._lives(record):
                found.append(record)
        return found

    def end_all(self, beat: Beat, grace: float = 5.0) -> None:
        """Ends every load of ours: nothing may drive a server that is about to stop."""
        for record in self.running():
            beat({"stopping": [record["pid"]]})
            self._end(record, grace)

    def _base(self, run: str, name: str) -> str:
        if not _RUN_NAME.fullmatch(run) or not _NAME.fullmatch(name):
            raise AgentError("bad-load", "a load cannot be named %r in run %r" % (name, run))
        return os.path.join(self.state.folder, "runs", run, "load", name)

    def _record(self, base: str) -> dict[str, Any] | None:
        try:
            return self.state.read(os.path.relpath(base + ".json", self.state.folder), _NEEDED, _KNOWN)
        except AgentError as error:
            if error.code == "bad-state":
                path = shlex.quote(base + ".json")
                error.details["mend"] = "mv %s %s.damaged" % (path, path)
            raise

    def _progress(self, base: str) -> dict[str, Any] | None:
        try:
            return self.state.read(os.path.relpath(base + ".progress.json", self.state.folder))
        except AgentError as error:
            if error.code != "bad-state":
                raise
            return None  # only for a person to see how far it is

    def _prepare(self, base: str) -> None:
        self.state.open()
        try:
            os.makedirs(os.path.dirname(base), mode=0o700, exist_ok=True)
        except OSError as error:
            raise os_error(error, "cannot make the folder %s" % os.path.dirname(base)) from error

    def _launch(self, base: str, record: dict[str, Any], prepare: Prepare) -> int:
        """Forks the process; its record is written before it may begin. Nothing of it is left where it cannot."""
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            try:
                run_load(base, prepare, theirs)
            finally:
                os._exit(0)  # never back into the agent's loop
        theirs.close()
        try:
            with ours, ours.makefile("rb") as answers:
                if answers.readline() != BEGUN:
                    raise AgentError("load-failed", "the process of the load ended before it did anything")
                record.update(pid=pid, pid_start=started(pid))
                self.state.write(os.path.relpath(base + ".json", self.state.folder), record)
                ours.sendall(BEGIN)
                answer = answers.readline()
            if answer != BEGUN:
                what = answer.decode(errors="replace").strip() or "its process was killed"
                raise AgentError("load-failed", "the load did not begin: %s" % what)
        except Exception:
            os.waitpid(pid, 0)  # it ends by itself when nobody tells it to begin
            raise
        return pid

    def _begun(self, base: str, record: dict[str, Any]) -> bool:
        """Whether an earlier try of this request came to something; its process may be about to begin."""
        deadline = self.clock() + 10.0
        while not os.path.exists(base + ".jsonl"):
            if not self._lives(record) or self.clock() >= deadline:
                return os.path.exists(base + ".jsonl")
            self.sleep(0.02)
        return True

    def _look(self, base: str, record: dict[str, Any]) -> str:
        if self._lives(record):
            return "running"
        return "done" if _last_line(base + ".jsonl").startswith(b'{"end":') else "dead"

    def _lives(self, record: dict[str, Any]) -> bool:
        for pid in list(self._children):
            if os.waitpid(pid, os.WNOHANG)[0]:
                self._children.discard(pid)
        return bool(record["boot"] == boot_id() and start_ticks(record["pid"]) == record["pid_start"])

    def _end(self, record: dict[str, Any], grace: float) -> str:
        for number, how, seconds in ((signal.SIGTERM, "term", grace), (signal.SIGKILL, "kill", 10.0)):
            if not self._lives(record):
                return "none" if number == signal.SIGTERM else "term"
            try:
                os.killpg(record["pid"], number)  # it leads a session, and so a group, of its own
            except ProcessLookupError:
                return how
            except PermissionError as error:
                raise AgentError("not-allowed", "may not end the load's process %d" % record["pid"]) from error
            deadline = self.clock() + seconds
            while self._lives(record) and self.clock() < deadline:
                self.sleep(0.02)
        if self._lives(record):
            raise AgentError("not-stopped", "the load's process %d does not end" % record["pid"])
        return "kill"


def _last_line(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 65536))
            data = file.read()
    except OSError:
        return b""
    return data[:-1].rpartition(b"\n")[2] if data.endswith(b"\n") else b""


def _must_be_whole(spec: dict[str, Any], requests: list[dict[str, Any]]) -> None:
    """A fault found later would leave a load half done."""
    try:
        sent = [index for about in spec["rounds"] for index in about["requests"]]
        fits = (
            spec["mode"] in ("concurrency", "rate")
            and sorted(sent) == sorted(set(sent) & set(range(len(requests))))
            and (spec["mode"] == "rate" or spec["concurrency"] >= 1)
            and spec["silence"] > 0
            and all(request["body"] is not None for request in requests)
            and (spec["mode"] != "rate" or all(request["at"] >= 0 for request in requests))
        )
    except (KeyError, TypeError) as error:
        raise AgentError("bad-load", "the load lacks %s" % error) from error
    if not fits:
        raise AgentError("bad-load", "the load names requests that it does not hold, or an unknown mode")
