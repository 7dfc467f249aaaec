"""How a command on many hosts ended: one table, and one error that stands for all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from eaglelab.commands.together import Ended
from eaglelab.errors import EaglelabError, HostsFailed
from eaglelab.printable import printable
from eaglelab.report.cells import left, plain_table

__all__ = ["gravest", "summary_table"]

_GRAVITY = (3, 130, 1, 2, 4)
"""Exit codes, the gravest first: a host that needs a person before all else, a gate that was missed last."""

_WORDS = {3: "needs attention", 130: "interrupted", 1: "failed", 2: "refused", 4: "gate missed"}
_MOST = 5
"""Hosts that a sentence names."""


def summary_table(
    names: Iterable[str],
    ended: Mapping[str, Ended],
    errors: Mapping[str, EaglelabError | None],
    results: Mapping[str, Mapping[str, Any]],
) -> RenderableType:
    """One row a host: how it ended, after how long, and the first line of why."""
    table = left(plain_table("host", "", "s", "", text=2), 3)
    for name in names:
        error = errors.get(name)
        how = "not begun" if name not in ended else "done" if error is None else _WORDS[error.exit_code]
        style = "green" if how == "done" else "yellow" if how == "not begun" else "red"
        why = results[name].get("error", {}).get("what", "").split("\n")[0]
        seconds = f"{ended[name].seconds:.1f}" if name in ended else ""
        table.add_row(name, Text(how, style=style), seconds, Text(printable(why)))
    return table


def gravest(failed: Mapping[str, EaglelabError], of: int, cause: str | None = None) -> EaglelabError:
    """The one failure, or one that says how many there were, with the exit code and the hints of the gravest.

    `cause`: a host for whose sake the others failed; its failure is the one, unless another is graver.
    """
    if len(failed) == 1:
        return next(iter(failed.values()))
    code = min((error.exit_code for error in failed.values()), key=_GRAVITY.index)
    graves = {name: error for name, error in failed.items() if error.exit_code == code}
    if cause in graves:
        return graves[cause]
    hints = list(dict.fromkeys(error.hint for error in graves.values() if error.hint))
    most = _named(graves)
    what = f"{len(failed)} of {of} hosts failed" + (f"; {_WORDS[code]}: {most}" if len(graves) < len(failed) else "")
    return HostsFailed(what, code, where=_named(failed), hint="; ".join(hints[:_MOST]))


def _named(names: Iterable[str]) -> str:
    every = list(names)
    return ", ".join(every[:_MOST]) + (f" and {len(every) - _MOST} more" if len(every) > _MOST else "")
