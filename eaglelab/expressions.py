"""What stands between the braces of a template: worked out in a sandbox of Jinja. The only module that imports it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jinja2
from jinja2 import meta, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from eaglelab.templating import TemplateError

__all__ = ["evaluate", "names_in", "render_text"]


def names_in(text: str, *, expression: bool = False) -> frozenset[str]:
    """Variables that `text` cannot do without; those it tests with `default` or `is defined` are left out.

    `expression`: the text is a bare expression, as in `when`. Raises TemplateError for wrong syntax.
    """
    environment = _environment()
    try:
        if expression:
            environment.compile_expression(text)
        tree = environment.parse(f"{{{{ {text} }}}}" if expression else text)
        _refuse_loops(tree, text)
        needed = meta.find_undeclared_variables(tree)
    except jinja2.TemplateError as error:
        raise TemplateError(f"`{text.strip()}` is not a valid template: {error.message}") from error
    return frozenset(needed - _guarded(tree))


class _Bounded(ImmutableSandboxedEnvironment):
    """A sandbox in which a few characters cannot ask for all of the machine's memory or time."""

    intercepted_binops = frozenset(["*", "**", "%"])

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" and (abs(left) > _MOST or abs(right) > _MOST_POWER):
            raise OverflowError("this power is too large")
        if operator == "*" and not (isinstance(left, int | float) and isinstance(right, int | float)):
            times, value = (left, right) if isinstance(left, int) else (right, left)
            if times * len(value) > _MOST:
                raise OverflowError(f"this would have more than {_MOST} parts")
        if operator == "%" and isinstance(left, str):
            raise TypeError("text is put together with ~ and not with %")
        return super().call_binop(context, operator, left, right)

    def wrap_str_format(self, _value: Any) -> None:
        """Jinja would let `format` through in a form of its own."""

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Methods that make text as wide as a number says are left out."""
        return attr not in _WIDENING and super().is_safe_attribute(obj, attr, value)


_MOST, _MOST_POWER = 100_000, 64
_WIDENING = frozenset({"center", "expandtabs", "format", "format_map", "ljust", "rjust", "to_bytes", "zfill"})
_LEFT_OUT = ("batch", "center", "format", "indent", "slice", "wordwrap")


def _environment() -> ImmutableSandboxedEnvironment:
    environment = _Bounded(undefined=jinja2.StrictUndefined, autoescape=False, keep_trailing_newline=True)
    for name in _LEFT_OUT:
        del environment.filters[name]
    environment.globals = {"range": environment.globals["range"], "dict": dict}
    return environment


def render_text(text: str, variables: Mapping[str, Any]) -> Any:
    """A text with its templates filled in; one that is a single expression becomes its value. Raises TemplateError."""
    expression = _single_expression(text)
    if expression is not None:
        return evaluate(expression, variables)
    with _Failures(text):
        environment = _environment()
        tree = environment.parse(text)
        _refuse_loops(tree, text)
        return environment.from_string(tree).render(dict(variables))


def evaluate(expression: str, variables: Mapping[str, Any]) -> Any:
    """The value of a bare expression. Raises TemplateError."""
    with _Failures(expression):
        value = _environment().compile_expression(expression, undefined_to_none=False)(dict(variables))
        _refuse_undefined(value)
        return value


def _single_expression(text: str) -> str | None:
    """What stands between the braces, where the whole text is one `{{ ... }}`."""
    with _Failures(text):
        tokens = list(_environment().lex(text.strip()))
    kinds = [kind for _, kind, _ in tokens]
    if kinds[0] != "variable_begin" or kinds.count("variable_begin") != 1 or kinds[-1] != "variable_end":
        return None
    return "".join(value for _, _, value in tokens[1:-1])


def _refuse_undefined(value: Any) -> None:
    """Jinja returns what is not defined as a value; only its use fails."""
    if isinstance(value, jinja2.Undefined):
        str(value)
    elif isinstance(value, Mapping):
        _refuse_undefined(list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            _refuse_undefined(item)


def _refuse_loops(tree: nodes.Template, text: str) -> None:
    """Loops in loops, and macros that call themselves, need not end."""
    if next(tree.find_all((nodes.For, nodes.Macro, nodes.CallBlock)), None) is not None:
        hint = "use filters, such as `{{ list | join(' ') }}`, or a `loop` of the playbook"
        raise TemplateError(f"`{text.strip()}` has a loop or a macro, which templates here cannot", hint=hint)


def _guarded(tree: nodes.Template) -> set[str]:
    tested = [node.node for node in tree.find_all(nodes.Test) if node.name in ("defined", "undefined")]
    tested += [node.node for node in tree.find_all(nodes.Filter) if node.name in ("default", "d") and node.node]
    return {node.name for node in tested if isinstance(node, nodes.Name)}


class _Failures:
    """Turns what an expression may raise into a TemplateError about `text`."""

    def __init__(self, text: str) -> None:
        self._text = text.strip()

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, (jinja2.TemplateError, ArithmeticError, LookupError, MemoryError, TypeError, ValueError)):
            raise TemplateError(f"`{self._text}` cannot be worked out: {error}") from error
