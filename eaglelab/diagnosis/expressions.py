"""What a rule's file says in words of its own: conditions (Jinja in a sandbox, compiled once) and sentences with figures."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

import jinja2
from jinja2 import meta, nodes
from jinja2.environment import TemplateExpression
from jinja2.sandbox import ImmutableSandboxedEnvironment

from eaglelab.errors import EaglelabError
from eaglelab.templating import TemplateError

__all__ = ["filled", "holds", "names_in_condition", "names_in_sentence"]

_PLACE = re.compile(r"\{\{\s*([a-z]\w*)\s*\}\}")


def names_in_condition(condition: str) -> tuple[frozenset[str], frozenset[str]]:
    """All names in a condition, and those it cannot do without: not those that it tests with `is defined`.

    Raises TemplateError for wrong syntax.
    """
    try:
        tree = _environment().parse("{{ " + condition + " }}")
        _compiled(condition)
    except jinja2.TemplateError as error:
        raise TemplateError(f"`{condition}` is no condition: {error.message}") from error
    names = frozenset(meta.find_undeclared_variables(tree))
    asked = [test.node for test in tree.find_all(nodes.Test) if test.name in ("defined", "undefined")]
    return names, names - {node.name for node in asked if isinstance(node, nodes.Name)}


def names_in_sentence(text: str) -> frozenset[str]:
    """Every name in a sentence. Raises TemplateError for braces that hold no name."""
    if re.search(r"[{}]{2}", _PLACE.sub("", text)):
        raise TemplateError(f"`{text.strip()}` has braces that hold no name", hint="a figure is put in as {{ name }}")
    return frozenset(_PLACE.findall(text))


def holds(condition: str, values: Mapping[str, object]) -> bool:
    """Whether a condition is true of the values. Raises EaglelabError where it cannot be worked out of them."""
    try:
        return bool(_compiled(condition)(values))
    except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError) as error:
        raise EaglelabError(f"`{condition}` cannot be worked out: {error}") from error


def filled(text: str, words: Mapping[str, str]) -> str:
    """A sentence with its figures, on one line."""
    return " ".join(_PLACE.sub(lambda place: words[place[1]], text).split())


@lru_cache(maxsize=1)
def _environment() -> ImmutableSandboxedEnvironment:
    return ImmutableSandboxedEnvironment(undefined=jinja2.StrictUndefined, autoescape=False)


@lru_cache(maxsize=512)
def _compiled(condition: str) -> TemplateExpression:
    return _environment().compile_expression(condition, undefined_to_none=False)
