"""Whether NCCL_ALGO and NCCL_PROTO leave NCCL a way to do what tensor parallel asks of it: where they do not, the server dies.

Read in NCCL 2.16 to 2.30 (`parseList`, `ncclTopoTuneModel`, `getAlgoInfo`), seen with 2.28.9. From 2.24 on both take a value for each
function (`allreduce:Tree`), and a function that is left with nothing is an error when it is first called. Before, Ring stood in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Conflict", "nccl_conflict"]

_FUNCTIONS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
_ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
_PROTOCOLS = ("LL", "LL128", "Simple")

_NEEDED = {
    "AllReduce": frozenset(_ALGORITHMS) - {"PAT"},
    "AllGather": frozenset(("Ring", "CollNetDirect", "NVLS", "PAT")),
}
"""What a server on several GPUs calls in any case, the sums of its layers and its logits, and the algorithms that can do it."""
_EVERY_PROTOCOL = ("Tree", "Ring")
"""The other algorithms have Simple only."""

_BY_FUNCTION_FROM = (2, 24)


@dataclass(frozen=True)
class Conflict:
    """`why` NCCL would not take the settings, in one sentence, and what to set `instead`, where that is known.

    `fatal`: the server dies of it; else it goes on without heeding them.
    """

    why: str
    instead: str | None = None
    fatal: bool = True


def nccl_conflict(env: Mapping[str, str], *, world: int, nodes: int, version: str | None) -> Conflict | None:
    """None where NCCL finds a way, or where nothing speaks against it. `env`: of the server; `world`: its ranks.

    `version` is NCCL's own; where it is not known, it is taken to be 2.24 or newer, as it is from PyTorch 2.7 on. What only
    the hardware can tell (NVLS, LL128) is taken to be there.
    """
    asked = {name: env[name] for name in ("NCCL_ALGO", "NCCL_PROTO") if env.get(name)}
    if world == 1 or not asked:
        return None
    if (number := _release(version)) is not None and number < _BY_FUNCTION_FROM:
        return next(_for_a_function_too_early(asked, str(version)), None)
    try:
        algorithms = _enabled("NCCL_ALGO", asked, _ALGORITHMS)
        protocols = _enabled("NCCL_PROTO", asked, _PROTOCOLS)
    except _Unreadable as error:
        return Conflict(f"{error}; that ends the server while it starts")
    there = _there(env, world, nodes)
    for function, able in _NEEDED.items():
        ways = [way for way in _ALGORITHMS if way in able & there and _speaks(way, protocols[function])]
        if not algorithms[function] & set(ways):
            words = " ".join(f"{name}={value}" for name, value in asked.items())
            can = f" ({', '.join(ways)} can)" if ways else ""
            why = f"{words} leaves NCCL nothing for {function}{can}: from NCCL 2.24 on that ends the server as it captures its graphs"
            return Conflict(why, _instead(env, world, nodes))
    return None


def _instead(env: Mapping[str, str], world: int, nodes: int) -> str | None:
    """The same algorithms for all-reduce alone, where that is a way."""
    value = env.get("NCCL_ALGO", "")
    if not value or ":" in value:
        return None
    narrowed = {**env, "NCCL_ALGO": f"allreduce:{value}"}
    return (
        None
        if nccl_conflict(narrowed, world=world, nodes=nodes, version=None)
        else f"NCCL_ALGO={narrowed['NCCL_ALGO']}"
    )


def _speaks(algorithm: str, protocols: frozenset[str]) -> bool:
    return "Simple" in protocols or (bool(protocols) and algorithm in _EVERY_PROTOCOL)


def _there(env: Mapping[str, str], world: int, nodes: int) -> frozenset[str]:
    """The algorithms that NCCL does not switch off itself."""
    off = set()
    if env.get("NCCL_COLLNET_ENABLE", "0") == "0":
        off |= {"CollNetDirect", "CollNetChain"} | ({"NVLS"} if nodes > 1 else set())
    if nodes == 1:
        off.add("NVLSTree")
    if nodes != world and env.get("NCCL_PAT_ENABLE") != "1":  # left to itself, PAT is for one GPU a machine
        off.add("PAT")
    if env.get("NCCL_NVLS_ENABLE") == "0" or world // nodes <= 2:
        off |= {"NVLS", "NVLSTree"}
    return frozenset(_ALGORITHMS) - off


class _Unreadable(ValueError):
    pass


def _enabled(name: str, asked: Mapping[str, str], elements: Sequence[str]) -> dict[str, frozenset[str]]:
    """What is enabled for each function: `LIST;FUNCTION:LIST;...`, a list begun with `^` names what is not.

    Raises _Unreadable for what NCCL refuses to read.
    """
    value = asked.get(name, "")
    found = dict.fromkeys(_FUNCTIONS, frozenset(elements))
    for number, entry in enumerate(filter(None, value.split(";"))):
        function, _, listed = (entry if ":" in entry else f":{entry}").partition(":")
        if number and not function:
            raise _Unreadable(f"{name}={value}: every part but the first has to name its function ({entry})")
        meant = [each for each in _FUNCTIONS if not function or each.lower() == function.lower()]
        if not meant:
            raise _Unreadable(f"{name}={value}: NCCL knows no function {function!r} ({', '.join(_FUNCTIONS)})")
        named = frozenset(_known(name, value, listed.removeprefix("^"), elements))
        for each in meant:
            found[each] = frozenset(elements) - named if listed.startswith("^") else named
    return found


def _known(name: str, value: str, listed: str, elements: Sequence[str]) -> Iterator[str]:
    for word in filter(None, listed.split(",")):
        element = next((each for each in elements if each.lower() == word.lower()), None)
        if element is None:
            raise _Unreadable(f"{name}={value}: NCCL knows no {word!r} ({', '.join(elements)})")
        yield element


def _for_a_function_too_early(asked: Mapping[str, str], version: str) -> Iterator[Conflict]:
    for name, value in asked.items():
        if ":" in value:
            plain = ",".join(dict.fromkeys(each.partition(":")[2] or each for each in value.split(";")))
            why = f"{name}={value}: NCCL {version} there takes no value for one function (2.24 does) and would not heed it"
            yield Conflict(why, f"{name}={plain}", fatal=False)


def _release(version: str | None) -> tuple[int, ...] | None:
    found = re.match(r"(\d+)\.(\d+)", version or "")
    return (int(found[1]), int(found[2])) if found else None
