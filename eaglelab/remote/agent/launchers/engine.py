"""What launchers share that leave the running to an engine (systemd, a container engine, Slurm)."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from typing import Any, Mapping, Sequence

from eaglelab.remote.agent.files import os_error
from eaglelab.remote.agent.marks import MARK
from eaglelab.remote.agent.state import StateFolder
from eaglelab.remote.agent.wire import AgentError
from eaglelab.remote.agent.writing import write_new

__all__ = [
    "Answer",
    "Shell",
    "ask",
    "exit_of",
    "must_have",
    "papers",
    "remove_papers",
    "shell_runner",
    "whole_environment",
]

_TIMEOUT_S = 60


class Answer:
    """What a command said. `ok`: it ended with 0."""

    def __init__(self, code: int, out: str, error: str) -> None:
        self.ok = code == 0
        self.out = out
        self.error = " ".join(error.split())[-400:]


def ask(words: Sequence[str], env: Mapping[str, str] | None = None, stdin: bytes = b"") -> Answer:
    """Runs a command of an engine to its end. Raises AgentError `no-engine` where there is none, or it hangs."""
    try:
        done = subprocess.run(
            list(words),
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=None if env is None else dict(env),
            timeout=_TIMEOUT_S,
        )
    except OSError as error:
        raise AgentError("no-engine", "cannot run %s: %s" % (words[0], error.strerror)) from error
    except subprocess.TimeoutExpired as error:
        raise AgentError("no-engine", "%s did not answer within %d s" % (words[0], _TIMEOUT_S)) from error
    return Answer(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


def must_have(*tools: str) -> None:
    from shutil import which  # here, for the sake of hosts without engines

    missing = [tool for tool in tools if which(tool) is None]
    if missing:
        raise AgentError("no-engine", "there is no %s on this host" % " and no ".join(missing))


def papers(state: StateFolder, record: Mapping[str, Any], files: Mapping[str, bytes]) -> str:
    """A folder of a server's own in the state folder, which only this user may read, with its record and these files."""
    state.open("launch")
    folder = _papers_of(state, record["name"])
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as error:
        raise os_error(error, "cannot make %s" % folder) from error
    for file, data in dict(files, **{"record.json": json.dumps(dict(record)).encode()}).items():
        write_new(os.path.join(folder, file), data)
    return folder


def remove_papers(state: StateFolder, name: str) -> None:
    from shutil import rmtree

    rmtree(_papers_of(state, name), ignore_errors=True)


def _papers_of(state: StateFolder, name: str) -> str:
    return os.path.join(state.folder, "launch", name)


def whole_environment(env: Mapping[str, str], record: Mapping[str, Any]) -> dict[str, str]:
    """What an engine's command is started with, so that values need not stand on its command line."""
    return dict(os.environ, **dict(env, **{MARK: record["mark"]}))


class Shell(str):
    """A word of a command that the shell fills in: it is not quoted."""


def shell_runner(
    command: Sequence[str], before: str = "", ended: str | None = None, beside: str = "", after: str = ""
) -> bytes:
    """A script that runs `command` as its child, hands a TERM on to it, and ends as it did.

    `ended` is a file into which it writes how: {"code": ..., "signal": ...}. `before`, `beside` and `after` are lines that
    are run before the child, once it is started ($child), and after its end.
    """
    write = ""
    if ended is not None:
        write = (
            'if [ "$code" -gt 128 ]; then how="{\\"code\\": null, \\"signal\\": $((code - 128))}"\n'
            'else how="{\\"code\\": $code, \\"signal\\": null}"; fi\n'
            'echo "$how" >%s.new && mv %s.new %s\n'
        ) % ((shlex.quote(ended),) * 3)
    lines = [
        "#!/bin/sh",
        before,
        " ".join(word if isinstance(word, Shell) else shlex.quote(word) for word in command) + " </dev/null &",
        "child=$!",
        beside,
        "trap 'kill -TERM \"$child\" 2>/dev/null' TERM INT HUP",
        'wait "$child"; code=$?',
        # A trapped signal ends a `wait` early.
        'while kill -0 "$child" 2>/dev/null; do wait "$child"; code=$?; done',
        after,
        write,
        'exit "$code"',
    ]
    return ("\n".join(line for line in lines if line) + "\n").encode()


def exit_of(code: int, signal: int | None = None, why: str | None = None) -> dict[str, Any]:
    """How a server ended; a shell's code above 128 stands for a signal."""
    if signal is None and code > 128:
        signal = code - 128
    return {"code": None if signal else code, "signal": signal or None, "why": why}
