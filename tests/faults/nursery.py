"""Controllers at the price of a fork: a process that has imported the product once and has run nothing of it.

`Nursery` is the harness's side. Run as a script, this is the other: a request a line (JSON) on stdin, and for each the pid
of the controller and then, once it has ended, its exit code (negative: the signal) on stdout.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Done", "Nursery"]

_WHERE = signal.SIGUSR2
_TOLD_S = 0.5


@dataclass(frozen=True)
class Done:
    """A command that has ended, or (`hung`) was ended by the harness."""

    code: int
    out: str
    err: str
    seconds: float
    hung: bool = False


class Nursery:
    """One controller at a time, each a process of its own in a session of its own."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self._folder = folder
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(env), cwd=folder
        )

    def run(self, words: Sequence[str], folder: Path, seconds: float, point: Path | None = None) -> Done:
        """`invoke WORDS` in `folder`, with the faults of a point built in if one is given."""
        out, err = self._folder / "out", self._folder / "err"
        request = {
            "words": list(words),
            "folder": str(folder),
            "point": str(point or ""),
            "out": str(out),
            "err": str(err),
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        began = time.monotonic()
        pid, hung = int(self._line(seconds) or 0), False
        code = self._line(seconds)
        if code is None:
            hung = True
            os.kill(pid, _WHERE)  # it writes down at what each of its threads is
            time.sleep(_TOLD_S)
            os.kill(pid, signal.SIGKILL)
            code = self._line(seconds)
        texts = [path.read_text(errors="replace") for path in (out, err)]
        return Done(int(code or 0), texts[0], texts[1], time.monotonic() - began, hung)

    def _line(self, seconds: float) -> str | None:
        """Unbuffered, so that `select` says whether there is more."""
        assert self._process.stdout is not None
        line = b""
        while not line.endswith(b"\n"):
            if not select.select([self._process.stdout], [], [], seconds)[0]:
                return None
            piece = os.read(self._process.stdout.fileno(), 1)
            if not piece:
                raise AssertionError("the nursery of controllers is gone")
            line += piece
        return line.decode()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def _become(request: dict[str, Any]) -> None:
    """In the child: what a shell would have set up."""
    os.setsid()
    for target, path, flags in ((0, os.devnull, os.O_RDONLY), (1, request["out"], 0o1101), (2, request["err"], 0o1101)):
        os.dup2(os.open(path, flags, 0o600), target)
    os.chdir(request["folder"])
    faulthandler.register(_WHERE, file=2, all_threads=True)


def main() -> None:
    global program  # as in Invoke's own script: by that a command knows that it may end the process
    program = importlib.import_module("invoke.main").program
    driver = importlib.import_module("driver")
    for name in ("remote.ssh", "commands.play", "commands.bench", "commands.look", "commands.outcome"):
        importlib.import_module(f"eaglelab.{name}")
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _become(request)
            if request["point"]:
                driver.main(request["point"], request["words"])
            else:
                program.run(["invoke", *request["words"]])
            sys.exit()
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
