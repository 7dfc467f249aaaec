"""Templates in playbooks: text in, values out, and which variables a text needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eaglelab.errors import EaglelabError

__all__ = ["TemplateError", "condition", "is_template", "names_in", "render"]


class TemplateError(EaglelabError):
    """A template is malformed, or fails with the variables that it got."""


def render(value: Any, variables: Mapping[str, Any]) -> Any:
    """`value` with every template in it filled in, at any depth of lists and mappings (their keys stay).

    A text that is one expression, such as `"{{ steps }}"`, becomes that expression's value with its type.
    Raises TemplateError.
    """
    if isinstance(value, str):
        if not is_template(value):
            return value
        from eaglelab.expressions import render_text  # Jinja takes a while to import, and not every text needs it

        return render_text(value, variables)
    if isinstance(value, Mapping):
        return {key: render(item, variables) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [render(item, variables) for item in value]
    return value


def condition(text: str, variables: Mapping[str, Any]) -> bool:
    """The value of an expression (written without braces) that must be true or false. Raises TemplateError."""
    from eaglelab.expressions import evaluate

    value = evaluate(text, variables)
    if not isinstance(value, bool):
        hint = f"compare it, such as `{text} == ...`, or test it, such as `{text} is defined`"
        raise TemplateError(f"the condition `{text}` gives {value!r} and not true or false", hint=hint)
    return value


def is_template(value: Any) -> bool:
    """Whether `value` has a template anywhere in it."""
    if isinstance(value, str):
        return any(mark in value for mark in ("{{", "{%", "{#"))
    if isinstance(value, Mapping):
        return any(is_template(item) for item in value.values())
    return isinstance(value, list | tuple) and any(is_template(item) for item in value)


def names_in(text: str, *, expression: bool = False) -> frozenset[str]:
    """Variables that `text` cannot do without; those it tests with `default` or `is defined` are left out.

    `expression`: the text is a bare expression, as in `when`. Raises TemplateError for wrong syntax.
    """
    if not (expression or is_template(text)):
        return frozenset()
    from eaglelab import expressions

    return expressions.names_in(text, expression=expression)
