"""A Python file as bytes, lines and syntax tree, whose line numbers agree with those of `sed`."""

from __future__ import annotations

import ast
import io
import platform
import threading
import tokenize
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field

from eaglelab.patching.errors import PatchRefused
from eaglelab.patching.marker import split_lines

__all__ = ["Source"]


_QUIETLY = threading.Lock()
"""Python's filter of warnings is one for all threads."""


@dataclass(frozen=True)
class Source:
    """One parsed file. `lines` keep their newlines; line numbers count from 1."""

    path: str
    lines: tuple[bytes, ...] = field(repr=False)
    tree: ast.Module = field(repr=False)

    @classmethod
    def parse(cls, data: bytes, path: str) -> Source:
        """Raises PatchRefused for what this Python cannot compile, and for lone carriage returns."""
        lines = tuple(split_lines(data))
        bare = cls(path, lines, ast.Module(body=[], type_ignores=[]))
        odd = [number for number, line in enumerate(lines, start=1) if line.endswith(b"\r")]
        if odd:
            # Python ends a line there and sed does not: the two would count differently.
            raise bare.refuse("lines end with a lone carriage return", odd[:3], hint="convert the line ends to \\n")
        bare._check_encoding(data)
        try:
            with _QUIETLY, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(data)
                compile(tree, path, "exec", dont_inherit=True)
        except SyntaxError as error:
            hint = f"it was read as Python {platform.python_version()}; a host with a newer one may know newer syntax"
            raise bare.refuse(f"this is not Python: {error.msg}", [error.lineno or 1], hint=hint) from error
        except (ValueError, RecursionError, MemoryError) as error:
            raise bare.refuse(f"this is not Python: {error}", []) from error
        return cls(path, lines, tree)

    def _check_encoding(self, data: bytes) -> None:
        """Undecodable bytes are a matter of the Python release to `compile`; here they are always refused."""
        try:
            encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
            data.decode(encoding)
        except SyntaxError as error:
            raise self.refuse(f"this is not Python: {error.msg}", []) from error
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise self.refuse(f"this is not Python: it is not {error.encoding} as it says", [line]) from error

    def line(self, number: int) -> bytes:
        """One line without its newline."""
        return self.lines[number - 1].rstrip(b"\r\n")

    def newline(self, number: int) -> bytes:
        """The newline that a line inserted before line `number` gets: that line's own, else the one above it."""
        for line in (self.lines[number - 1], self.lines[number - 2]):
            for newline in (b"\r\n", b"\n"):
                if line.endswith(newline):
                    return newline
        return b"\n"

    def refuse(self, reason: str, numbers: Iterable[int], *, hint: str = "") -> PatchRefused:
        """The error that shows these lines; the caller raises it."""
        known = [number for number in numbers if 1 <= number <= len(self.lines)]
        looked_at = [(number, self.line(number).decode(errors="replace")) for number in known]
        return PatchRefused(reason, path=self.path, looked_at=looked_at, hint=hint)
