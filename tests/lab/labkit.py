"""Logging in to a lab, running commands there, and a server on it."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import paramiko
import pytest

from eaglelab.errors import EaglelabError
from eaglelab.lab import provision
from eaglelab.lab.lab import LabInfo
from eaglelab.lab.processes import start_time
from eaglelab.lab.standin.stubs import Finder

__all__ = ["SPECULATIVE", "VERSION", "Server", "importable", "log_in", "released", "run", "serving", "wait_until"]

_NUMBERS = itertools.count(1)
VERSION = "0.5.9"
SPECULATIVE = (
    "--speculative-algorithm EAGLE3 --speculative-draft-model-path ~/models/draft "
    "--speculative-num-steps {0} --speculative-eagle-topk 1 --speculative-num-draft-tokens {1}"
)


def released(version: str) -> Path:
    """The folder of a released package; downloaded on first use, and a failure where that cannot be."""
    try:
        return provision.package_of(version, provision.cache_folder(), print)
    except EaglelabError as error:
        pytest.fail(
            f"this test needs sglang {version} in the cache (`invoke lab-up --sglang {version}`, online): {error}"
        )


@contextmanager
def importable(package: Path) -> Iterator[Finder]:
    """Make a package importable as on the lab host, in this process."""
    before = set(sys.modules)
    finder = Finder()
    sys.meta_path.insert(0, finder)
    sys.path.insert(0, str(package))
    try:
        yield finder
    finally:
        sys.path.remove(str(package))
        sys.meta_path.remove(finder)
        for name in set(sys.modules) - before:
            if name.partition(".")[0] in ("sglang", "torch"):
                del sys.modules[name]


@contextmanager
def log_in(lab: LabInfo, key: str | None = None) -> Iterator[paramiko.SSHClient]:
    client = paramiko.SSHClient()
    client.load_host_keys(lab.known_hosts)
    client.set_missing_host_key_policy(paramiko.RejectPolicy())
    try:
        client.connect(
            lab.address, lab.port, lab.user, key_filename=key or lab.key, allow_agent=False, look_for_keys=False
        )
        yield client
    finally:
        client.close()


def run(client: paramiko.SSHClient, command: str, stdin: bytes = b"") -> tuple[int, bytes, bytes]:
    """Exit code, stdout, stderr."""
    feed, out, err = client.exec_command(command)
    feed.channel.sendall(stdin)
    feed.channel.shutdown_write()
    return out.channel.recv_exit_status(), out.read(), err.read()


class Server:
    """A stand-in server that runs on the lab host."""

    def __init__(self, lab: LabInfo, pid: int, log: str) -> None:
        self.lab, self.pid = lab, pid
        self.log = Path(lab.home) / "logs" / log

    def ask(self, path: str, body: Any = None, method: str = "GET") -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.lab.server_port, timeout=20)
        try:
            connection.request("POST" if body is not None else method, path, json.dumps(body) if body else None)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def generate(self, tokens: int, **body: Any) -> dict[str, Any]:
        sampling = {"max_new_tokens": tokens, "ignore_eos": True, "temperature": 0}
        status, answer = self.ask("/generate", {"text": "Tell me a story", "sampling_params": sampling, **body})
        assert status == 200
        result: dict[str, Any] = json.loads(answer)
        return result

    def text(self) -> str:
        """Its log so far; the shell that starts it makes the file after it has said its pid."""
        return self.log.read_text(encoding="utf-8") if self.log.exists() else ""


def wait_until(happened: Any, what: str, seconds: float = 60.0) -> None:
    """Poll a process that is not ours; the only waiting in these tests."""
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, f"{what} did not happen in {seconds} s"
        time.sleep(0.01)


@contextmanager
def serving(
    lab: LabInfo, client: paramiko.SSHClient, flags: str, env: str = "", ready: str = "ready to roll!"
) -> Iterator[Server]:
    """Start a server on the lab host and wait for `ready` in its log; it is killed in the end.

    Its log is its own: another one may run meanwhile, whose test comes before or after.
    """
    log = f"server-{next(_NUMBERS)}.log"
    command = (
        f"env {env} ~/ml-env/bin/python3 -m sglang.launch_server --model-path ~/models/target "
        f"--port {lab.server_port} {flags} >~/logs/{log} 2>&1 </dev/null & echo $!"
    )
    code, out, _ = run(client, command)
    assert code == 0
    server = Server(lab, int(out), log)
    try:
        wait_until(lambda: ready in server.text(), ready)
        yield server
    finally:
        with suppress(ProcessLookupError):
            os.kill(server.pid, signal.SIGKILL)
        wait_until(lambda: not start_time(server.pid), "the end of the launcher")
