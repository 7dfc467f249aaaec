"""What the lab host runs in place of SGLang's launcher: a server on a simulated GPU.

The folder is copied to the lab host as the package `eaglelab_standin`. Only the standard library (and, where the
interpreter has it, setproctitle) is used: nothing else of this project is importable there.
"""

from __future__ import annotations

__all__: list[str] = []
