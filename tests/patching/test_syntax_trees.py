"""Questions to syntax trees that are asked often, against the slow way to answer them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from eaglelab.patching.tree import same_tree, statements


def parsable(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


FILES = sorted(Path(__file__).parents[1].glob("cases/patching/*/before.py"))
CASES = [text for file in FILES if parsable(text := file.read_bytes().decode(errors="replace"))]
NESTED = """
class A:
    def f(self):
        try:
            class B: pass
        except ValueError:
            class C: pass
        else:
            class D: pass
        finally:
            class E: pass
        with x:
            if y:
                class F: pass
            elif z:
                class G: pass
        match v:
            case 1:
                class H: pass
        async def g():
            async for i in j:
                class I: pass
"""


def same(one: str, other: str) -> bool:
    trees = ast.parse(one), ast.parse(other)
    found = same_tree(*trees)
    assert found == (ast.dump(trees[0]) == ast.dump(trees[1]))
    return found


def test_a_program_is_the_same_wherever_its_lines_stand() -> None:
    assert same("a = f(1, [2])\n", "\n\na = f(1,\n  [2])  # a remark\n")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a = 1", "a = 2"),
        ("a = 1", "a = True"),
        ("a = 1", "a = 1.0"),
        ("a = 0.0", "a = -0.0"),
        ("a = '1'", "a = b'1'"),
        ("a", "b"),
        ("f(a)", "f(a, b)"),
        ("f(a, b)", "f(a)"),
        ("f(*a)", "f(a)"),
        ("x = 1\ny = 2", "x = 1"),
        ("def f(): pass", "async def f(): pass"),
        ("def f(a=None): pass", "def f(a): pass"),
        ("if a:\n    b\nelse:\n    c", "if a:\n    b"),
        ("{**a}", "{1: a}"),
    ],
)
def test_another_program_is_not_the_same(one: str, other: str) -> None:
    assert not same(one, other)
    assert not same(other, one)


def test_statements_on_the_lines_to_leave_out_do_not_count() -> None:
    one, other = ast.parse("a\nif b:\n    c\n    d\n"), ast.parse("a\nif b:\n    c\n")
    assert same_tree(one, other, without={4})
    assert not same_tree(one, other)
    assert not same_tree(one, other, without={3})
    assert not same_tree(other, one, without={3})


def test_a_line_in_the_middle_of_a_statement_takes_nothing_out() -> None:
    assert not same_tree(ast.parse("f(a,\n  b)"), ast.parse("f(a)"), without={2})


def test_classes_come_in_the_order_in_which_a_walk_over_everything_finds_them() -> None:
    for text in [NESTED, *CASES]:
        tree = ast.parse(text)
        walked = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        assert [node for node in statements(tree) if isinstance(node, ast.ClassDef)] == walked


def test_every_worker_of_the_cases_is_the_same_as_itself_and_as_nothing_less() -> None:
    assert len(CASES) > 20
    for text in CASES:
        assert same_tree(ast.parse(text), ast.parse(text))
        assert not same_tree(ast.parse(text + "\nx = 1\n"), ast.parse(text))
