"""The keeper: a small process that leads the server's session, starts it, and writes down how it ended.

It owes nothing to the agent that forked it, which may be gone a moment later.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import time
from typing import Any

from eaglelab.remote.agent.files import os_error
from eaglelab.remote.agent.processes import set_process_name, started
from eaglelab.remote.agent.state import StateFolder
from eaglelab.remote.agent.wire import AgentError

__all__ = ["HELPERS", "KEEPER", "LOAD", "detach", "launch", "open_log"]

KEEPER, LOAD = "eaglelab-keeper", "eaglelab-load"
HELPERS = (KEEPER, LOAD)
"""Names, as `ps` shows them, of the processes that outlive an agent."""

_READY, _GO = b"ready\n", b"go\n"


def open_log(path: str) -> int:
    """A descriptor at the end of the server's log, which is made if need be. Raises AgentError."""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        # Without O_NONBLOCK a pipe would be waited for until somebody reads it.
        out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o644)
    except OSError as error:
        raise os_error(error, "cannot write the server log %s" % path) from error
    if not stat.S_ISREG(os.fstat(out).st_mode):
        os.close(out)
        raise AgentError("not-regular", "the server log %s is not a regular file" % path, path=path)
    os.set_blocking(out, True)
    return out


def launch(
    state: StateFolder, command: list[str], env: dict[str, str], out: int, cwd: str, record: dict[str, Any]
) -> tuple[int, dict[str, Any]]:
    """Starts `command` under a keeper, in a session of its own, its output going to the descriptor `out`.

    The record is in `server.json`, with the session, before the server may start: whoever comes next finds the
    keeper, even if this process is killed in the middle. Returns the keeper's pid and the record with the server's.
    Raises AgentError `start-failed`; nothing runs then.
    """
    ours, theirs = socket.socketpair()
    keeper = os.fork()
    if keeper == 0:
        try:
            _keep(state, command, env, out, cwd, record, theirs)
        finally:
            os._exit(0)  # never back into the agent's loop: two processes would answer the controller
    theirs.close()
    try:
        with ours, ours.makefile("rb") as answers:
            if answers.readline() != _READY:
                raise AgentError("start-failed", "the server's keeper ended before it did anything")
            record.update(session=keeper, session_start=started(keeper), pid=None, pid_start=None)
            state.write("server.json", record)
            ours.sendall(_GO)
            line = answers.readline()
        if not line:
            raise AgentError("start-failed", "the server's keeper was killed while it started the server")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            state.remove("server.json")
            raise AgentError("start-failed", "cannot start the server: %s" % answer["error"])
    except Exception:
        os.waitpid(keeper, 0)  # without a `go` it ends by itself, and after an error too
        raise
    return keeper, answer


def _keep(
    state: StateFolder,
    command: list[str],
    env: dict[str, str],
    out: int,
    cwd: str,
    record: dict[str, Any],
    agent: socket.socket,
) -> None:
    """The keeper's whole life."""
    detach(KEEPER, out, agent.fileno())
    agent.sendall(_READY)
    if agent.recv(len(_GO)) != _GO:
        return
    try:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=env, cwd=cwd)
    except Exception as error:
        _tell(agent, {"error": str(error)})
        return
    # Only now, since the server would inherit it. Who ends a process group means the server, whose end is noted here.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    record.update(
        pid=server.pid, pid_start=started(server.pid), session=os.getpid(), session_start=started(os.getpid())
    )
    try:
        state.write("server.json", record)
    except Exception as error:
        server.kill()  # nobody would know of it
        server.wait()
        _tell(agent, {"error": str(error)})
        return
    _tell(agent, record)
    agent.close()
    code = server.wait()
    state.write(
        "server.exit.json",
        {
            "pid": server.pid,
            "code": code if code >= 0 else None,
            "signal": -code if code < 0 else None,
            "time": time.time(),
        },
    )


def _tell(agent: socket.socket, answer: dict[str, Any]) -> None:
    try:
        agent.sendall(json.dumps(answer).encode() + b"\n")
    except OSError:
        pass  # the agent is gone; the record says it all


def detach(name: str, out: int, kept: int) -> None:
    """A name and a session of its own, output to `out`. The agent's other descriptors, its lock above all, do not live on in here."""
    set_process_name(name)
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for target, source in ((0, nothing), (1, out), (2, out)):
        os.dup2(source, target)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != kept:
            try:
                os.close(int(name))
            except OSError:
                continue  # the one that listed the folder
