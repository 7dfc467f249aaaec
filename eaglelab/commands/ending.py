"""The end of the process: with the exit code that its command has decided, whatever its threads and its readers are at.

At its end Python stops each thread where it stands. One that is loading a library in C++ or Rust just then, ahead of its use,
leaves that half made, and what such a library does when the process exits can be SIGABRT. And Python ends with 120 where
it cannot write the last of stdout. So the process is left before Python comes to either.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys

from invoke.program import Program

__all__ = ["end_with"]


def end_with(code: int | None) -> None:
    """The process is to end with this exit code; None while a command is at work, which has not decided yet.

    Nothing ends at once: Invoke may have another command to run. And nothing is decided for a process that is not Invoke's
    own, such as that of a test.
    """
    atexit.unregister(_leave)
    if code is not None and isinstance(getattr(sys.modules["__main__"], "program", None), Program):
        atexit.register(_leave, code)  # the last to be registered, and so the first to be called


def _leave(code: int) -> None:
    """Python has waited by now for the threads that want that; those that are left may be cut off."""
    atexit.unregister(_leave)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):  # nobody reads it any more, or it was closed
                stream.flush()
    os._exit(code)
