"""A command of the command line: a function that is given its options, each of which is declared once.

Invoke reads the parameters of a task from its signature, and what is said of them from elsewhere. Options that several
commands share are groups here, and a command names the groups that it takes.
"""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

from invoke.context import Context
from invoke.exceptions import Exit
from invoke.tasks import Task

__all__ = ["Asked", "Option", "Work", "command", "listed", "needed", "switch"]

Asked = SimpleNamespace
"""The options of a command line by name; None, False or empty where they were not given."""
Work = Callable[[Any, Any, Any], None]
"""A command: what was asked, the Outcome that it fills, and the Say that it speaks through."""


class Option(NamedTuple):
    """One option that takes a value. `repeats`: it may be given several times; `bare`: it may stand without its value."""

    help: str
    default: Any = None
    repeats: bool = False
    bare: bool = False


def switch(help: str) -> Option:  # noqa: A002 - as Invoke calls it
    """An option without a value."""
    return Option(help, default=False)


def listed(help: str) -> Option:  # noqa: A002
    """An option that may be given several times."""
    return Option(help, repeats=True)


def needed(help: str) -> Option:  # noqa: A002
    """A word without which the command cannot be."""
    return Option(help, default=inspect.Parameter.empty)


def command(*groups: Mapping[str, Option], klass: type[Task[Any]] = Task, **own: Option) -> Callable[[Work], Task[Any]]:
    """Make a function a command with the options of these groups and its own; its name and its docstring are the command's.

    Options are written out in full: a short form that Invoke makes up would mean another option from one command to the next.
    `json` and `debug` are among the options of every command.
    """
    options: dict[str, Option] = {}
    for group in (*groups, own):
        options.update(group)

    def declare(work: Work) -> Task[Any]:
        def body(_context: Context, **given: Any) -> None:
            _perform(work, SimpleNamespace(**given))

        body.__name__, body.__doc__, body.__module__ = work.__name__, work.__doc__, work.__module__
        body.__signature__ = _signature(options)  # type: ignore[attr-defined]
        return klass(
            body,
            auto_shortflags=False,
            help={name: option.help for name, option in options.items()},
            iterable=[name for name, option in options.items() if option.repeats],
            optional=[name for name, option in options.items() if option.bare],
        )

    return declare


def _perform(work: Work, asked: Asked) -> None:
    from eaglelab.commands.ending import end_with
    from eaglelab.commands.outcome import perform

    end_with(None)
    code = perform(partial(work, asked), as_json=asked.json, debug=asked.debug)
    gc.freeze()  # the process ends: Python would look through all of it for garbage, which takes as long as a patch
    end_with(code)
    if code:
        raise Exit(code=code)


def _signature(options: Mapping[str, Option]) -> inspect.Signature:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    ordered = sorted(options.items(), key=lambda each: each[1].default is not inspect.Parameter.empty)
    parameters = [inspect.Parameter(name, kind, default=option.default) for name, option in ordered]
    return inspect.Signature([inspect.Parameter("context", kind), *parameters])
