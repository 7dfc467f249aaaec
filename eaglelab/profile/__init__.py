"""Records, logs and benchmarks of a decode loop: parsed, summed up, put into words. Nothing here contacts a host."""

from __future__ import annotations

__all__: list[str] = []
