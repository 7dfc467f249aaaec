"""The process of a load, from its fork to its end."""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import socket
import time
from typing import Any

from eaglelab.remote.agent.driver import Driver
from eaglelab.remote.agent.keeper import LOAD, detach

__all__ = ["BEGIN", "BEGUN", "run_load"]

BEGIN, BEGUN = b"begin\n", b"begun\n"
"""What the agent tells the process, and what it answers: once when it is detached, once when the load has begun."""


def run_load(base: str, spec: dict[str, Any], requests: list[dict[str, Any]], agent: socket.socket) -> None:
    """Its whole life. All it has of the agent is what was in its memory, the server's key included."""
    detach(LOAD, os.open(os.devnull, os.O_RDWR), agent.fileno())
    agent.sendall(BEGUN)
    if agent.recv(len(BEGIN)) != BEGIN:
        return
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        driver = _begin(base, spec, requests)
    except Exception as error:
        _tell_agent(agent, ("%s: %s\n" % (type(error).__name__, error)).encode())
        return
    _tell_agent(agent, BEGUN)
    agent.close()
    # A pass over all that the requests hold would be in the times of the chunks; nothing here is in cycles.
    gc.disable()
    try:
        driver.run()
    except Exception as error:
        _publish(base, {"error": "%s: %s" % (type(error).__name__, error)})


def _tell_agent(agent: socket.socket, answer: bytes) -> None:
    try:
        agent.sendall(answer)
    except OSError:
        pass  # it is gone; the next one finds the record, and the result if there is one


def _begin(base: str, spec: dict[str, Any], requests: list[dict[str, Any]]) -> Driver:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))  # a connection for each request that runs

    def emit(line: dict[str, Any]) -> None:
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        while data:
            data = data[os.write(out, data) :]

    driver = Driver(spec, requests, emit, lambda news: _publish(base, news))
    signal.signal(signal.SIGTERM, lambda *_: setattr(driver, "stopping", True))
    out = os.open(base + ".jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    about = {key: spec.get(key) for key in ("mode", "concurrency", "silence")}
    emit({"begin": dict(about, time=time.time(), requests=len(requests), connections="one a request")})
    return driver


def _publish(base: str, news: dict[str, Any]) -> None:
    """Whole or not at all, and not synced: to wait for a disk would be in the times of the chunks."""
    path = base + ".progress.json"
    with open(path + ".new", "w") as file:
        json.dump(news, file)
    os.replace(path + ".new", path)
