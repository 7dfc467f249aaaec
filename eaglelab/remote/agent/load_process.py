"""The process of a load, from its fork to its end."""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import socket
import time
from typing import Any, Callable, Protocol

from eaglelab.remote.agent.driver import Driver
from eaglelab.remote.agent.keeper import LOAD, detach
from eaglelab.remote.agent.load_command import Command

__all__ = ["BEGIN", "BEGUN", "Prepare", "commanding", "driving", "run_load"]

BEGIN, BEGUN = b"begin\n", b"begun\n"
"""What the agent tells the process, and what it answers: once when it is detached, once when the load has begun."""


class _Work(Protocol):
    def run(self) -> None:
        """All of the load; its last line is {"end": ...}."""


Emit = Callable[["dict[str, Any]"], None]
Prepare = Callable[[str, Emit], "tuple[_Work, dict[str, Any]]"]
"""Makes a load's work of the path of its files and of what takes the lines of its result; and says what begins."""


def run_load(base: str, prepare: Prepare, agent: socket.socket) -> None:
    """Its whole life. All it has of the agent is what was in its memory, the server's key included."""
    detach(LOAD, os.open(os.devnull, os.O_RDWR), agent.fileno())
    agent.sendall(BEGUN)
    if agent.recv(len(BEGIN)) != BEGIN:
        return
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        work = _begin(base, prepare)
    except Exception as error:
        _tell_agent(agent, ("%s: %s\n" % (type(error).__name__, error)).encode())
        return
    _tell_agent(agent, BEGUN)
    agent.close()
    # A pass over all that the requests hold would be in the times of the chunks; nothing here is in cycles.
    gc.disable()
    try:
        work.run()
    except Exception as error:
        _publish(base, {"error": "%s: %s" % (type(error).__name__, error)})


def driving(spec: dict[str, Any], requests: list[dict[str, Any]]) -> Prepare:
    """The requests sent by the driver here. TERM ends it in order."""

    def prepare(base: str, emit: Emit) -> tuple[_Work, dict[str, Any]]:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))  # a connection for each request that runs
        driver = Driver(spec, requests, emit, lambda news: _publish(base, news))
        signal.signal(signal.SIGTERM, lambda *_: setattr(driver, "stopping", True))
        about = {key: spec.get(key) for key in ("mode", "concurrency", "silence")}
        return driver, dict(about, requests=len(requests), connections="one a request")

    return prepare


def commanding(command: list[str], env: dict[str, str], cwd: str) -> Prepare:
    """A command that sends requests of its own. TERM and KILL reach it with its process group."""

    def prepare(base: str, emit: Emit) -> tuple[_Work, dict[str, Any]]:
        return Command(command, env, cwd, base + ".out", emit), {}

    return prepare


def _tell_agent(agent: socket.socket, answer: bytes) -> None:
    try:
        agent.sendall(answer)
    except OSError:
        pass  # it is gone; the next one finds the record, and the result if there is one


def _begin(base: str, prepare: Prepare) -> _Work:
    """The result is there once the load has begun, and not before."""
    out = -1

    def emit(line: dict[str, Any]) -> None:
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        while data:
            data = data[os.write(out, data) :]

    work, about = prepare(base, emit)
    out = os.open(base + ".jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    emit({"begin": dict(about, time=time.time())})
    return work


def _publish(base: str, news: dict[str, Any]) -> None:
    """Whole or not at all, and not synced: to wait for a disk would be in the times of the chunks."""
    path = base + ".progress.json"
    with open(path + ".new", "w") as file:
        json.dump(news, file)
    os.replace(path + ".new", path)
