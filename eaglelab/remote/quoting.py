"""Command lines for a login shell of any kind."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["quoted", "remote_command"]

_PLAIN = re.compile(r"[A-Za-z0-9_@%+:,./-]+")
_OUTSIDE = re.compile(r"[\\'!]")
"""fish reads backslashes between quotes, csh `!`; escaped outside of them, every shell takes these as they are."""


def quoted(word: str) -> str:
    """`word` for sh, bash, zsh, fish and csh alike (csh alone cannot have a newline in it). It must not hold a NUL."""
    if _PLAIN.fullmatch(word):
        return word
    return "'" + _OUTSIDE.sub(lambda match: rf"'\{match[0]}'", word) + "'"


def remote_command(words: Sequence[str], before: Sequence[str] = ()) -> str:
    """A command line for the login shell there, every word quoted; `before` stands in front of the program, as sudo does.

    A leading `~/` of the program is left for the shell to expand. `exec` drops the shell, so that the command itself
    sees the channel close.
    """
    first, *rest = words
    program = f"~/{quoted(first[2:])}" if first.startswith("~/") else quoted(first)
    return " ".join(["exec", *map(quoted, before), program, *map(quoted, rest)])
