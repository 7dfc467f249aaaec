"""Values of command-line options, checked: everything arrives as text and leaves as what it means."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import yaml

from eaglelab.errors import InputError
from eaglelab.server.command import parse_steps

__all__ = ["assignments", "bare", "counts", "decimal", "filled", "given", "one_step", "read", "whole", "words"]

T = TypeVar("T")


def whole(text: str, option: str, *, least: int = 1) -> int:
    """A whole number of at least `least`. Raises InputError."""
    number = text.removeprefix("-")
    if not (number.isascii() and number.isdecimal()):
        raise InputError(f"'{text}' is not a whole number", where=option, hint=f"{option} {max(least, 10)}")
    if int(text) < least:
        raise InputError(f"{text} is too small: {least} or more", where=option, hint=f"{option} {max(least, 10)}")
    return int(text)


def bare(given: str | bool | None, option: str) -> int | bool:
    """Of an option that may stand without its number: that number, True where it stands alone. Raises InputError."""
    return bool(given) if given is None or isinstance(given, bool) else whole(given, option)


def counts(text: str, option: str) -> list[int]:
    """The whole numbers in `1,4,16`, each once. Raises InputError."""
    found = [whole(part.strip(), option) for part in text.split(",")]
    if len(set(found)) < len(found):
        raise InputError(f"a number stands twice in {text}", where=option, hint=f"{option} 1,4,16")
    return found


def decimal(text: str, option: str, *, above_zero: bool = False) -> float:
    """A finite number, 0 or more; with `above_zero` more than 0. Raises InputError."""
    try:
        number = float(text)
    except ValueError as error:
        raise InputError(f"'{text}' is not a number", where=option, hint=f"{option} 1.5") from error
    if not 0 <= number < float("inf"):
        raise InputError(f"{text} is not usable: 0 or more", where=option, hint=f"{option} 1.5")
    if above_zero and not number:
        raise InputError(f"{text} is not usable: more than 0", where=option, hint=f"{option} 1.5")
    return number


def filled(text: str | None, option: str) -> str | None:
    """An option's text as it is. An empty one is a slip, such as a script's unset variable, and never means `not given`.

    Raises InputError.
    """
    if text is not None and not text.strip():
        raise InputError("it is empty", where=option, hint=f"give {option} a value, or leave it out")
    return text


def read(text: str | None, reader: Callable[..., T], *about: Any, **more: Any) -> T | None:
    """What `reader` makes of an option's text; None where it was not given."""
    return None if text is None else reader(text, *about, **more)


def given(**values: Any) -> dict[str, Any]:
    """Those that were given: what is left out is for the playbook, or for the run that is taken up, to say."""
    return {name: value for name, value in values.items() if value is not None}


def one_step(text: str) -> int:
    """A single step count. Raises InputError."""
    steps = parse_steps(text)
    if len(steps) > 1:
        raise InputError(
            f"one step count is wanted, not {len(steps)}",
            where="--steps",
            hint="invoke bench takes several: --steps 2,3,5",
        )
    return steps[0]


def words(text: str, option: str) -> tuple[str, ...]:
    """The parts of `a,b`, one at least. Raises InputError."""
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if not found:
        raise InputError("it names nothing", where=option, hint=f"{option} NAME[,NAME], or leave it out")
    return found


def assignments(pairs: Iterable[str]) -> dict[str, Any]:
    """Variables from NAME=VALUE; a value is read as YAML, so that 3 is a number. Raises InputError."""
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.isidentifier():
            raise InputError(f"'{pair}' is no variable", where="--var", hint="--var NAME=VALUE")
        try:
            found[name] = yaml.safe_load(value) if value else ""
        except yaml.YAMLError as error:
            raise InputError(
                f"the value of '{name}' cannot be read", where="--var", hint=f"--var {name}='plain text'"
            ) from error
    return found
