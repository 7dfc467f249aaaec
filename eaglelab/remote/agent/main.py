"""The agent's loop: one request frame in, any number of progress frames and one answer out, until stdin ends."""

from __future__ import annotations

import fcntl
import glob
import json
import os
import sys
import traceback
from typing import Any, BinaryIO, Dict, List, Optional

from eaglelab.remote.agent.facts import facts
from eaglelab.remote.agent.files import describe_file, os_error, read_bytes, sed
from eaglelab.remote.agent.http import generate, request
from eaglelab.remote.agent.journal import Journal, parse_contents, state_folder
from eaglelab.remote.agent.server import Server
from eaglelab.remote.agent.wire import READY, AgentError, Beat, Reply, encode_frame, read_frame

__all__ = ["Agent", "serve"]

_CHUNK = 4 << 20


class Agent:
    """The operations by name: `op_NAME(beat, data, **arguments)` returns a message, or a message and raw bytes."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.server = Server(journal)
        self.locked = None  # type: Optional[int]

    def op_facts(self, beat: Beat, data: bytes, **about: Any) -> Any:
        return facts(self.journal, **about)

    def op_lock(self, beat: Beat, data: bytes, holder: Dict[str, Any]) -> Any:
        """One operator a host: held until this agent ends, however it ends. Raises `locked` with the holder."""
        if self.locked is not None:
            return {}
        self.journal.open()
        path = os.path.join(self.journal.folder, "lock")
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise os_error(error, "cannot open the lock %s" % path) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            other = os.read(descriptor, 4096).decode(errors="replace")
            os.close(descriptor)
            raise AgentError("locked", "another run is at work on this host", holder=other) from error
        os.ftruncate(descriptor, 0)
        os.write(descriptor, json.dumps(dict(holder, pid=os.getpid())).encode())
        self.locked = descriptor
        return {}

    def op_read(self, beat: Beat, data: bytes, path: str) -> Any:
        found = describe_file(os.path.expanduser(path))
        return found, read_bytes(found["path"])

    def op_sed(self, beat: Beat, data: bytes, path: str, ranges: List[List[int]]) -> Any:
        return {"lines": sed(path, ranges)}

    def op_backup(self, beat: Beat, data: bytes, run: str, patch: str, by: str, files: List[Dict[str, Any]], originals: List[Dict[str, Any]]) -> Any:
        return self.journal.backup(run, patch, by, files, parse_contents(originals, data))

    def op_apply(self, beat: Beat, data: bytes, run: str, files: List[Dict[str, Any]]) -> Any:
        return {"files": self.journal.apply(run, parse_contents(files, data))}

    def op_rollback(self, beat: Beat, data: bytes, run: str) -> Any:
        return self.journal.rollback(run)

    def op_start(self, beat: Beat, data: bytes, **what: Any) -> Any:
        return self.server.start(**what)

    def op_status(self, beat: Beat, data: bytes) -> Any:
        return dict(self.server.status(), manifest=self.journal.read("manifest.json"), states=self.journal.states())

    def op_stop(self, beat: Beat, data: bytes, run: str, grace: float) -> Any:
        return self.server.stop(run, grace, beat)

    def op_stop_foreign(self, beat: Beat, data: bytes, run: str, port: int, grace: float) -> Any:
        return self.server.stop_foreign(run, port, grace, beat)

    def op_poll(self, beat: Beat, data: bytes, path: str, offset: int, http: Dict[str, Any]) -> Any:
        """One look at a starting server: its process, its health, what it wrote since `offset`."""
        health = request(http["host"], http["port"], "GET", http["path"], None, http["key"], http["timeout"])
        tail, written = self.op_tail(beat, b"", path=path, offset=offset, limit=_CHUNK)
        return dict(self.server.status(), health=health, **tail), written

    def op_tail(self, beat: Beat, data: bytes, path: str, offset: int, limit: int) -> Reply:
        """Bytes of a file from `offset` on; from its start if it has become shorter (rotated or truncated)."""
        path = os.path.expanduser(path)
        if not os.path.exists(path):
            return {"size": 0, "inode": 0, "offset": 0}, b""
        try:
            with open(path, "rb") as file:
                info = os.fstat(file.fileno())
                start = offset if offset <= info.st_size else 0
                file.seek(start)
                return {"size": info.st_size, "inode": info.st_ino, "offset": start}, file.read(min(limit, _CHUNK))
        except OSError as error:
            raise os_error(error, "cannot read %s" % path) from error

    def op_loaded(self, beat: Beat, data: bytes, key: str, seconds: float) -> Any:
        """Remembers how long a load took, for the estimate of the next one."""
        loads = self.journal.read("loads.json") or {}
        loads[key] = (loads.get(key, []) + [round(seconds, 1)])[-5:]
        self.journal.write("loads.json", loads)
        return {}

    def op_list(self, beat: Beat, data: bytes, pattern: str) -> Any:
        return {"paths": sorted(glob.glob(os.path.expanduser(pattern)))}

    def op_http(self, beat: Beat, data: bytes, **what: Any) -> Any:
        return request(**what)

    def op_generate(self, beat: Beat, data: bytes, **what: Any) -> Any:
        return generate(beat=beat, **what)

    def answer(self, message: Dict[str, Any], data: bytes, out: BinaryIO) -> None:
        """Runs one request and writes its frames. Whatever goes wrong becomes an answer; the loop goes on."""

        def send(frame: Dict[str, Any], raw: bytes = b"") -> None:
            out.write(encode_frame(frame, raw))
            out.flush()

        try:
            operation = getattr(self, "op_" + message["op"])
            result = operation(lambda news: send({"beat": news}), data, **message["args"])
        except AgentError as error:
            send({"error": {"code": error.code, "what": error.what, "details": error.details}})
        except BrokenPipeError:
            raise
        except Exception as error:
            send({"error": {"code": "bug", "what": "%s: %s" % (type(error).__name__, error), "details": {"traceback": traceback.format_exc()}}})
        else:
            frame, raw = result if isinstance(result, tuple) else (result, b"")
            send({"ok": frame}, raw)


def serve(source: BinaryIO, out: BinaryIO) -> None:
    """Answers requests until the controller closes the stream or is gone."""
    agent = Agent(Journal(state_folder()))
    out.write(READY)
    out.flush()
    try:
        while True:
            frame = read_frame(source)
            if frame is None:
                return
            agent.answer(frame[0], frame[1], out)
    except BrokenPipeError:
        sys.stderr = open(os.devnull, "w")  # the controller is gone: nobody is left to tell
