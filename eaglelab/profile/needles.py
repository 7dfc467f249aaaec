"""The words by which a line of a log is found worth reading, and one search for all of them at once.

Every reader of lines names its words here, and nothing else is ever looked at: a log of many GB is searched at the speed
of memory, and only the lines that have such a word are parsed.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from functools import cache
from itertools import chain

import numpy as np
import numpy.typing as npt
from ahocorasick_rs import BytesAhoCorasick, MatchKind

from eaglelab.profile.chunk_lines import Ints
from eaglelab.profile.decode_lines import NO_GRAPH
from eaglelab.profile.notable import NOTABLE_PARTS
from eaglelab.profile.tool_lines import TOKENS_WORD, TOOL_WORDS, VERIFIES_WORD

__all__ = ["Kind", "Places", "decode_offsets", "kinds_in", "places_in"]


class Kind(Enum):
    """What a line that has the word may be."""

    RECORD = auto()
    BLOCK = auto()
    SIMULATED = auto()
    DECODE = auto()
    IDLE_PREFILL = auto()
    SERVER = auto()
    NOTABLE = auto()
    TOOL = auto()
    VERIFIES = auto()
    TOKENS = auto()
    NO_GRAPH = auto()


# Of "Decode batch" the part that the search is fastest with: few words have these first letters.
_DECODE = ("ode batch", "gen throughput (token/s)")
_WORDS = {
    '"schema"': Kind.RECORD,
    "EAGLE3_PROF": Kind.BLOCK,
    "simulated GPU": Kind.SIMULATED,
    "#running-req: 0": Kind.IDLE_PREFILL,
    "server_args=": Kind.SERVER,
    **{f"{name}{more}": Kind.SERVER for name in ("sglang", "SGLang") for more in ("==", "[", " v", "_v")},
    **dict.fromkeys(NOTABLE_PARTS, Kind.NOTABLE),
    **dict.fromkeys(TOOL_WORDS, Kind.TOOL),
    VERIFIES_WORD: Kind.VERIFIES,
    TOKENS_WORD: Kind.TOKENS,
    NO_GRAPH.decode(): Kind.NO_GRAPH,
}
_ALL_WORDS = {**_WORDS, **dict.fromkeys(_DECODE, Kind.DECODE)}
_KINDS = tuple(_ALL_WORDS.values())
_CODES = np.array([kind.value for kind in _KINDS], np.int64)


def _search(words: Sequence[str]) -> BytesAhoCorasick:
    """Leftmost matches are what the library has a vectorised search for: some GB/s, whatever the number of words."""
    return BytesAhoCorasick([word.encode() for word in words], matchkind=MatchKind.LeftmostFirst)


_BUT_DECODE = _search(tuple(_WORDS))
_ALL = _search(tuple(_ALL_WORDS))
_DECODE_ONLY = _search(_DECODE)


class Places:
    """Where in a chunk the words stand, ascending."""

    def __init__(self, found: Sequence[tuple[int, int, int]]) -> None:
        table = np.fromiter(chain.from_iterable(found), np.int64, 3 * len(found)).reshape(-1, 3)
        self._offsets, self._codes = table[:, 1], _CODES[table[:, 0]]

    def of(self, *kinds: Kind) -> Ints:
        """The offsets of the words of these kinds."""
        return self._offsets[_among(kinds)[self._codes]]

    def but(self, *kinds: Kind) -> Ints:
        """The offsets of all other words."""
        return self._offsets[~_among(kinds)[self._codes]]


def kinds_in(line: bytes) -> list[Kind]:
    """What one line may be; empty if nothing in it is of interest."""
    return [_KINDS[word] for word, _, _ in _ALL.find_matches_as_indexes(line)]


def places_in(chunk: bytes, *, decode: bool) -> Places:
    """The words in a chunk, those of decode lines among them or not."""
    return Places((_ALL if decode else _BUT_DECODE).find_matches_as_indexes(chunk))


def decode_offsets(chunk: bytes) -> list[int]:
    """Where in a chunk a word of a decode line stands, ascending."""
    return [start for _, start, _ in _DECODE_ONLY.find_matches_as_indexes(chunk)]


@cache
def _among(kinds: tuple[Kind, ...]) -> npt.NDArray[np.bool_]:
    return np.isin(np.arange(len(Kind) + 1), [kind.value for kind in kinds])
