"""Finds the lines of a worker that a patch is about: by syntax tree, never by line number or release.

Phase boundaries lie between the top-level statements of the decode branch, so a call that sits deep inside `with`, `if` or
`for` is timed with the whole statement around it.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from eaglelab.patching.source import Source
from eaglelab.patching.spec import AFTER, PatchSpec, Statement

__all__ = ["Site", "locate"]

NO_NAME = "None"
Blocks = Sequence[ast.stmt]


@dataclass(frozen=True)
class Site:
    """Where a patch goes in one file: the line before which the text of each place is inserted, and the names for it."""

    worker_class: str
    entry: str
    batch: str
    bound: str
    lines: dict[str, int]
    notes: tuple[str, ...]


def locate(source: Source, spec: PatchSpec) -> Site:
    """Raises PatchRefused with the lines looked at where the file does not have the shape that `spec` describes."""
    worker, entry = _entry(source, spec)
    branch = _branch(source, entry.body, spec.branch)
    found = _landmarks(source, branch, spec)
    last = _only_return(source, branch)
    start = entry.body[1:] if ast.get_docstring(entry, clean=False) is not None else entry.body
    before: dict[str, ast.stmt] = {
        "start of function": start[0],
        "start of branch": branch[0],
        "before return": last,
    }
    for name, index in found.items():
        if branch[index] is last:
            raise source.refuse(f"the {name} statement is the return itself", [last.lineno])
        before[AFTER + name] = branch[index + 1]
    missing = [name for name in spec.statements if name not in found]
    return Site(
        worker_class=worker.name,
        entry=entry.name,
        batch=_batch(source, entry),
        bound=_bound(branch, found, spec),
        lines={
            "after imports": _after_imports(source),
            **{place: _first_line(source, statement) for place, statement in before.items()},
        },
        notes=tuple(f"no {name} statement: that phase ends at the return" for name in missing),
    )


def _entry(source: Source, spec: PatchSpec) -> tuple[ast.ClassDef, ast.FunctionDef]:
    methods = [
        (worker, method)
        for worker in ast.walk(source.tree)
        if isinstance(worker, ast.ClassDef)
        for method in worker.body
        if isinstance(method, ast.FunctionDef) and method.name in spec.entry
    ]
    deciding = [(worker, method) for worker, method in methods if _calls(method, [spec.branch])]
    if not methods:
        raise source.refuse(f"no class defines {' or '.join(spec.entry)}", [])
    if len(deciding) != 1:
        count = "several methods call" if deciding else "the entry never calls"
        lines = [method.lineno for _, method in deciding or methods]
        raise source.refuse(f"{count} {spec.branch}, which tells the decode branch", lines)
    worker, method = deciding[0]
    calls = _calls(method, [spec.branch])
    if len(calls) != 1:
        raise source.refuse(f"{method.name} calls {spec.branch} {len(calls)} times", [call.lineno for call in calls])
    return worker, method


def _branch(source: Source, block: Blocks, call: str) -> Blocks:
    """The arm of the `if` chain that makes the call; without a chain, what follows the last early return."""
    [holder] = [statement for statement in block if _calls(statement, [call])]
    if isinstance(holder, ast.If):
        for arm in (holder.body, holder.orelse):
            if any(_calls(statement, [call]) for statement in arm):
                chained = len(arm) == 1 and isinstance(arm[0], ast.If)
                return _branch(source, arm, call) if chained else arm
        raise source.refuse(f"{call} is called in the test of an if", [holder.lineno])
    start = 0
    for index, statement in enumerate(block[: block.index(holder)]):
        if list(_returns(statement)):
            start = index + 1
    return block[start:]


def _landmarks(source: Source, branch: Blocks, spec: PatchSpec) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, wanted in spec.statements.items():
        index = next((index for index, statement in enumerate(branch) if _calls(statement, wanted.calls)), None)
        if index is not None:
            found[name] = index
        elif not wanted.optional:
            reason = f"nothing in the decode branch calls {' or '.join(wanted.calls)} ({name})"
            raise source.refuse(reason, [statement.lineno for statement in branch])
    for (name, index), (after, later) in zip(found.items(), list(found.items())[1:], strict=False):
        if later <= index:
            how = "is the same statement as" if later == index else "stands before"
            raise source.refuse(f"{after} {how} {name}", sorted({branch[later].lineno, branch[index].lineno}))
    return found


def _only_return(source: Source, branch: Blocks) -> ast.stmt:
    lines = [statement.lineno for block in branch for statement in _returns(block)]
    if not isinstance(branch[-1], ast.Return):
        raise source.refuse("the decode branch does not end with a return", [branch[-1].lineno])
    if len(lines) > 1:
        raise source.refuse("the decode branch returns in several places", lines)
    return branch[-1]


def _batch(source: Source, entry: ast.FunctionDef) -> str:
    names = [argument.arg for argument in (*entry.args.posonlyargs, *entry.args.args)]
    if len(names) < 2:
        raise source.refuse(f"{entry.name} takes no batch", [entry.lineno])
    return names[1]


def _bound(branch: Blocks, found: dict[str, int], spec: PatchSpec) -> str:
    """The name for `{bound}`: a preferred one, or the only one that the statement binds, or None."""
    for name, index in found.items():
        wanted = spec.statements[name]
        if wanted.binds:
            names = list(_bindings(branch[index], wanted))
            preferred = [name for name in wanted.binds if name in names]
            return (preferred or (names if len(names) == 1 else [NO_NAME]))[0]
    return NO_NAME


def _bindings(statement: ast.stmt, wanted: Statement) -> Iterator[str]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value and _calls(node.value, wanted.calls):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for part in ast.walk(target):
                    if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                        yield part.id


def _after_imports(source: Source) -> int:
    """The first line after the first run of imports: early enough for every use, late enough for `__future__`."""
    seen = False
    for statement in source.tree.body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            seen = True
        elif seen:
            return _first_line(source, statement)
    raise source.refuse("the module has no imports with something after them", [1])


def _first_line(source: Source, statement: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    number = min([statement.lineno, *(decorator.lineno for decorator in decorators)])
    if number == statement.lineno and source.line(number)[: statement.col_offset].strip():
        raise source.refuse("a statement that needs a line of its own shares one", [number])
    return number


def _calls(node: ast.AST, names: Collection[str]) -> list[ast.Call]:
    return [part for part in ast.walk(node) if isinstance(part, ast.Call) and _dotted(part.func) in names]


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _returns(node: ast.AST) -> Iterator[ast.Return]:
    """The returns of the function that `node` stands in, without those of functions defined in it."""
    if isinstance(node, ast.Return):
        yield node
    elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
        for child in ast.iter_child_nodes(node):
            yield from _returns(child)
