"""Which lines of a large piece of a log may hold a secret: all others need no look at each of the shapes of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ahocorasick_rs import BytesAhoCorasick, MatchKind

__all__ = ["Suspects"]

_LOWERED = ("\u212a", "\u0130")
"""Letters whose lower case is that of an ASCII letter (the sign of Kelvin) or begins with it: bytes know nothing of it."""


class Suspects:
    """`words` are looked for as they are, but those in lower case in any case; `values` as they are.

    One pass over the bytes for each kind of them, some GB/s.
    """

    def __init__(self, words: Iterable[str], values: Iterable[str]) -> None:
        exact: list[bytes] = []
        loose = [letter.encode() for letter in _LOWERED]
        for word in words:
            (loose if word.islower() else exact).append(word.encode())
        spelt = [value.encode("utf-8", "surrogateescape") for value in values]
        self._exact = _finder([*exact, *spelt])
        self._loose = _finder(loose)
        self._across = any(b"\n" in value for value in spelt)

    def spans(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Where in `data` such lines stand, in order, whole and with their newlines."""
        found = self._exact.find_matches_as_indexes(data) + self._loose.find_matches_as_indexes(data.lower())
        if found and self._across:  # finders report one of two that overlap, and the other may reach farther
            yield 0, len(data)
            return
        done = 0
        for _, start, end in sorted(found, key=lambda match: match[1]):
            if end > done:
                first = max(done, data.rfind(b"\n", done, start) + 1)
                done = data.find(b"\n", end - 1) + 1 or len(data)
                yield first, done


def _finder(needles: list[bytes]) -> BytesAhoCorasick:
    # This kind of search is the one that looks at many bytes at a time.
    return BytesAhoCorasick(needles, matchkind=MatchKind.LeftmostFirst)
