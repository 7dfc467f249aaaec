from __future__ import annotations

from types import SimpleNamespace

import pytest

from eaglelab.templating import TemplateError, condition, is_template, names_in, render

HOST = SimpleNamespace(name="sim", server=SimpleNamespace(port=30000), _secret="s")
VARIABLES = {"host": HOST, "steps": 2, "many": [1, 2], "text": "2", "result": {"ok": True, "items": 3}, "none": None}


@pytest.mark.parametrize(
    ("value", "rendered"),
    [
        ("plain", "plain"),
        (5, 5),
        ("{{ steps }}", 2),
        ("{{steps}}", 2),
        ("  {{ steps + 1 }}\n", 3),
        ("{{- steps -}}", 2),
        ("{{ text }}", "2"),
        ("{{ many }}", [1, 2]),
        ("{{ true }}", True),
        ("{{ none }}", None),
        ("{{ result.ok }}", True),
        ("{{ '{{ x }}' }}", "{{ x }}"),
        ("{{ missing | default(7) }}", 7),
        ("{{ steps }}{{ steps }}", "22"),
        ("K={{ steps }}", "K=2"),
        ("line\n{{ steps }}\n", "line\n2\n"),
        ("{% if steps > 1 %}yes{% endif %}", "yes"),
        ({"a": ["{{ steps }}", {"b": "{{ host.server.port }}"}]}, {"a": [2, {"b": 30000}]}),
        ({"{{ steps }}": 1}, {"{{ steps }}": 1}),
    ],
)
def test_a_single_expression_keeps_its_type_and_anything_else_is_text(value: object, rendered: object) -> None:
    result = render(value, VARIABLES)
    assert result == rendered
    assert type(result) is type(rendered)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{{ stepz }}", "'stepz' is undefined"),
        ("{{ [stepz] }}", "'stepz' is undefined"),
        ("{{ {'a': stepz} }}", "'stepz' is undefined"),
        ("K={{ stepz }}", "'stepz' is undefined"),
        ("{{ result.no }}", "has no attribute 'no'"),
        ("{{ steps / 0 }}", "division by zero"),
        ("{{ steps + text }}", "unsupported operand"),
        ("{{ steps + }}", "unexpected"),
        ("{{ many.append(3) }}", "access to attribute 'append'"),
        ("{{ host._secret }}", "access to attribute '_secret'"),
        ("{{ ''.__class__.__mro__ }}", "access to attribute '__class__'"),
        ("{{ range(10 ** 9) | length }}", "Range too big"),
    ],
)
def test_a_template_that_fails_or_leaves_the_sandbox_says_why(text: str, why: str) -> None:
    with pytest.raises(TemplateError, match="cannot be worked out") as failed:
        render(text, VARIABLES)
    assert why in failed.value.what
    assert VARIABLES["many"] == [1, 2]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("steps == 2", True),
        ("result.ok and steps > 2", False),
        ("missing is defined", False),
        ("many | length > 1", True),
        ("'}}' in text", False),
    ],
)
def test_a_condition_is_true_or_false(text: str, value: bool) -> None:
    assert condition(text, VARIABLES) is value


def test_a_condition_that_is_neither_is_refused() -> None:
    with pytest.raises(TemplateError, match="the condition `text` gives '2' and not true or false"):
        condition("text", VARIABLES)
    with pytest.raises(TemplateError, match="'missing' is undefined"):
        condition("missing", VARIABLES)


@pytest.mark.parametrize(
    ("text", "expression", "names"),
    [
        ("{{ a + b.c['d'] }} {{ range(3) }}", False, {"a", "b"}),
        ("{% set x = a %}{{ x }}{% if z %}{{ y }}{% endif %}", False, {"a", "y", "z"}),
        ("{{ a | default(b) }}", False, {"b"}),
        ("a is defined and a > b", True, {"b"}),
        ("a == '}}'", True, {"a"}),
        ("no templates", False, set()),
    ],
)
def test_the_names_that_a_template_needs_are_found(text: str, expression: bool, names: set[str]) -> None:
    assert names_in(text, expression=expression) == names


@pytest.mark.parametrize("text", ["a }} {{ b", "a b", "(a"])
def test_a_malformed_condition_is_refused(text: str) -> None:
    with pytest.raises(TemplateError, match="is not a valid template"):
        names_in(text, expression=True)


def test_a_template_is_found_at_any_depth() -> None:
    assert is_template({"a": [1, "{{ x }}"]})
    assert is_template("{% if x %}{% endif %}")
    assert not is_template({"{{ x }}": ["plain", 3, None]})
