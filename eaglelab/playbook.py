"""Reads a playbook and checks all that can be checked before a host is contacted."""

from __future__ import annotations

import keyword
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, ValidationError
from pydantic_core import ErrorDetails

from eaglelab.checking import check, refusal
from eaglelab.errors import InputError
from eaglelab.nearest import did_you_mean
from eaglelab.playbook_model import BUILTINS, ActionSpec, ActionTask, Block, Entry, Playbook, Use, check_uses
from eaglelab.templating import TemplateError, is_template, names_in
from eaglelab.yamlfile import Key, Located, load

__all__ = ["BUILTINS", "ActionSpec", "ActionTask", "Block", "Entry", "Playbook", "Use", "load_playbook"]


def load_playbook(path: Path, *, actions: Mapping[str, ActionSpec], extra_vars: Mapping[str, Any]) -> Playbook:
    """Reads the playbook at `path` and all that it includes.

    `extra_vars` override variables of the playbook and may name no others. Raises InputError with file and line.
    """
    reader = _Reader(actions)
    name, tasks = reader.read(path, ())
    for variable in extra_vars:
        if variable not in reader.vars:
            hint = did_you_mean(variable, reader.vars, label="variables of this playbook")
            raise InputError(f"unknown variable '{variable}'", where=str(path), hint=hint)
    reader.check_vars()
    check_uses(tasks, {*BUILTINS, *reader.vars})
    return Playbook(path, name, tasks, reader.vars, dict(extra_vars), tuple(reader.files), reader.serial)


def _refuse_name(value: object) -> None:
    if value in BUILTINS:
        raise ValueError(f"cannot be '{value}': {' and '.join(BUILTINS)} are taken")
    if not isinstance(value, str) or not value.isidentifier() or keyword.iskeyword(value):
        raise ValueError("must be a name of letters, digits and _ that does not start with a digit")


def _register(value: object) -> object:
    if value is not None:
        _refuse_name(value)
    return value


def _when(value: object) -> str | bool | None:
    if value is not None and not isinstance(value, bool) and not (isinstance(value, str) and value.strip()):
        raise ValueError("must be an expression, true or false")
    if isinstance(value, str) and is_template(value):
        raise ValueError("is an expression already: leave the braces out")
    return value


def _tags(value: object) -> object:
    return [value] if isinstance(value, str) else value


