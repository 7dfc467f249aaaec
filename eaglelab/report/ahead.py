"""Loads the libraries that a report is drawn with, while there is nothing else to do."""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import cache
from importlib import import_module

__all__ = ["LIBRARIES", "load_ahead"]

LIBRARIES = ("jinja2", "matplotlib.figure", "matplotlib.backends.backend_svg")
"""Of others only: modules of one package that two threads import in different order may see each other half made."""


@cache
def load_ahead() -> threading.Thread:
    """Begin once a process, in the background: 0.4 s of the end of a run are spent while a server loads.

    Where a library is missing, or cannot be loaded, whoever needs it will say so.
    """
    thread = threading.Thread(target=_load, name="load-ahead", daemon=True)
    thread.start()
    return thread


def _load() -> None:
    for name in LIBRARIES:
        with suppress(Exception):
            import_module(name)
