"""The agent as one file: what a host's Python of any age is fed."""

from __future__ import annotations

import ast
import sys
from collections import Counter

from eaglelab.remote.agent.wire import READY
from eaglelab.remote.payload import BOOTSTRAP, agent_source


def tree() -> ast.Module:
    return ast.parse(agent_source(), feature_version=(3, 8))


def test_the_joined_source_parses_as_python_3_8() -> None:
    assert tree().body


def test_it_imports_the_standard_library_only() -> None:
    names = set()
    for node in ast.walk(tree()):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names.add(str(node.module).split(".")[0])
    assert names <= sys.stdlib_module_names
    assert "eaglelab" not in names


def test_no_module_defines_a_name_that_another_has_defined() -> None:
    defined: Counter[str] = Counter()
    for node in tree().body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined[node.name] += 1
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [found.id for target in targets for found in ast.walk(target) if isinstance(found, ast.Name)]
            defined.update(names)
    del defined["__all__"]
    assert [name for name, count in defined.items() if count > 1] == []


def test_no_name_is_also_the_name_of_an_import() -> None:
    """A function called like a module of the standard library would hide it from the modules that follow."""
    imported, defined = set(), set()
    for node in tree().body:
        if isinstance(node, ast.Import):
            imported |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined.add(node.name)
    assert imported & defined == set()


def test_nothing_of_a_newer_python_is_evaluated_at_run_time() -> None:
    """`X | Y` and `list[int]` are fine as annotations, which nobody evaluates, and nowhere else."""
    source, annotations = tree(), set()
    for node in ast.walk(source):
        found = [getattr(node, name, None) for name in ("annotation", "returns")]
        annotations |= {id(part) for top in found if isinstance(top, ast.AST) for part in ast.walk(top)}
    builtin = {"dict", "list", "set", "tuple", "type", "frozenset"}
    for node in ast.walk(source):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and id(node) not in annotations:
            assert node.value.id not in builtin, ast.unparse(node)


def test_the_bootstrap_is_one_line_that_even_python_2_can_parse() -> None:
    assert "\n" not in BOOTSTRAP
    assert not set(BOOTSTRAP) & set("$`\\!")
    for newer in ("f'", 'f"', ":=", "print "):
        assert newer not in BOOTSTRAP


def test_the_greeting_stands_alone_on_its_line() -> None:
    assert READY.startswith(b"\n")
    assert READY.endswith(b"\n")
    assert agent_source().count(READY.strip()) == 1
