"""What a job of Slurm does for itself when its server has a place of its own: choose a port on its node, say what that
node is, and end once nobody asks its server for anything any more."""

from __future__ import annotations

import os
import shlex
from typing import Any, Callable, NamedTuple, Sequence

from eaglelab.remote.agent.files import read_bytes
from eaglelab.remote.agent.launchers.engine import Shell
from eaglelab.remote.agent.places import heartbeat
from eaglelab.remote.agent.state import StateFolder
from eaglelab.remote.agent.wire import AgentError

__all__ = ["NO_PORT", "Apart", "Told", "apart", "told"]

NO_PORT = 96
"""Exit code of a job that found no free port."""

_PORT_STEP = 1000
"""Jobs of one node differ in their numbers, so that two that start at the same moment do not choose the same port, whoever
submitted them; a port that somebody else listens on is passed over in steps of so many, round and round up to 65535."""

_CHOOSE_PORT = """
import socket, sys
first, job = int(sys.argv[1]), int(sys.argv[2])
for turn in range(65536 - first):
    port = first + (job % {ports} + turn * {ports}) % (65536 - first)
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        one.bind(("", port))
        print(port)
        break
    except OSError:
        pass
    finally:
        one.close()
"""

_PORT_LINES = """port=$({python} -I -S -c {choose} {first} "$SLURM_JOB_ID")
[ -n "$port" ] || {{ echo 'eaglelab: no port is free on this node'; exit {no_port}; }}
echo "$port" >{folder}/port.new && mv {folder}/port.new {folder}/port"""

_NODE_LINES = """nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader >{folder}/gpus.new 2>/dev/null
mv {folder}/gpus.new {folder}/gpus"""

_WATCH_LINES = """(
  trap 'kill "$nap" 2>/dev/null; exit' TERM
  last=; quiet=0
  while :; do
    sleep {pause} & nap=$!; wait "$nap"
    now=$(stat -L -c %Y.%s -- {log} {beat} 2>/dev/null)
    if [ "$now" = "$last" ]; then quiet=$((quiet + {pause})); else last=$now; quiet=0; fi
    if [ "$quiet" -ge {idle} ]; then
      echo {why} >{folder}/why
      echo eaglelab: {why}
      kill -TERM "$child"; sleep 30 & nap=$!; wait "$nap"; kill -KILL "$child"; exit
    fi
  done
) & watch=$!"""


class Apart(NamedTuple):
    """What is put into the job's script (see `shell_runner`), and the command with the port that the node chooses."""

    command: list[str]
    before: str
    beside: str
    after: str


class Told(NamedTuple):
    """What a job has said of itself: its port, its node's GPUs (one a line), why it ended itself."""

    port: int | None = None
    gpus: tuple[str, ...] = ()
    why: str | None = None


def apart(state: StateFolder, folder: str, command: Sequence[str], port: int, log: str, idle: float) -> Apart:
    """`port`: the first that may be chosen; `idle`: seconds without a sign of anybody after which the job ends itself.

    A sign is a log that grows, which the server's own requests and progress make it do, or an agent's heartbeat.
    """
    words = list(command)
    for at, word in enumerate(words[:-1]):
        if word == "--port":
            words[at + 1] = Shell('"$port"')
    quoted = shlex.quote(folder)
    before = [
        _PORT_LINES.format(
            python=shlex.quote(words[0]),
            choose=shlex.quote(_CHOOSE_PORT.format(ports=_PORT_STEP)),
            first=port,
            folder=quoted,
            no_port=NO_PORT,
        ),
        _NODE_LINES.format(folder=quoted),
    ]
    limit = max(int(idle), 1)
    why = "for %d s nobody has asked this server for anything, so its job ends and frees its GPUs" % limit
    watch = _WATCH_LINES.format(
        pause=max(1, min(15, limit // 4)),
        log=shlex.quote(log),
        beat=shlex.quote(heartbeat(state)),
        idle=limit,
        folder=quoted,
        why=shlex.quote(why),
    )
    return Apart(words, "\n".join(before), watch, 'kill "$watch" 2>/dev/null')


def told(state: StateFolder, record: dict[str, Any]) -> Told:
    """What the job of a record has written; on a shared file system that may be seen a moment later."""
    folder = os.path.join(state.folder, "launch", record["name"])
    port = _told_by(os.path.join(folder, "port"), lambda text: int(text) if text.isdigit() else None)
    gpus = _told_by(os.path.join(folder, "gpus"), lambda text: tuple(line.strip() for line in text.splitlines()))
    return Told(port, gpus or (), _told_by(os.path.join(folder, "why"), lambda text: text or None))


def _told_by(path: str, meaning: Callable[[str], Any]) -> Any:
    try:
        return meaning(read_bytes(path, os.O_NOFOLLOW).decode(errors="replace").strip())
    except AgentError:
        return None
