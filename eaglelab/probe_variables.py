"""The variables that the probe reads (docs/probe.md): what a sweep sets itself, and which values switch the probe off."""

from __future__ import annotations

import re

__all__ = ["SET_BY_MEASURING", "why_no_count"]

SET_BY_MEASURING = {
    "EAGLE3_PROFILE": "whether the probe is on: rounds with and without it take turns in every load",
    "EAGLE3_PROFILE_DIR": "where the probe writes",
    "EAGLE3_STEPS_FROM_RID": "whether requests choose their step count",
}
"""What the tool decides for each load, whatever else they are set to."""

_COUNTS = ("EAGLE3_PROFILE_EVERY", "EAGLE3_PROFILE_WARMUP", "EAGLE3_PROFILE_TIMED")


def why_no_count(name: str, value: str) -> str | None:
    """Why the probe would switch itself off at this value; None where it would not, or where another reads the variable."""
    if name not in _COUNTS or not value or re.fullmatch(r"\d+", value, re.ASCII):
        return None
    return f"{name} is {value!r}, and the probe takes a whole number: it would switch itself off"
