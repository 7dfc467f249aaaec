"""The agent as one file: the modules of `eaglelab.remote.agent` joined, ready to be fed to a host's Python."""

from __future__ import annotations

import hashlib
import re
import threading
from functools import cache
from importlib import resources

__all__ = ["BOOTSTRAP", "agent_source", "beginning"]

_ORDER = (
    "kept",
    "wire",
    "processes",
    "lineage",
    "files",
    "attributes",
    "writing",
    "shapes",
    "state",
    "manifest",
    "contents",
    "links",
    "standing",
    "journal",
    "flocks",
    "lock",
    "tail",
    "keeper",
    "exchange",
    "outcome",
    "cost",
    "driver",
    "load_command",
    "load_process",
    "load",
    "record",
    "places",
    "ended",
    "marks",
    "launchers/contract",
    "launchers/process",
    "launchers/engine",
    "launchers/slurm_queue",
    "launchers/slurm_apart",
    "launchers/slurm",
    "launchers/image",
    "launchers/container",
    "launchers/systemd",
    "launchers/known",
    "server",
    "http",
    "checkup",
    "meanwhile",
    "package",
    "facts",
    "main",
)
_PACKAGE = "eaglelab.remote.agent"

_OWN_IMPORT = re.compile(
    rf"^from (?:__future__|{re.escape(_PACKAGE)}[.\w]*) import (?:\([^)]*\)|[^(\n]*)\n", re.MULTILINE
)
"""Parsing the modules would take longer than a host needs to compile them all."""

BOOTSTRAP = (
    "import sys;"
    'sys.version_info<(3,8) and sys.exit("EAGLELAB-PYTHON-TOO-OLD %d.%d"%sys.version_info[:2]);'
    'exec(compile(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())),"eaglelab-agent","exec"),{"__name__":"eaglelab_agent"})'
)
"""What the host's Python is started with (`python -I -S -c BOOTSTRAP`); it then reads a length and that much source: `beginning`.

It runs under any Python back to 2.7, so that one that is too old can say so."""


_JOINING = threading.Lock()


def agent_source() -> bytes:
    """Source of the agent: stdlib only, Python 3.8, ends by serving stdin and stdout. Whoever asks meanwhile waits for it."""
    with _JOINING:
        return _joined()


@cache
def _joined() -> bytes:
    parts = ["from __future__ import annotations\n"]
    parts += [_without_own_imports(name) for name in _ORDER]
    # Python takes longer to end than to answer, and its controller waits for that.
    parts.append("import os, sys\nserve(sys.stdin.buffer, sys.stdout.buffer, FRESH)\nsys.stdout.flush()\nos._exit(0)\n")
    return "\n".join(parts).encode()


def beginning(source: bytes) -> bytes:
    """Source of what runs first there: it has the agent of this source begin, from what the host keeps of it or anew."""
    digest = hashlib.sha256(source).hexdigest()
    return f"from __future__ import annotations\n{_without_own_imports('kept')}\nbegin({digest!r})\n".encode()


def _without_own_imports(name: str) -> str:
    """A module's text less its imports of its neighbours, whose names are in the same file here, and of __future__."""
    text = resources.files(_PACKAGE).joinpath(f"{name}.py").read_text(encoding="utf-8")
    return _OWN_IMPORT.sub(lambda found: "\n" * found[0].count("\n"), text)
