"""The lines that the places of a patch come to in one file."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from eaglelab.patching.locate import Site
from eaglelab.patching.place import AFTER, IMPORTS, TEXT_PLACES, Place
from eaglelab.patching.source import Source
from eaglelab.patching.spec import PatchSpec
from eaglelab.patching.tree import enclosing, functions, without_docstring

__all__ = ["Anchor", "find_anchors"]


@dataclass(frozen=True)
class Anchor:
    """`code` goes before `line`, which counts from 1."""

    place: Place
    line: int
    code: str


def find_anchors(source: Source, spec: PatchSpec, site: Site) -> tuple[list[Anchor], list[str]]:
    """The anchors in the order of the places, and notes on what was left out.

    Raises PatchRefused with the lines looked at where a place that must be there is not.
    """
    anchors: list[Anchor] = []
    notes = [f"no {name} statement in the decode branch" for name in spec.statements if name not in site.found]
    for place in spec.places:
        if not _applies(place, site):
            continue
        function = _function(source, place, site)
        if function is None:
            notes.append(f"{site.worker.name} defines no {place.function}: nothing for '{place.name}'")
            continue
        code = _code(source, place, site, function)
        anchors += [Anchor(place, line, code) for line in _lines(source, place, site, function)]
    return anchors, notes


def _applies(place: Place, site: Site) -> bool:
    return (place.when is None or place.when in site.found) and (place.unless is None or place.unless not in site.found)


def _function(source: Source, place: Place, site: Site) -> ast.FunctionDef | None:
    if place.function is None:
        return site.entry
    found = [part for part in functions(site.worker.body, [place.function]) if isinstance(part, ast.FunctionDef)]
    if len(found) == 1:
        return found[0]
    if place.optional and not found:
        return None
    reason = f"{site.worker.name} defines {place.function} {len(found)} times, not once"
    raise source.refuse(reason, [part.lineno for part in found] or [site.worker.lineno])


def _lines(source: Source, place: Place, site: Site, function: ast.FunctionDef) -> Iterator[int]:
    if place.at == IMPORTS:
        yield _after_imports(source)
    elif place.at in TEXT_PLACES:
        yield from _around_text(source, place, function)
    elif function is not site.entry:
        yield _first_line(source, without_docstring(function)[0])
    else:
        statement = site.statement(place.at)
        if statement is not None:
            yield _first_line(source, statement)


def _code(source: Source, place: Place, site: Site, function: ast.FunctionDef) -> str:
    args = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)][1:]
    try:
        return place.filled(batch=site.batch, bound=site.bound, beside=site.beside, args=args)
    except IndexError:
        reason = f"{function.name} has not the parameters that '{place.name}' names"
        raise source.refuse(reason, [function.lineno]) from None


def _around_text(source: Source, place: Place, function: ast.FunctionDef) -> Iterator[int]:
    wanted = (place.text or "").encode()
    body = range(function.body[0].lineno, (function.end_lineno or function.lineno) + 1)
    numbers = [number for number in body if wanted in source.line(number)]
    if len(numbers) != place.count:
        reason = f"{place.text!r} stands in {len(numbers)} lines of {function.name}, not in {place.count}"
        raise source.refuse(reason, numbers or [function.lineno])
    for number in numbers:
        found = enclosing(function.body, number)
        if found is None:
            raise source.refuse(f"{place.text!r} is in no statement here", [number])
        block, index = found
        index += place.at.startswith(AFTER)
        if index == len(block):
            raise source.refuse(f"nothing in its block follows the statement of {place.text!r}", [number])
        yield _first_line(source, block[index])


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
