"""Everything that a playbook can name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eaglelab.actions.base import Action

__all__ = ["ACTIONS"]

_MODULES = MappingProxyType(
    {
        "doctor": "doctor",
        "plan": "plan",
        "check_owner": "serve",
        "backup": "patch",
        "patch": "patch",
        "check_server": "serve",
        "stop": "serve",
        "start": "serve",
        "wait": "wait",
        "same_node": "node",
        "generate": "generate",
        "measure": "measure",
        "check_bench_serving": "serving_client",
        "bench_serving": "bench_serving",
        "prove": "evidence",
        "fetch_logs": "evidence",
        "report": "evidence",
        "rollback": "undo",
        "fail": "undo",
    }
)
"""Which module has an action, under its name in capitals."""


class _Actions(Mapping[str, "Action"]):
    """Imports an action when it is asked for: all of them together take longer to import than a patch takes."""

    def __getitem__(self, name: str) -> Action:
        found: Action = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name.upper())
        return found

    def __contains__(self, name: object) -> bool:
        return name in _MODULES

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULES)

    def __len__(self) -> int:
        return len(_MODULES)


ACTIONS: Mapping[str, Action] = _Actions()
