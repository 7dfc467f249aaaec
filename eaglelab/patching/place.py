"""A place of a patch: a text, and where in a worker it goes."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from eaglelab.patching.marker import mark

__all__ = ["AFTER", "FIXED_PLACES", "IMPORTS", "NO_NAME", "START", "TEXT_PLACES", "Place"]

AFTER = "after "
IMPORTS = "after imports"
START = "start of function"
FIXED_PLACES = (IMPORTS, START, "start of branch", "before return")
TEXT_PLACES = ("before text", "after text")
NO_NAME = "None"
"""What stands for a name that a worker does not have."""

_NAME = re.compile(r"\{(batch|bound|args\[(\d)\]|bound\[(\w+)\])\}")
_Text = Annotated[str, Field(min_length=1)]


class Place(BaseModel):
    """Text to insert (`insert`), and where (`at`): a fixed place, `after NAME` of a statement, or around a `text`.

    `function` names another method of the worker's class, for `start of function` and for a text; else the entry is meant.
    `text` must stand in `count` lines there, and what is inserted goes around the statement of each. `optional`: the
    function may be missing. `when` and `unless` name an optional statement that must, or must not, be there.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    name: _Text
    at: _Text
    insert: _Text
    function: _Text | None = None
    text: _Text | None = None
    count: Annotated[int, Field(ge=1)] = 1
    optional: bool = False
    when: str | None = None
    unless: str | None = None

    def filled(self, *, batch: str, bound: str, beside: Collection[str] = (), args: Sequence[str]) -> str:
        """The text for one file: the names in it that the braces stand for; other braces stand for themselves.

        `beside`: all names that the result of `{bound}` is bound to; `{bound[NAME]}` is NAME if it is among them, else None.
        Raises IndexError where the function has no parameter N of `{args[N]}` (`self` not counted).
        """
        names = {"batch": batch, "bound": bound}

        def name(match: re.Match[str]) -> str:
            whole, number, other = match.groups()
            if number:
                return args[int(number)]
            return names[whole] if other is None else other if other in beside else NO_NAME

        return _NAME.sub(name, self.insert.rstrip("\n"))

    def problem(self, patch_id: str) -> tuple[str, str] | None:
        """The key that does not go with the others and what is wrong with it; None where all is well."""
        around = self.at in TEXT_PLACES
        if around and self.text is None:
            return "at", f"'{self.at}' needs the `text` to look for"
        if not around and ("text" in self.model_fields_set or "count" in self.model_fields_set):
            return ("text" if self.text else "count"), "this goes with 'before text' and 'after text' only"
        if self.text is not None and not (self.text.isascii() and len(self.text.splitlines()) == 1):
            return "text", "the text to look for must be a piece of one line, in ASCII"
        if self.function and not (around or self.at == START):
            return "function", f"'{self.at}' is a place of the entry"
        if self.optional and not self.function:
            return "optional", "only a place in another `function` can be left out"
        return self._problem_of_insert(patch_id)

    def _problem_of_insert(self, patch_id: str) -> tuple[str, str] | None:
        for name, number, _ in _NAME.findall(self.insert):
            if self.at == IMPORTS or (self.function and not number):
                return "insert", f"'{{{name}}}' has no meaning in this place"
        why = _not_insertable(self.filled(batch="batch", bound="bound", args=["argument"] * 10), patch_id)
        return ("insert", f"the text of '{self.name}' cannot be inserted: {why}") if why else None


def _not_insertable(code: str, patch_id: str) -> str:
    """Why `code` is no set of whole Python lines that can each end with a comment; empty where it is."""
    if not code.isascii():
        return "it must be ASCII, because a worker can have any encoding"
    try:
        plain = ast.parse(code)
        marked = ast.parse("\n".join(mark(line, patch_id) for line in code.splitlines()))
    except SyntaxError as error:
        return f"{error.msg} (its line {error.lineno})"
    if not plain.body or ast.dump(plain) != ast.dump(marked):
        return "a string or a statement in it spans lines in a way that leaves no room for the marker comment"
    return ""
