"""A load that somebody else's client makes: a command of this host, its output kept, its end noted."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import Any, Callable

__all__ = ["Command"]


class Command:
    """Runs `command` to its end, in the process group of its caller. It is started at once; OSError if it cannot be.

    `env` is added to what it inherits. Its output goes to the new file `out`. The end is {"reason": "finished"} with
    `code` or `signal`, and `seconds` of wall time.
    """

    def __init__(
        self, command: list[str], env: dict[str, str], cwd: str, out: str, emit: Callable[[dict[str, Any]], None]
    ) -> None:
        self._emit = emit
        self._began = time.monotonic()
        os.umask(0o077)  # its own files lie beside ours
        with open(out, "wb") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(os.environ, **env),
                cwd=cwd,
            )
        # Only now, since the command would inherit it. Whoever ends the group means the command; its end is noted here.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def run(self) -> None:
        code = self._process.wait()
        self._emit(
            {
                "end": {
                    "reason": "finished",
                    "code": code if code >= 0 else None,
                    "signal": -code if code < 0 else None,
                    "seconds": round(time.monotonic() - self._began, 3),
                }
            }
        )
