"""A task that takes as many names as are typed.

Invoke knows only positionals in a fixed number, each of them required, and a parameter that is a list takes no word without
its flag. So the task asks the command line how many words there are, and its one positional is complete with the last of
them: `invoke compare A B C`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

from invoke.parser.argument import Argument
from invoke.tasks import Task

__all__ = ["TakesNames", "words_typed"]


class TakesNames(Task[Any]):
    """A task whose parameter `names` is a list of all words behind it on the command line that are no option's.

    Words in front of `--` and behind the task's name all count, so that no other task can follow.
    """

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        """Its parameters as Invoke has them, `names` first."""
        names, *options = sorted(super().get_arguments(ignore_unknown_help), key=lambda each: each.name != "names")
        return [_Names(words_typed(sys.argv, self.name, options), names.help), *options]


class _Names(Argument):
    """Not given until it has as many words as there are."""

    def __init__(self, wanted: int, what: str | None) -> None:
        super().__init__(name="names", kind=list, help=what, positional=True)
        self._wanted = wanted
        self._words: list[str] = []

    @property
    def value(self) -> list[str] | None:
        return self._words if len(self._words) >= self._wanted else None

    @value.setter
    def value(self, word: str) -> None:
        self.raw_value = word
        self._words.append(word)


def words_typed(argv: Sequence[str], task: str, options: Iterable[Any]) -> int:
    """How many words of a command line are names: those behind the task that are neither options nor an option's value."""
    if task not in argv:
        return 0
    flags = {f"--{name.replace('_', '-')}" for each in options if each.takes_value for name in each.names}
    count, skip = 0, False
    for word in argv[argv.index(task) + 1 :]:
        if word == "--":
            break
        if not skip and not word.startswith("-"):
            count += 1
        skip = not skip and word in flags
    return count
