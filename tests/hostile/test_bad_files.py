"""Files that ask for too much, and values that no machine could be given."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from eaglelab.errors import InputError
from eaglelab.inventory import load_inventory
from eaglelab.templating import TemplateError, condition, names_in, render
from eaglelab.yamlfile import load

BOMB = "\n".join(
    ["a0: &a0 {x: 1, y: 1}"] + [f"a{n}: &a{n} {{x: *a{n - 1}, y: *a{n - 1}}}" for n in range(1, 40)] + ["hosts: *a39"]
)
MERGES = "\n".join(["a0: &a0 {k0: 1}"] + [f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}], k{n}: 1}}" for n in range(1, 40)])


@pytest.mark.parametrize("text", [BOMB, MERGES, BOMB.replace("{x: ", "[").replace(", y: ", ", ").replace("}", "]")])
def test_aliases_that_stand_for_more_than_fits_are_refused_at_once(tmp_path: Path, text: str) -> None:
    (tmp_path / "inventory.yaml").write_text(text)
    begin = time.process_time()
    with pytest.raises(InputError, match="its aliases stand for more than 100000 values"):
        load_inventory(tmp_path / "inventory.yaml")
    assert time.process_time() - begin < 2


def test_a_few_aliases_are_fine(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text("a: &a {x: 1}\nb: {<<: *a, y: *a}\n")
    assert load(tmp_path / "f.yaml").value["b"] == {"x": 1, "y": {"x": 1}}


@pytest.mark.parametrize(
    "text",
    ["!!python/object/apply:os.system [id]", "!!python/name:os.system", "!!python/tuple [1]", "!own x", "a: 1\na: 2"],
)
def test_yaml_makes_no_objects_and_drops_no_keys(tmp_path: Path, text: str) -> None:
    (tmp_path / "f.yaml").write_text(text)
    with pytest.raises(InputError):
        load(tmp_path / "f.yaml")


@pytest.mark.parametrize("odd", ["\\0", "a\\0b", "\\ud800", "\\udc80"])
@pytest.mark.parametrize(
    "line",
    [
        'address: "{}"',
        'user: "{}"',
        'key: "{}"',
        'python: "{}"',
        'log: "{}"',
        'server: {{model_path: "{}"}}',
        'server: {{env: {{A: "{}"}}}}',
        'server: {{flags: {{chat-template: "{}"}}}}',
        'server: {{flags: {{served: ["a", "{}"]}}}}',
        'server: {{speculative: {{draft_model_path: "{}"}}}}',
    ],
)
def test_what_no_command_line_can_hold_is_refused_with_its_line(tmp_path: Path, line: str, odd: str) -> None:
    (tmp_path / "inventory.yaml").write_text(
        f"hosts:\n  a:\n    address: 127.0.0.1\n    {line.format(odd)}\n".replace(
            "    address: 127.0.0.1\n", "" if line.startswith("address") else "    address: 127.0.0.1\n"
        )
    )
    with pytest.raises(InputError, match="no command line can hold") as refused:
        load_inventory(tmp_path / "inventory.yaml")
    assert ":3" in refused.value.where or ":4" in refused.value.where
    str(refused.value).encode()  # fit to be printed


@pytest.mark.parametrize(
    "text",
    [
        "''.__class__",
        "''.__class__.__mro__[1].__subclasses__()",
        "''['__class__']",
        "'' | attr('__class__')",
        "x.append(1)",
        "x.__init__.__globals__",
        "self.__dict__",
        "cycler.__init__.__globals__",
        "lipsum()",
        "'{0.__class__}'.format(1)",
        "'a' * 10**9",
        "[0] * 10**9",
        "10**9 * 'a'",
        "10**10**9",
        "(10**64)**64",
        "range(10**9) | list",
        "'%1000000000d' % 1",
        "'a'.ljust(10**9)",
        "'a' | center(10**9)",
        "'{:1000000000}'.format(1)",
        "('a' * 100000) * 100000",
    ],
)
def test_an_expression_reaches_nothing_outside_and_stays_small(text: str) -> None:
    begin = time.process_time()
    with pytest.raises(TemplateError):
        render(f"{{{{ {text} }}}}", {"x": [1]})
    with pytest.raises(TemplateError):
        condition(text, {"x": [1]})
    assert time.process_time() - begin < 1


@pytest.mark.parametrize(
    "text",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
        "{% include 'x' %}",
        "{% import 'x' as y %}",
    ],
)
def test_a_template_cannot_run_for_ever(text: str) -> None:
    with pytest.raises(TemplateError):
        render(text, {})


def test_a_loop_is_named_before_anything_runs() -> None:
    with pytest.raises(TemplateError, match="has a loop or a macro"):
        names_in("{% for a in b %}{% endfor %}")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{ 3 * 4 }}", 12),
        ("{{ 'ab' * 3 }}", "ababab"),
        ("{{ 2**10 }}", 1024),
        ("{{ 7 % 4 }}", 3),
        ("{{ 1.5 * 2 }}", 3.0),
        ("{{ x * 2 }}", [1, 1]),
    ],
)
def test_sums_work_as_ever(text: str, value: Any) -> None:
    assert render(text, {"x": [1]}) == value
