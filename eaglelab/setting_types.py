"""Kinds of values that an inventory holds, each with what makes one wrong."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

__all__ = [
    "Count",
    "Port",
    "Seconds",
    "Settings",
    "Text",
    "Variable",
    "Word",
    "one_line",
    "plain_text",
    "variable_name",
    "variable_value",
]


def variable_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError("is not the name of an environment variable")
    return name


def variable_value(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else plain_text(value)


def plain_text(value: object) -> object:
    """Text that a command line or an environment can hold."""
    if isinstance(value, str) and re.search("[\x00\ud800-\udfff]", value):
        raise ValueError("has a character that no command line can hold (NUL, or half of a surrogate pair)")
    return value


def one_line(text: str) -> str:
    if "\n" in text:
        raise ValueError("must be one line")  # csh, as a login shell, could not be given it
    return text


def _word(text: str) -> str:
    if not text or text.startswith("-") or re.search(r"\s", text):
        raise ValueError(f"must be one word that does not start with '-', not '{text}'")
    return text


def _port(number: int) -> int:
    if not 1 <= number <= 65535:
        raise ValueError(f"is {number}, and a port is between 1 and 65535")
    return number


AnyText = Annotated[str, BeforeValidator(plain_text)]
Text = Annotated[str, Field(min_length=1), BeforeValidator(plain_text)]
Word = Annotated[AnyText, AfterValidator(_word)]
Port = Annotated[int, AfterValidator(_port)]
Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0)]
Variable = Annotated[str, AfterValidator(variable_name)]


class Settings(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=(), defer_build=True
    )
