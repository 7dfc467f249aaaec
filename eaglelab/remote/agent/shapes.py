"""What the values of a record must be. A hand, a bad disk or another version may have put anything into a JSON file."""

from __future__ import annotations

import os
from typing import Any, Callable, Mapping

__all__ = [
    "is_count",
    "is_number",
    "is_pid",
    "is_port",
    "is_switch",
    "is_text",
    "list_of",
    "misfit",
    "optional",
]

_MOST_PID = 1 << 22
"""The kernel's own limit."""


def is_text(value: Any) -> bool:
    """A string that may be a part of a path or of a command line."""
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        os.fsencode(value)
    except UnicodeError:
        return False
    return True


def is_count(value: Any) -> bool:
    """A whole number that any of the kernel's calls takes: a size, an inode, ticks of a clock."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 64


def is_number(value: Any) -> bool:
    """Seconds, of which a date can be made."""
    return (is_count(value) or isinstance(value, float)) and 0 <= value < 1 << 40


def is_pid(value: Any) -> bool:
    """A process that may be ours: process 1 never is."""
    return is_count(value) and 1 < value <= _MOST_PID


def is_port(value: Any) -> bool:
    return is_count(value) and 0 < value < 1 << 16


def is_switch(value: Any) -> bool:
    return isinstance(value, bool)


def optional(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Also None."""
    return lambda value: value is None or check(value)


def list_of(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(check, value))


def misfit(
    found: Mapping[str, Any],
    needed: Mapping[str, Callable[[Any], bool]],
    known: Mapping[str, Callable[[Any], bool]],
) -> str | None:
    """What is wrong with a record that must have all that is `needed`, and may lack what is `known`; None if nothing."""
    missing = [key for key in needed if key not in found]
    if missing:
        return "lacks " + ", ".join(missing)
    wrong = [key for key, check in {**known, **needed}.items() if key in found and not check(found[key])]
    return "holds no valid " + ", ".join(sorted(wrong)) if wrong else None
