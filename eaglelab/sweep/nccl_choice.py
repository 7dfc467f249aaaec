"""Whether NCCL_ALGO and NCCL_PROTO leave NCCL a way to do what tensor parallel asks of it: where they do not, the server dies.

Read in NCCL 2.18 to 2.30 (`parseList`, `ncclTopoTuneModel`, `getAlgoInfo`) and SGLang 0.4.3 to 0.5.23; seen with NCCL 2.28.9. From
2.24 on both variables take a value for each function (`allreduce:Tree`), and a function that is left without an algorithm is an
error when it is first called. Before, `NCCL_ALGO=Tree` was for all-reduce, and Ring stood in for the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from eaglelab.host import FlagValue

__all__ = ["Conflict", "nccl_conflict"]

_FUNCTIONS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
_ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
_PROTOCOLS = ("LL", "LL128", "Simple")

_CALLED = {
    "AllReduce": (frozenset(_ALGORITHMS) - {"PAT"}, "while it starts"),
    "AllGather": (frozenset(("Ring", "CollNetDirect", "NVLS", "PAT")), "while it starts"),
    "Broadcast": (frozenset(("Ring",)), "at the first request that samples"),
}
"""What a server on several GPUs calls (sums of its layers, its logits, what verify sampled), what can do it, and when it is called."""
_EVERY_PROTOCOL = ("Tree", "Ring")
"""The other algorithms have Simple only."""

_BY_FUNCTION_FROM = (2, 24)


@dataclass(frozen=True)
class Conflict:
    """`why` NCCL would not do as it is told, in one sentence, and the NCCL_ALGO that it takes `instead`, where that is known.

    `certain`: the server dies while it starts, whoever uses it.
    """

    why: str
    instead: str | None = None
    certain: bool = False


def nccl_conflict(
    env: Mapping[str, str], flags: Mapping[str, FlagValue], *, world: int, nodes: int, version: str | None
) -> Conflict | None:
    """None where NCCL finds a way, or may find one: what only the hardware or another file tells is taken to be there.

    `env`, `flags`: the server's; `world`: its ranks; `version`: NCCL's own. Where that is not known, it is taken to be 2.24 or
    newer, as it is from PyTorch 2.7 on.
    """
    asked = {name: env[name] for name in ("NCCL_ALGO", "NCCL_PROTO") if env.get(name)}
    if world == 1 or not asked:
        return None
    release = None if env.get("SGLANG_NCCL_SO_PATH") else _release(version)  # SGLang then loads another one
    if release is not None and release < _BY_FUNCTION_FROM:
        return next(_too_new(asked, str(version)), None)
    unknown = "" if release else "; which NCCL is there could not be read"
    try:
        algorithms = _enabled("NCCL_ALGO", asked, _ALGORITHMS)
        protocols = _enabled("NCCL_PROTO", asked, _PROTOCOLS)
    except _Unreadable as error:
        return Conflict(f"{error}: that ends the server while it starts{unknown}", certain=release is not None)
    there = _there(env, flags, world, nodes)
    for function, (able, when) in _CALLED.items():
        ways = [way for way in _ALGORITHMS if way in able & there and _speaks(way, protocols[function])]
        if not algorithms[function] & set(ways):
            words = " ".join(f"{name}={value}" for name, value in asked.items())
            can = f" ({', '.join(ways)} can)" if ways else ""
            why = f"{words} leaves NCCL nothing for {function}{can}: from NCCL 2.24 on that ends the server {when}{unknown}"
            certain = release is not None and when == "while it starts"
            return Conflict(why, _instead(env, flags, world, nodes), certain)
    return None


def _instead(env: Mapping[str, str], flags: Mapping[str, FlagValue], world: int, nodes: int) -> str | None:
    """The same algorithms for all-reduce alone, where that is a way."""
    value = env.get("NCCL_ALGO", "")
    if not value or ":" in value:
        return None
    narrowed = f"allreduce:{value}"
    left = nccl_conflict({**env, "NCCL_ALGO": narrowed}, flags, world=world, nodes=nodes, version=None)
    return None if left else narrowed


def _speaks(algorithm: str, protocols: frozenset[str]) -> bool:
    return "Simple" in protocols or (bool(protocols) and algorithm in _EVERY_PROTOCOL)


def _there(env: Mapping[str, str], flags: Mapping[str, FlagValue], world: int, nodes: int) -> frozenset[str]:
    """The algorithms that may be there. On several machines CollNet may: NCCL's own files can switch it on."""
    off = set()
    asked_for = flags.get("enable-nccl-nvls") or flags.get("enable-symm-mem")
    if not asked_for and env.get("NCCL_NVLS_ENABLE", "0") == "0":  # SGLang itself then sets it to 0
        off |= {"NVLS", "NVLSTree"}
    if nodes == 1:
        off |= {"CollNetDirect", "CollNetChain", "NVLSTree"}
    pat = env.get("NCCL_PAT_ENABLE", "2")
    if pat == "0" or (pat == "2" and nodes < world):  # left to itself it is for one GPU a machine
        off.add("PAT")
    return frozenset(_ALGORITHMS) - off


