"""What an action is: a name that a playbook can use, its arguments, and what it does on one host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from eaglelab.context import Context, Options
from eaglelab.playbook_model import ActionSpec

__all__ = ["Action", "Arguments", "NoArguments"]


class Arguments(BaseModel):
    """Arguments of an action; unknown ones are refused when the playbook is read."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class NoArguments(Arguments):
    """For actions that take none."""


@dataclass(frozen=True)
class Action(ActionSpec):
    """`run` does it and returns what `register` keeps; `preview` is what `--check` does instead and changes nothing.

    An action without `preview` changes nothing anyway and is run under `--check` too.
    `check` raises InputError for arguments that cannot work, before any host is contacted.
    `restores`: it puts a host back, so if it fails in a `rescue`, a person has to look.
    `holds` tells, when a run is taken up again, whether the result of an earlier try is still true and all that came of it
    is there; it then leaves the context as `run` would. An action without it is done again: it is cheap, or it sees itself
    that nothing need be done.

    `nodes`: who does it where several hosts are one server. `each` for itself, all at once; `in turn`, by rank; `first`:
    only rank 0, whose result all get, while the others watch their own process and do `follow` in the end.
    `agree(context, mine, all)` makes one result of those of all.

    `warm` loads and reads what `run` will need and what no host tells, while one is being reached; what fails in it is
    passed over.
    """

    run: Callable[[Context, Any], dict[str, Any]]
    preview: Callable[[Context, Any], dict[str, Any]] | None = None
    check: Callable[[Options, Any], None] | None = None
    restores: bool = False
    holds: Callable[[Context, Any, Mapping[str, Any]], bool] | None = None
    nodes: Literal["each", "in turn", "first"] = "each"
    follow: Callable[[Context, Any], None] | None = None
    agree: Callable[[Context, dict[str, Any], Mapping[str, dict[str, Any]]], dict[str, Any]] | None = None
    warm: Callable[[Options], None] | None = None
