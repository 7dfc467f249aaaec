"""Turns what pydantic found wrong into one sentence, with the line it is about and what was meant."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from eaglelab.errors import InputError
from eaglelab.nearest import did_you_mean
from eaglelab.yamlfile import Key, Located

__all__ = ["check", "refusal", "shown"]

Model = TypeVar("Model", bound=BaseModel)
Loc = tuple[Key, ...]

_WANTED = {
    "string": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "model": "a mapping (`key: value` lines)",
    "dict": "a mapping (`key: value` lines)",
    "list": "a list",
    "tuple": "a list",
}
_CORRECT = "correct the line, or remove it to take the default"
_LIMITS = {
    "greater_than": ("gt", "more than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}


def check(model: type[Model], data: object, doc: Located, *keys: Key) -> Model:
    """`data`, which stands at `keys` in `doc`, as a `model`. Raises InputError about the first wrong line."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise refusal(error, model, doc, *keys) or error from error


def refusal(
    error: ValidationError,
    model: type[BaseModel],
    doc: Located,
    *keys: Key,
    ignore: Callable[[ErrorDetails], bool] = lambda _: False,
) -> InputError | None:
    """The error to show for what is wrong at `keys` in `doc`; None where `ignore` covers all of it."""
    details = [detail for detail in error.errors(include_url=False) if not ignore(detail)]
    if not details:
        return None
    detail = min(details, key=lambda detail: doc.line(*keys, *detail["loc"]))
    what, hint = _sentence(detail, model)
    return doc.problem(what, *keys, *detail["loc"], hint=hint)


def shown(value: object) -> str:
    """A value as the user wrote it in YAML; mappings and lists by kind only."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"'{value}'" if len(value) <= 60 else f"'{value[:57]}...'"
    if isinstance(value, int | float):
        return str(value)
    return "a mapping" if isinstance(value, Mapping) else "a list" if isinstance(value, Sequence) else "a placeholder"


def _sentence(detail: ErrorDetails, model: type[BaseModel]) -> tuple[str, str]:
    """What is wrong, and a hint."""
    kind, loc, value, context = detail["type"], detail["loc"], detail["input"], detail.get("ctx", {})
    dotted = ".".join(str(key) for key in loc if key != "[key]")
    if kind == "extra_forbidden":
        return f"unknown key '{dotted}'", _key_hint(model, loc)
    if kind == "missing":
        return f"'{dotted}' is missing", f"add a line `{loc[-1]}: ...`"
    if kind == "literal_error":
        choices = re.findall(r"'([^']+)'", context["expected"])
        what = f"'{dotted}' must be {context['expected']}, not {shown(value)}"
        return what, did_you_mean(str(value), choices, label="choices")
    if kind in _LIMITS:
        name, words = _LIMITS[kind]
        return f"'{dotted}' must be {words} {context[name]}, not {shown(value)}", _CORRECT
    if kind == "string_too_short":
        return f"'{dotted}' is empty", _CORRECT
    if kind == "value_error":
        return f"'{dotted}' {context['error']}" if dotted else str(context["error"]), _CORRECT
    return _type_sentence(kind, dotted, value, detail["msg"])


def _type_sentence(kind: str, dotted: str, value: object, message: str) -> tuple[str, str]:
    wanted = _WANTED.get(kind.split("_")[0])
    if wanted is None or not kind.endswith(("_type", "_parsing", "_from_float")):
        return f"'{dotted}' is {shown(value)}: {message[:1].lower()}{message[1:]}", _CORRECT
    # What should have been a mapping may be a secret written in the wrong place.
    given = "text" if isinstance(value, str) and wanted == _WANTED["dict"] else shown(value)
    hint = _CORRECT
    if wanted == "text" and isinstance(value, bool | int | float):
        hint = "put the value in quotes"
    elif wanted.endswith("number") and isinstance(value, str):
        hint = "write the number without quotes"
    elif isinstance(value, bool):
        hint = "YAML takes yes, no, on and off for true and false"
    return f"'{dotted}' must be {wanted}, not {given}", hint


def _key_hint(model: type[BaseModel], loc: Loc) -> str:
    keys = _keys(model)
    *above, word = (str(key) for key in loc)
    fields = {part for key in keys for part in key.split(".")}  # what else leads there: places in a list, names
    prefix = ".".join([*(part for part in above if part in fields), ""])
    elsewhere = [key for key in keys if key.rpartition(".")[2] == word]
    if elsewhere:
        return f"did you mean '{elsewhere[0]}'?"
    siblings = [key[len(prefix) :] for key in keys if key.startswith(prefix)]
    return did_you_mean(word, (key for key in siblings if "." not in key), label="known keys")


def _keys(model: type[BaseModel], prefix: str = "") -> list[str]:
    """Every key of a model and of the models in it, dotted, in the order they are declared."""
    keys = []
    for name, info in model.model_fields.items():
        keys.append(prefix + name)
        annotation: Any = info.annotation
        for part in (annotation, *get_args(annotation)):
            if isinstance(part, type) and issubclass(part, BaseModel):
                keys += _keys(part, f"{prefix}{name}.")
    return keys
