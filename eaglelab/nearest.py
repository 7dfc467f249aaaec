"""The known word that a mistyped one was meant to be."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["did_you_mean", "nearest"]


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word most like `word`, or None where none is close."""
    folded = {name.casefold(): name for name in known}
    matches = get_close_matches(word.casefold(), folded, n=1, cutoff=0.6)
    return folded[matches[0]] if matches else None


def did_you_mean(word: str, known: Iterable[str], *, label: str = "known") -> str:
    """A hint: the nearest known word, if any, and then all of them."""
    names = list(known)
    listing = f"{label}: {', '.join(names)}" if names else f"{label}: none"
    match = nearest(word, names)
    return f"did you mean '{match}'? {listing}" if match else listing
