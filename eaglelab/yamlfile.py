"""Reads a YAML file and keeps the line of every key, so that an error can point at it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from eaglelab.errors import InputError

__all__ = ["Key", "Located", "load"]

Key = str | int
_TEXT = "tag:yaml.org,2002:str"
_MERGE = "tag:yaml.org,2002:merge"
_MOST_NODES = 100_000
"""A few lines of aliases to aliases can stand for more than any machine's memory."""
_NO_TAGS: Mapping[str, Callable[[str], object]] = MappingProxyType({})


@dataclass(frozen=True)
class Located:
    """The data of one file (`value`), and where in the file each part of it stands."""

    path: Path
    value: Any
    node: yaml.Node | None = field(repr=False)

    def line(self, *keys: Key) -> int:
        """The line (from 1) of the entry that `keys` lead to, or of the nearest one above it."""
        node, mark = self.node, self.node.start_mark if self.node else None
        for key in keys:
            found = _child(node, key)
            if found is None:
                break
            mark, node = found
        return mark.line + 1 if mark else 1

    def where(self, *keys: Key) -> str:
        """`file:line` of the entry that `keys` lead to."""
        return f"{self.path}:{self.line(*keys)}"

    def problem(self, what: str, *keys: Key, hint: str = "") -> InputError:
        """An error about the entry that `keys` lead to; the caller raises it."""
        return InputError(what, where=self.where(*keys), hint=hint)


class _Locating:
    """A value that looks like a date or number and is none fails with its place, too."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)  # type: ignore[misc]
        except ValueError as error:
            raise yaml.constructor.ConstructorError(None, None, str(error), node.start_mark) from error


class _Plain(_Locating, yaml.SafeLoader):
    pass


class _Quick(_Locating, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Ten times as fast, where PyYAML was built with libyaml. What is wrong with a file it says in other words."""


def load(path: Path, *, tags: Mapping[str, Callable[[str], object]] = _NO_TAGS) -> Located:
    """Reads one YAML document. `tags` maps an own tag such as `!unset` to what makes a value of its text.

    Raises InputError for a file that cannot be read or parsed, for a repeated key and for a key that is not text.
    """

    try:
        return _load(path, _Quick, tags)
    except (yaml.YAMLError, RecursionError):
        return _explained(path, tags)


def _explained(path: Path, tags: Mapping[str, Callable[[str], object]]) -> Located:
    try:
        return _load(path, _Plain, tags)
    except yaml.MarkedYAMLError as error:
        raise _unparsable(path, error) from error
    except yaml.reader.ReaderError as error:
        what = f"this is not valid YAML: {error.reason} at character {error.position + 1}"
        raise InputError(what, where=str(path), hint="remove that character") from error
    except RecursionError as error:
        raise InputError("this YAML is nested too deep", where=str(path), hint="is it the right file?") from error


def _load(path: Path, kind: Any, tags: Mapping[str, Callable[[str], object]]) -> Located:
    loader_of: Any = type("Loader", (kind,), {})
    for tag, make in tags.items():
        loader_of.add_constructor(tag, _constructor(make))
    loader = loader_of(_read(path))
    try:
        node = loader.get_single_node()
        if node is not None and _check_keys(path, node, {}, ()) > _MOST_NODES:
            what = f"its aliases stand for more than {_MOST_NODES} values"
            raise InputError(what, where=str(path), hint="write out what is meant")
        value = loader.construct_document(node) if node is not None else None
    finally:
        loader.dispose()
    return Located(path, value, node)


def _constructor(make: Callable[[str], object]) -> Callable[[yaml.SafeLoader, yaml.ScalarNode], object]:
    def construct(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> object:
        return make(str(loader.construct_scalar(node)))

    return construct


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise InputError("there is no such file", where=str(path), hint="check the path and the folder") from error
    except OSError as error:
        what = f"the file cannot be read: {error.strerror}"
        raise InputError(what, where=str(path), hint="check what it is and who may read it") from error
    except UnicodeDecodeError as error:
        raise InputError("the file is not UTF-8 text", where=str(path), hint="save it as UTF-8") from error


def _unparsable(path: Path, error: yaml.MarkedYAMLError) -> InputError:
    mark = error.problem_mark or error.context_mark
    where = f"{path}:{mark.line + 1}" if mark else str(path)
    context = f" ({error.context})" if error.context else ""
    what = f"this is not valid YAML{context}: {error.problem}"
    hint = "look at this line and the one above: indentation, a missing space after ':', an open quote"
    if "\\t" in what:
        hint = "indent with spaces, not with a tab"
    elif isinstance(error, yaml.constructor.ConstructorError):
        hint = "remove the tag, or quote the value"
    return InputError(what, where=where, hint=hint)


def _check_keys(path: Path, node: yaml.Node, sizes: dict[int, int], above: tuple[yaml.Node, ...]) -> int:
    """Refuses keys that YAML would drop or change silently, and aliases that lead back into themselves.

    Returns how many values `node` is when every alias is written out.
    """
    if node in above:
        where = f"{path}:{node.start_mark.line + 1}"
        raise InputError("this alias stands inside what it stands for", where=where, hint="write it out")
    if id(node) in sizes:
        return sizes[id(node)]
    size = 1
    if isinstance(node, yaml.SequenceNode):
        size += sum(_check_keys(path, item, sizes, (*above, node)) for item in node.value)
    elif isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, value in node.value:
            _check_key(path, key, lines)
            lines[key.value] = key.start_mark.line + 1
            size += _check_keys(path, value, sizes, (*above, node))
    sizes[id(node)] = size
    return size


def _check_key(path: Path, key: yaml.Node, lines: dict[str, int]) -> None:
    where = f"{path}:{key.start_mark.line + 1}"
    if key.tag not in (_TEXT, _MERGE):
        shown = f"'{key.value}'" if isinstance(key, yaml.ScalarNode) else "this key"
        raise InputError(f"{shown} is not text to YAML", where=where, hint="put the key in quotes")
    if key.value in lines:
        what = f"'{key.value}' stands here a second time; it is already on line {lines[key.value]}"
        raise InputError(what, where=where, hint="keep one of the two")


def _child(node: yaml.Node | None, key: Key) -> tuple[yaml.Mark, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        for name, value in reversed(node.value):
            if name.value == key:
                return name.start_mark, value
    elif isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
        item = node.value[key]
        return item.start_mark, item
    return None
