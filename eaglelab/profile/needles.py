"""The words by which a line of a log is found worth reading, and one search for all of them at once.

Every reader of lines names its words here, and nothing else is ever looked at: a log of many GB is searched at the speed
of memory, and only the lines that have such a word are parsed.
"""

from __future__ import annotations

from enum import Enum, auto

from ahocorasick_rs import BytesAhoCorasick, MatchKind

from eaglelab.profile.decode_lines import NO_GRAPH
from eaglelab.profile.notable import NOTABLE
from eaglelab.profile.tool_lines import REQUEST_WORD, TOOL_WORDS

__all__ = ["Kind", "decode_offsets", "kinds_in", "words_in"]


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
    REQUEST = auto()
    NO_GRAPH = auto()


_DECODE = ("Decode batch", "gen throughput (token/s)")
_WORDS = {
    '"schema"': Kind.RECORD,
    "EAGLE3_PROF": Kind.BLOCK,
    "simulated GPU": Kind.SIMULATED,
    "#running-req: 0": Kind.IDLE_PREFILL,
    "server_args=": Kind.SERVER,
    **{f"{name}{more}": Kind.SERVER for name in ("sglang", "SGLang") for more in ("==", "[", " v", "_v")},
    **{word: Kind.NOTABLE for words in NOTABLE.values() for word in words},
    **dict.fromkeys(TOOL_WORDS, Kind.TOOL),
    REQUEST_WORD: Kind.REQUEST,
    NO_GRAPH.decode(): Kind.NO_GRAPH,
}
_ALL_WORDS = {**_WORDS, **dict.fromkeys(_DECODE, Kind.DECODE)}
_KINDS = tuple(_ALL_WORDS.values())


def _search(words: tuple[str, ...]) -> BytesAhoCorasick:
    """Leftmost matches are what the library has a vectorised search for: some GB/s, whatever the number of words."""
    return BytesAhoCorasick([word.encode() for word in words], matchkind=MatchKind.LeftmostFirst)


_BUT_DECODE = _search(tuple(_WORDS))
_ALL = _search(tuple(_ALL_WORDS))
_DECODE_ONLY = _search(_DECODE)


def kinds_in(line: bytes) -> list[Kind]:
    """What one line may be; empty if nothing in it is of interest."""
    return [_KINDS[word] for word, _, _ in _ALL.find_matches_as_indexes(line)]


def words_in(chunk: bytes) -> list[tuple[int, Kind]]:
    """Where in a chunk a word stands that is not a decode line's, and its kind; ascending."""
    return [(start, _KINDS[word]) for word, start, _ in _BUT_DECODE.find_matches_as_indexes(chunk)]


def decode_offsets(chunk: bytes) -> list[int]:
    """Where in a chunk a word of a decode line stands, ascending."""
    return [start for _, start, _ in _DECODE_ONLY.find_matches_as_indexes(chunk)]