class _Unreadable(ValueError):
    """A value that NCCL refuses to read."""


def _enabled(name: str, asked: Mapping[str, str], elements: Sequence[str]) -> dict[str, frozenset[str]]:
    """What is enabled for each function: `LIST;FUNCTION:LIST;...`, a list that begins with `^` names what is not.

    Raises _Unreadable.
    """
    value = asked.get(name, "")
    found = dict.fromkeys(_FUNCTIONS, frozenset(elements))
    for number, entry in enumerate(filter(None, value.split(";"))):
        function, listed = _parts(entry)
        if not function and (number or value.startswith(";")):
            raise _Unreadable(f"{name}={value}: every part but the first has to name its function ({entry})")
        meant = [each for each in _FUNCTIONS if not function or each.lower() == function.lower()]
        if not meant:
            raise _Unreadable(f"{name}={value}: NCCL knows no function {function!r} ({', '.join(_FUNCTIONS)})")
        named = frozenset(_known(name, value, listed.removeprefix("^"), elements))
        for each in meant:
            found[each] = frozenset(elements) - named if listed.startswith("^") else named
    return found


def _parts(entry: str) -> tuple[str, str]:
    """Function ("" for all) and list: the first two words between colons, as NCCL takes them."""
    words = [word for word in entry.split(":") if word][:2]
    return (words[0], words[1]) if len(words) == 2 else ("", "".join(words))


def _known(name: str, value: str, listed: str, elements: Sequence[str]) -> Iterator[str]:
    for word in filter(None, listed.split(",")):
        element = next((each for each in elements if each.lower() == word.lower()), None)
        if element is None:
            raise _Unreadable(f"{name}={value}: NCCL knows no {word!r} ({', '.join(elements)})")
        yield element


def _too_new(asked: Mapping[str, str], version: str) -> Iterator[Conflict]:
    """What NCCL before 2.24 does not read: it passes over such words, and what is then left, or nothing, was not asked for."""
    for name, value in asked.items():
        if set(value) & set(":;"):
            one = re.fullmatch(r"allreduce:([\w,]+)", value, re.IGNORECASE)
            why = f"{name}={value}: NCCL reads a value for one function from 2.24 on, and {version} is there"
            yield Conflict(why, one[1] if one and name == "NCCL_ALGO" else None)
        try:
            _enabled(name, asked, _ALGORITHMS if name == "NCCL_ALGO" else _PROTOCOLS)
        except _Unreadable as error:
            yield Conflict(f"{error}: NCCL {version}, which is there, passes over it")


def _release(version: str | None) -> tuple[int, ...] | None:
    found = re.match(r"(\d+)\.(\d+)", version or "")
    return (int(found[1]), int(found[2])) if found else None