class _Keys(BaseModel):
    """Keys of every entry of `tasks`."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)

    name: Annotated[str, Field(min_length=1)] | None = None
    when: Annotated[str | bool | None, PlainValidator(_when)] = None
    tags: Annotated[list[str], BeforeValidator(_tags)] = []


class _TaskKeys(_Keys):
    register_: Annotated[str | None, PlainValidator(_register), Field(alias="register")] = None
    retries: Annotated[int, Field(ge=0)] = 0
    delay: Annotated[float, Field(ge=0)] = 0.0


class _BlockKeys(_Keys):
    block: list[Any]
    rescue: list[Any] = []
    always: list[Any] = []


class _IncludeKeys(_Keys):
    include: Annotated[str, Field(min_length=1)]


_TASK_KEYS = ("name", "when", "register", "retries", "delay", "tags")
_FILE_KEYS = ("name", "serial", "vars", "tasks")


class _Reader:
    """Reads one playbook and its includes; `vars` and `files` are filled as it goes: the including file wins."""

    def __init__(self, actions: Mapping[str, ActionSpec]) -> None:
        self._actions = actions
        self.vars: dict[str, Any] = {}
        self.files: list[Path] = []
        self.serial: int | None = None
        self._var_places: dict[str, tuple[Located, tuple[Key, ...]]] = {}

    def read(self, path: Path, above: tuple[Path, ...]) -> tuple[str, tuple[Entry, ...]]:
        doc = load(path)
        self.files.append(path)
        top = doc.value
        if not isinstance(top, dict):
            hint = "start with `name: ...` and put the list below `tasks:`"
            raise doc.problem("a playbook is a mapping with the keys name, vars and tasks", hint=hint)
        for key in top:
            if key not in _FILE_KEYS:
                raise doc.problem(f"unknown key '{key}'", key, hint=did_you_mean(key, _FILE_KEYS, label="known keys"))
        if not isinstance(top.get("name"), str):
            raise doc.problem("the playbook has no name", "name", hint="name: what it does")
        self._read_serial(doc, top.get("serial"), included=bool(above))
        self._read_vars(doc, top.get("vars"))
        return top["name"], self._entries(doc, top.get("tasks"), ("tasks",), (*above, path))

    def check_vars(self) -> None:
        known = set(BUILTINS)
        for name, (doc, keys) in self._var_places.items():
            for use in _uses(doc, self.vars[name], keys):
                if use.name not in known:
                    hint = did_you_mean(use.name, sorted(known), label="known here")
                    raise InputError(f"unknown variable '{use.name}' in '{name}'", where=use.where, hint=hint)
            known.add(name)

    def _read_serial(self, doc: Located, value: object, *, included: bool) -> None:
        if value is None:
            return
        if included:
            hint = "write it into the playbook that includes this one"
            raise doc.problem("an included playbook cannot say how many hosts are a batch", "serial", hint=hint)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise doc.problem("'serial' must be a whole number, 1 or more", "serial", hint="serial: 2")
        self.serial = value

    def _read_vars(self, doc: Located, section: object) -> None:
        if section is None:
            return
        if not isinstance(section, dict):
            raise doc.problem(
                "'vars' must be a mapping (`name: value` lines)", "vars", hint="indent its names below it"
            )
        for name, value in section.items():
            try:
                _refuse_name(name)
            except ValueError as error:
                raise doc.problem(f"variable '{name}' {error}", "vars", name, hint="rename it") from error
            if name not in self.vars:
                self.vars[name] = value
                self._var_places[name] = (doc, ("vars", name))

    def _entries(
        self, doc: Located, entries: object, keys: tuple[Key, ...], chain: tuple[Path, ...]
    ) -> tuple[Entry, ...]:
        if not isinstance(entries, list) or not entries:
            raise doc.problem(
                f"'{keys[-1]}' must be a list of tasks, with one at least", *keys, hint="write `- ACTION:` below it"
            )
        return tuple(self._entry(doc, entry, (*keys, index), chain) for index, entry in enumerate(entries))

    def _entry(self, doc: Located, entry: object, keys: tuple[Key, ...], chain: tuple[Path, ...]) -> Entry:
        if not isinstance(entry, dict):
            raise doc.problem(
                "a task must be a mapping (`key: value` lines)", *keys, hint="write `- ACTION:` and its arguments below"
            )
        if "include" in entry:
            return self._include(doc, entry, keys, chain)
        if any(key in entry for key in ("block", "rescue", "always")):
            return self._block(doc, entry, keys, chain)
        return self._task(doc, entry, keys)

    def _include(self, doc: Located, entry: dict[str, Any], keys: tuple[Key, ...], chain: tuple[Path, ...]) -> Block:
        model = check(_IncludeKeys, entry, doc, *keys)
        path = doc.path.parent / model.include
        visited = [file.resolve() for file in chain]
        if path.resolve() in visited:
            loop = [*chain[visited.index(path.resolve()) :], path]
            names = " -> ".join(file.name for file in loop)
            raise doc.problem(f"the include goes round in a loop: {names}", *keys, "include", hint="remove one of them")
        if not path.is_file():
            there = sorted(file.name for file in path.parent.glob("*.yaml"))
            hint = did_you_mean(path.name, there, label=f"in {path.parent}")
            raise doc.problem(f"there is no playbook '{model.include}'", *keys, "include", hint=hint)
        name, tasks = self.read(path, chain)
        return self._as_block(doc, keys, model, model.name or name, tasks)

    def _block(self, doc: Located, entry: dict[str, Any], keys: tuple[Key, ...], chain: tuple[Path, ...]) -> Block:
        model = check(_BlockKeys, entry, doc, *keys)
        body = self._entries(doc, model.block, (*keys, "block"), chain)
        rescue, always = (
            self._entries(doc, part, (*keys, key), chain) if part else ()
            for key, part in (("rescue", model.rescue), ("always", model.always))
        )
        return self._as_block(doc, keys, model, model.name or "block", body, rescue, always)

    def _as_block(
        self,
        doc: Located,
        keys: tuple[Key, ...],
        model: _Keys,
        name: str,
        block: tuple[Entry, ...],
        rescue: tuple[Entry, ...] = (),
        always: tuple[Entry, ...] = (),
    ) -> Block:
        return Block(
            name=name,
            block=block,
            rescue=rescue,
            always=always,
            when=model.when,
            tags=frozenset(model.tags),
            where=doc.where(*keys),
            uses=_condition_uses(doc, model.when, (*keys, "when")),
        )

    def _task(self, doc: Located, entry: dict[str, Any], keys: tuple[Key, ...]) -> ActionTask:
        action = self._action(doc, entry, keys)
        rest = {key: value for key, value in entry.items() if key != action}
        model = check(_TaskKeys, rest, doc, *keys)
        args = self._args(doc, self._actions[action], entry[action], (*keys, action))
        return ActionTask(
            name=model.name or action,
            action=action,
            args=args,
            where=doc.where(*keys),
            when=model.when,
            register=model.register_,
            retries=model.retries,
            delay=model.delay,
            tags=frozenset(model.tags),
            uses=(*_condition_uses(doc, model.when, (*keys, "when")), *_uses(doc, args, (*keys, action))),
        )

    def _action(self, doc: Located, entry: dict[str, Any], keys: tuple[Key, ...]) -> str:
        others = [key for key in entry if key not in _TASK_KEYS]
        named = [key for key in others if key in self._actions]
        if not others:
            hint = f"actions: {', '.join(self._actions)}"
            raise doc.problem("this task names no action", *keys, hint=hint)
        if len(named) > 1:
            what = f"this task names two actions, '{named[0]}' and '{named[1]}'"
            raise doc.problem(what, *keys, named[1], hint="make two tasks of it")
        unknown = next((key for key in others if key not in named), None)
        if unknown is not None and named:
            hint = did_you_mean(unknown, _TASK_KEYS, label="known keys")
            raise doc.problem(f"unknown key '{unknown}'", *keys, unknown, hint=hint)
        if unknown is not None:
            hint = did_you_mean(unknown, [*self._actions, "block", "include"], label="actions")
            raise doc.problem(f"unknown action '{unknown}'", *keys, unknown, hint=hint)
        return named[0]

    def _args(self, doc: Located, spec: ActionSpec, args: object, keys: tuple[Key, ...]) -> dict[str, Any]:
        given = {} if args is None else args
        if not isinstance(given, dict):
            known = ", ".join(spec.args.model_fields) or "none"
            raise doc.problem(f"'{spec.name}' must be a mapping of its arguments", *keys, hint=f"arguments: {known}")
        try:
            spec.args.model_validate(given)
        except ValidationError as error:
            refused = refusal(error, spec.args, doc, *keys, ignore=lambda detail: _waits_for_template(given, detail))
            if refused is not None:
                raise refused from error
        return given


def _waits_for_template(args: dict[str, Any], detail: ErrorDetails) -> bool:
    """Whether what was refused is known only when its template is filled in; a wrong key is wrong at once."""
    if detail["type"] in ("missing", "extra_forbidden"):
        return False
    value: Any = args
    for key in detail["loc"]:
        if value is None or isinstance(value, str | int | float):
            break  # what follows in `loc` is the kind that pydantic tried
        value = value[key]
    return is_template(value)


def _condition_uses(doc: Located, when: str | bool | None, keys: tuple[Key, ...]) -> tuple[Use, ...]:
    return tuple(_template_uses(doc, when, keys, expression=True)) if isinstance(when, str) else ()


def _uses(doc: Located, value: object, keys: tuple[Key, ...]) -> Iterator[Use]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _uses(doc, item, (*keys, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _uses(doc, item, (*keys, index))
    elif isinstance(value, str) and is_template(value):
        yield from _template_uses(doc, value, keys)


def _template_uses(doc: Located, text: str, keys: tuple[Key, ...], *, expression: bool = False) -> Iterator[Use]:
    try:
        names = names_in(text, expression=expression)
    except TemplateError as error:
        raise doc.problem(error.what, *keys, hint="see https://jinja.palletsprojects.com/templates/") from error
    for name in sorted(names):
        yield Use(name, doc.where(*keys))
