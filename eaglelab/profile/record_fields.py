"""Checked access to the fields of a probe's JSON record: each gives the value, or raises RecordError with the reason."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["RecordError", "count", "items", "mapping", "number", "text", "whole"]


class RecordError(ValueError):
    """A line that is no record of this schema; the message says why."""


def text(data: dict[str, Any], key: str) -> str:
    """A text."""
    value = data.get(key)
    if not isinstance(value, str):
        raise RecordError(f"{key} is {value!r}, not a text")
    return value


def count(data: dict[str, Any], key: str) -> int:
    """A whole number of at least 0."""
    return whole(data.get(key), key)


def whole(value: object, key: str) -> int:
    """The value, which must be a whole number of at least 0."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise RecordError(f"{key} is {value!r}, not a whole number of at least 0")
    return value


def number(value: object, key: str) -> float:
    """The value, which must be a finite number."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < math.inf:
        raise RecordError(f"{key} is {value!r}, not a finite number")
    try:
        return float(value)
    except OverflowError as error:
        raise RecordError(f"{key} is too large") from error


def items(data: dict[str, Any], key: str) -> list[Any]:
    """A list."""
    value = data.get(key)
    if not isinstance(value, list):
        raise RecordError(f"{key} is missing or not a list")
    return value


def mapping(data: dict[str, Any], key: str) -> dict[str, Any]:
    """An object."""
    value = data.get(key)
    if not isinstance(value, dict):
        raise RecordError(f"{key} is missing or not an object")
    return value
