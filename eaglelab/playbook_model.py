"""What a playbook is once read: actions, blocks, variables, and the choice of tasks by tag."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from eaglelab.errors import InputError
from eaglelab.nearest import did_you_mean
from eaglelab.templating import render

__all__ = ["BUILTINS", "ActionSpec", "ActionTask", "Block", "Entry", "Playbook", "Use", "check_uses"]

BUILTINS = ("host", "run")
"""Variables that the runner gives to every template."""


@dataclass(frozen=True)
class ActionSpec:
    """An action that a playbook can name: its arguments as a pydantic model, and one line about it."""

    name: str
    args: type[BaseModel]
    summary: str


@dataclass(frozen=True)
class Use:
    """A variable that a template needs, and the file and line of that template."""

    name: str
    where: str


@dataclass(frozen=True)
class ActionTask:
    """One task. `args` and `when` may hold templates; `delay` is in seconds.

    `when`: an expression, or a plain true or false; None means always.
    `retries`: further attempts after the first. `register`: the variable that takes the result.
    """

    name: str
    action: str
    args: Mapping[str, Any]
    where: str
    when: str | bool | None = None
    register: str | None = None
    retries: int = 0
    delay: float = 0.0
    tags: frozenset[str] = frozenset()
    uses: tuple[Use, ...] = ()


@dataclass(frozen=True)
class Block:
    """Tasks that belong together: `rescue` runs where one of them fails, `always` in the end."""

    name: str
    block: tuple[Entry, ...]
    where: str
    rescue: tuple[Entry, ...] = ()
    always: tuple[Entry, ...] = ()
    when: str | bool | None = None
    tags: frozenset[str] = frozenset()
    uses: tuple[Use, ...] = ()


Entry = ActionTask | Block


@dataclass(frozen=True)
class Playbook:
    """A checked playbook. `vars` may hold templates; `extra_vars` override them and are taken as they are.

    `files` are those that it was read from, the playbook itself first. `serial`: hosts that it is played on at once,
    batch by batch; None for all.
    """

    path: Path
    name: str
    tasks: tuple[Entry, ...]
    vars: Mapping[str, Any]
    extra_vars: Mapping[str, Any]
    files: tuple[Path, ...] = ()
    serial: int | None = None

    def variables(self, builtins: Mapping[str, Any]) -> dict[str, Any]:
        """All variables at the start of a run on one host; a variable may use those above it.

        `builtins`: a value for each of BUILTINS. Raises TemplateError.
        """
        known = dict(builtins)
        for name, value in self.vars.items():
            known[name] = self.extra_vars[name] if name in self.extra_vars else render(value, known)
        return known

    def actions(self) -> Iterator[ActionTask]:
        """Every task, those of `rescue` and `always` too, in the order of the file."""
        return _actions(self.tasks)

    def select(self, tags: Collection[str], skip_tags: Collection[str]) -> Playbook:
        """The playbook with only the tasks that have one of `tags` (all, if empty) and none of `skip_tags`.

        A tag of a block holds for all that is in it. The tag `always` is chosen whatever `tags` says. A block of
        which a task is left keeps `rescue` and `always`: half a playbook must not lose its way back.
        Raises InputError for a tag that no task has, and where a chosen task uses the result of one left out.
        """
        known = sorted(_tags(self.tasks))
        for tag in (*tags, *skip_tags):
            if tag not in known:
                hint = did_you_mean(tag, known, label="tags")
                raise InputError(f"no task is tagged '{tag}'", where=str(self.path), hint=hint)
        tasks = _select(self.tasks, frozenset(tags), frozenset(skip_tags), frozenset())
        check_uses(tasks, {*BUILTINS, *self.vars})
        return replace(self, tasks=tasks)


def check_uses(entries: tuple[Entry, ...], known: set[str]) -> None:
    """Raises InputError for a template that needs what neither `known` nor an earlier task gives.

    `known` grows by the names that the tasks register.
    """
    for entry in entries:
        for use in entry.uses:
            if use.name not in known:
                hint = did_you_mean(use.name, sorted(known), label="known here")
                raise InputError(f"unknown variable '{use.name}' in task '{entry.name}'", where=use.where, hint=hint)
        if isinstance(entry, Block):
            for part in (entry.block, entry.rescue, entry.always):
                check_uses(part, known)
        elif entry.register:
            known.add(entry.register)


def _actions(entries: tuple[Entry, ...]) -> Iterator[ActionTask]:
    for entry in entries:
        if isinstance(entry, Block):
            yield from _actions((*entry.block, *entry.rescue, *entry.always))
        else:
            yield entry


def _tags(entries: tuple[Entry, ...]) -> set[str]:
    found: set[str] = set()
    for entry in entries:
        found |= entry.tags
        if isinstance(entry, Block):
            found |= _tags((*entry.block, *entry.rescue, *entry.always))
    return found


def _select(
    entries: tuple[Entry, ...], tags: frozenset[str], skip: frozenset[str], above: frozenset[str]
) -> tuple[Entry, ...]:
    chosen: list[Entry] = []
    for entry in entries:
        own = above | entry.tags
        if own & skip:
            continue
        if isinstance(entry, Block):
            block = _select(entry.block, tags, skip, own)
            if block:
                rescue, always = (_select(part, frozenset(), skip, own) for part in (entry.rescue, entry.always))
                chosen.append(replace(entry, block=block, rescue=rescue, always=always))
        elif not tags or own & tags or "always" in own:
            chosen.append(entry)
    return tuple(chosen)
