"""Questions to a syntax tree. What stands in a nested function is not what the code around it does, so it does not count."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence

__all__ = [
    "Block",
    "calls",
    "dotted",
    "enclosing",
    "functions",
    "returns",
    "same_tree",
    "statements",
    "without_docstring",
]

Block = Sequence[ast.stmt]
_DEFERRED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def calls(nodes: Iterable[ast.AST], names: Collection[str]) -> list[ast.Call]:
    """The calls of one of `names` (dotted, such as `self.verify`) that running `nodes` makes itself."""
    return [part for part in _executed(nodes) if isinstance(part, ast.Call) and dotted(part.func) in names]


def returns(nodes: Iterable[ast.AST]) -> list[ast.Return]:
    """The returns of the function that `nodes` stand in."""
    return [part for part in _executed(nodes) if isinstance(part, ast.Return)]


def dotted(node: ast.expr) -> str:
    """`self.draft_worker.draft` for that chain of attributes; empty for what is no name."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def functions(block: Block, names: Collection[str]) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions of these names that a class or module body defines."""
    return [part for part in block if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) and part.name in names]


def without_docstring(function: ast.FunctionDef) -> Block:
    """The body; never empty, because the docstring of a function that holds nothing else stays."""
    rest = function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body
    return rest or function.body


def enclosing(block: Block, line: int) -> tuple[Block, int] | None:
    """The innermost statement that covers `line`, as the block it stands in and its index there."""
    for index, statement in enumerate(block):
        if statement.lineno <= line <= (statement.end_lineno or statement.lineno):
            inner = (enclosing(below, line) for below in _blocks(statement))
            return next((found for found in inner if found is not None), (block, index))
    return None


def _blocks(node: ast.AST) -> Iterator[Block]:
    for _, value in ast.iter_fields(node):
        if isinstance(value, list) and value:
            if isinstance(value[0], ast.stmt):
                yield value
            elif isinstance(value[0], ast.ExceptHandler | ast.match_case):
                for arm in value:
                    yield arm.body


def _executed(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    for node in nodes:
        if not isinstance(node, _DEFERRED):
            yield node
            yield from _executed(ast.iter_child_nodes(node))


def statements(tree: ast.Module) -> Iterator[ast.AST]:
    """All statements, and what holds some (handlers, cases), in the order of `ast.walk`, which looks into expressions too."""
    todo: deque[ast.AST] = deque(tree.body)
    while todo:
        node = todo.popleft()
        yield node
        for name in ("body", "handlers", "orelse", "finalbody", "cases"):
            inner = getattr(node, name, None)
            if isinstance(inner, list):
                todo.extend(inner)


def same_tree(one: ast.AST, other: ast.AST, *, without: Collection[int] = ()) -> bool:
    """Whether the two are the same program, wherever it stands; statements of `one` that begin on a line of `without` do
    not count.

    As `ast.dump` of both would say, in a third of its time.
    """
    todo: list[tuple[object, object]] = [(one, other)]
    while todo:
        left, right = todo.pop()
        if type(left) is not type(right):
            return False
        if isinstance(left, ast.AST):
            todo += [(getattr(left, name, None), getattr(right, name, None)) for name in left._fields]
        elif isinstance(left, list):
            assert isinstance(right, list)  # noqa: S101 - they are of one type
            if left and isinstance(left[0], ast.stmt):
                left = [node for node in left if node.lineno not in without]
            if len(left) != len(right):
                return False
            todo += zip(left, right, strict=True)
        elif left is not right and repr(left) != repr(right):  # 0.0 is not -0.0, and a nan is itself
            return False
    return True
