"""What the entry function of a worker expects from the methods it calls, read off its own source. Pure."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from .spec import ENTRIES
from .stubs import Stub

__all__ = ["bound_names", "entry_name", "source_of", "values_for"]


def entry_name(worker_type: type) -> str:
    """Which of the two names the entry function of a worker class has (inherited counts).

    Raises:
        AttributeError: neither.
    """
    for name in ENTRIES:
        if any(name in vars(parent) for parent in worker_type.__mro__):
            return name
    raise AttributeError(f"class {worker_type.__name__} has none of the entry functions {', '.join(ENTRIES)}")


def source_of(worker_type: type, entry: str) -> str:
    """The entry's source, dedented."""
    return textwrap.dedent(inspect.getsource(getattr(worker_type, entry)))


@lru_cache(maxsize=16)
def bound_names(entry: str, method: str) -> tuple[str, ...]:
    """The names that the entry's source binds the result of `self.<method>(...)` to; one for a single name.

    Releases return tuples of different lengths from the same method, and the entry itself says which.
    """
    for node in ast.walk(ast.parse(entry)):
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or not isinstance(node.value, ast.Call):
            continue
        if ast.unparse(node.value.func) != f"self.{method}":
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        parts: Iterable[ast.expr] = target.elts if isinstance(target, ast.Tuple) else (target,)
        return tuple(ast.unparse(part).rpartition(".")[2] for part in parts)
    return ()


def values_for(names: tuple[str, ...], known: dict[str, Any]) -> Any:
    """One value a name, as a tuple where the entry unpacks one; a stub where `known` has none."""
    values = tuple(known.get(name, Stub()) for name in names)
    return values[0] if len(values) == 1 else values
