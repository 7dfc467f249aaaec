"""Finds the decode branch of a worker and the phases in it: by syntax tree, never by line number or release.

Phase boundaries lie between the top-level statements of the decode branch, so a call that sits deep inside `with`, `if` or
`for` is timed with the whole statement around it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from eaglelab.patching.place import NO_NAME
from eaglelab.patching.source import Source
from eaglelab.patching.spec import PatchSpec, Statement
from eaglelab.patching.tree import Block, calls, dotted, functions, returns, statements, without_docstring

__all__ = ["Site", "has_no_entry", "locate"]


@dataclass(frozen=True)
class Site:
    """The entry of a worker taken apart.

    `found` are the indices of the landmarks in `branch`, in their order; the last statement of `branch` is its only
    return. `batch` and `bound` are the names that `{batch}` and `{bound}` stand for; `beside` are all names that the
    same result is bound to.
    """

    worker: ast.ClassDef
    entry: ast.FunctionDef
    branch: Block = field(repr=False)
    found: dict[str, int]
    batch: str
    bound: str
    beside: tuple[str, ...]

    def statement(self, place: str) -> ast.stmt | None:
        """What a text for this place of the entry goes before; None where the landmark it follows is missing."""
        fixed = {
            "start of function": without_docstring(self.entry)[0],
            "start of branch": self.branch[0],
            "before return": self.branch[-1],
        }
        if place in fixed:
            return fixed[place]
        index = self.found.get(place.removeprefix("after "))
        return None if index is None else self.branch[index + 1]


def has_no_entry(source: Source, spec: PatchSpec) -> bool:
    """True for a file whose classes leave the entry to a base class, which stands in another file."""
    named = any(functions(worker.body, spec.entry) for worker in _classes(source))
    calling = (isinstance(node, ast.Call) and dotted(node.func) == spec.branch for node in ast.walk(source.tree))
    return not named and not any(calling)


def locate(source: Source, spec: PatchSpec) -> Site:
    """Raises PatchRefused with the lines looked at where the file does not have the shape that `spec` describes."""
    worker, entry = _entry(source, spec)
    branch = _branch(source, entry.body, spec.branch)
    found = _landmarks(source, branch, spec)
    last = _only_return(source, branch)
    for name, index in found.items():
        if branch[index] is last:
            raise source.refuse(f"the {name} statement is the return itself", [last.lineno])
    return Site(worker, entry, branch, found, _batch(source, entry), *_bound(branch, found, spec))


def _classes(source: Source) -> list[ast.ClassDef]:
    return [node for node in statements(source.tree) if isinstance(node, ast.ClassDef)]


def _entry(source: Source, spec: PatchSpec) -> tuple[ast.ClassDef, ast.FunctionDef]:
    methods = [(worker, method) for worker in _classes(source) for method in functions(worker.body, spec.entry)]
    deciding = [(worker, method) for worker, method in methods if calls(method.body, [spec.branch])]
    if not methods:
        wanted = " or ".join(target.path for target in spec.targets[:2])
        hint = f"this is no worker that the patch knows: it is made for {wanted} of a release"
        raise source.refuse(f"no class defines {' or '.join(spec.entry)}", [], hint=hint)
    if len(deciding) != 1:
        count = "several methods call" if deciding else "the entry never calls"
        lines = [method.lineno for _, method in deciding or methods]
        raise source.refuse(f"{count} {spec.branch}, which tells the decode branch", lines)
    worker, method = deciding[0]
    found = calls(method.body, [spec.branch])
    if len(found) != 1:
        raise source.refuse(f"{method.name} calls {spec.branch} {len(found)} times", [call.lineno for call in found])
    if not isinstance(method, ast.FunctionDef):
        raise source.refuse(f"{method.name} is async: other cycles could run between its phases", [method.lineno])
    return worker, method


def _branch(source: Source, block: Block, call: str) -> Block:
    """The arm of the `if` chain that makes the call; without a chain, what follows the last early return."""
    [holder] = [statement for statement in block if calls([statement], [call])]
    if isinstance(holder, ast.If):
        for arm in (holder.body, holder.orelse):
            if calls(arm, [call]):
                chained = len(arm) == 1 and isinstance(arm[0], ast.If)
                return _branch(source, arm, call) if chained else arm
        raise source.refuse(f"{call} is called in the test of an if", [holder.lineno])
    start = 0
    for index, statement in enumerate(block[: block.index(holder)]):
        if returns([statement]):
            start = index + 1
    return block[start:]


def _landmarks(source: Source, branch: Block, spec: PatchSpec) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, wanted in spec.statements.items():
        indices = [index for index, statement in enumerate(branch) if calls([statement], wanted.calls)]
        if len(indices) > 1 and not wanted.repeats:
            lines = [branch[index].lineno for index in indices]
            raise source.refuse(f"several statements of the decode branch could be {name}", lines)
        if indices:
            found[name] = indices[0]
        elif not wanted.optional:
            reason = f"nothing in the decode branch calls {' or '.join(wanted.calls)} ({name})"
            raise source.refuse(reason, [statement.lineno for statement in branch])
    for (name, index), (after, later) in zip(found.items(), list(found.items())[1:], strict=False):
        if later <= index:
            how = "is the same statement as" if later == index else "stands before"
            raise source.refuse(f"{after} {how} {name}", sorted({branch[later].lineno, branch[index].lineno}))
    return found


def _only_return(source: Source, branch: Block) -> ast.stmt:
    lines = [statement.lineno for statement in returns(branch)]
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


def _bound(branch: Block, found: dict[str, int], spec: PatchSpec) -> tuple[str, tuple[str, ...]]:
    """The name for `{bound}`: a preferred one, or the only one that the statement binds, or None. And all of them."""
    for name, index in found.items():
        wanted = spec.statements[name]
        if wanted.binds:
            names = tuple(_bindings(branch[index], wanted))
            preferred = [name for name in wanted.binds if name in names]
            return (preferred or (names if len(names) == 1 else [NO_NAME]))[0], names
    return NO_NAME, ()


def _bindings(statement: ast.stmt, wanted: Statement) -> Iterator[str]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value and calls([node.value], wanted.calls):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for part in ast.walk(target):
                    if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                        yield part.id
