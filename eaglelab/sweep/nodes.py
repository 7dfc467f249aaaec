"""The nodes that the jobs of one sweep ran on: whether they are equal, and which still have to measure the reference."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

from eaglelab.sweep.plan import Load

__all__ = ["Nodes"]


class Nodes:
    """`reference` is the load that each of them has to measure, where there is more than one. Called from several threads."""

    def __init__(self, reference: Load) -> None:
        self.reference = reference
        self._lock = threading.Lock()
        self._gpus: dict[str, tuple[str, ...]] = {}
        self._home: str | None = None
        self._measured: dict[str, None] = {}
        self._asked: set[str] = set()

    @property
    def home(self) -> str | None:
        """The node that measured the reference first."""
        return self._home

    def see(self, node: str, gpus: Sequence[str]) -> str | None:
        """Takes note of a node and its GPUs (one a line of text). What tells it from the one seen first; None: nothing.

        How many GPUs a job sees is its reservation's business: only which kinds there are is compared.
        """
        with self._lock:
            kinds = tuple(sorted(set(gpus)))
            first = next(iter(self._gpus), None)
            if first is None or self._gpus[first] == kinds:
                self._gpus.setdefault(node, kinds)
                return None
            return f"{node} has {_words(kinds)}, {first} has {_words(self._gpus[first])}"

    def measured(self, load: Load, node: str) -> list[Load]:
        """What is to be measured because this load was, on that node: the reference on every node with figures that lacks it.

        Nothing is asked for before the reference itself has its node: it may run on one of the others.
        """
        with self._lock:
            self._measured[node] = None
            if load.points == self.reference.points:
                self._asked.add(node)
                self._home = self._home or node
            if self._home is None:
                return []
            missing = [name for name in self._measured if name not in self._asked]
            self._asked.update(missing)
            return [replace(self.reference, on=name, why=f"the reference on {name}") for name in missing]


def _words(kinds: Sequence[str]) -> str:
    return " / ".join(kinds) or "no GPU that nvidia-smi names"
