"""The command line and the environment that an SGLang server is started with."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from eaglelab.errors import InputError
from eaglelab.host import MOST_STEPS, FlagValue, Host

__all__ = ["OWN_FLAGS", "RENDEZVOUS_FLAGS", "parse_steps", "server_command", "server_env"]

OWN_FLAGS: Mapping[str, str] = MappingProxyType(
    {
        "model-path": "server.model_path",
        "model": "server.model_path",
        "host": "server.host",
        "port": "server.port",
        "tp-size": "server.tp_size",
        "tp": "server.tp_size",
        "tensor-parallel-size": "server.tp_size",
        "nnodes": "server.nnodes",
        "node-rank": "server.nnodes",
        "speculative-algorithm": "server.speculative.algorithm",
        "speculative-draft-model-path": "server.speculative.draft_model_path",
        "speculative-draft-model": "server.speculative.draft_model_path",
        "speculative-num-steps": "server.speculative.num_steps",
        "speculative-eagle-topk": "server.speculative.eagle_topk",
        "speculative-num-draft-tokens": "server.speculative.num_draft_tokens",
    }
)
"""Flags that are always given here, by the key of the inventory that sets them."""

RENDEZVOUS_FLAGS = ("dist-init-addr", "nccl-init-addr")
"""One host may be told where its own ranks meet; for several it is said here."""

_NOTHING: Mapping[str, FlagValue] = MappingProxyType({})
_NO_ENV: Mapping[str, str] = MappingProxyType({})
_TOO_MANY = f"SGLang captures a graph for each; {MOST_STEPS} at most here"


def server_command(
    host: Host,
    *,
    python: str,
    steps: int | None,
    extra: Mapping[str, FlagValue] = _NOTHING,
    api_key: str | None = None,
) -> list[str]:
    """The full argv of a server on `host`, run by `python` there.

    `steps`: draft steps a cycle; None starts the baseline, without any flag of speculation.
    `extra`: further flags, named as in the inventory's `server.flags`, which they override.
    Raises InputError where a path is not set, or the host has no speculation and `steps` asks for it.
    """
    host.require("server.model_path")
    server = host.server
    argv = [python, "-m", "sglang.launch_server", "--model-path", str(server.model_path)]
    argv += ["--host", server.host, "--port", str(server.port), "--tp-size", str(server.tp_size), *_nodes(host)]
    if steps is not None:
        argv += _speculation(host, steps)
    for flag, value in {**server.flags, **extra}.items():
        if flag in OWN_FLAGS:
            raise InputError(f"flag {flag} is set by {OWN_FLAGS[flag]}", where=host.name, hint=f"use {OWN_FLAGS[flag]}")
        if flag in RENDEZVOUS_FLAGS and host.node is not None:
            raise InputError(f"flag {flag} is given here", where=host.name, hint="use server.dist_init_host and _port")
        if flag == "api-key" and api_key is not None:
            continue
        if steps is not None or not flag.startswith("speculative-"):
            argv += _flag(flag, value)
    return argv if api_key is None else [*argv, "--api-key", api_key]


def server_env(host: Host, extra: Mapping[str, str] = _NO_ENV) -> dict[str, str]:
    """Variables that the server's process gets beside those it inherits; `extra` wins over the inventory."""
    return {**host.server.env, **extra}


def parse_steps(text: str) -> tuple[int, ...]:
    """The step counts in `2` or `2,3,5`, in the order given, each from 1 to 64. Raises InputError."""
    steps: list[int] = []
    for part in (part.strip() for part in text.split(",")):
        number = part.removeprefix("-")
        if not (number.isascii() and number.isdecimal()):
            what = f"'{part}' is not a whole number" if part else "a step count is empty"
            raise _bad_steps(what)
        digits = number.lstrip("0")
        if part != number or not digits:
            raise _bad_steps(f"{part} steps are not possible: a step count is 1 or more")
        if len(digits) > len(str(MOST_STEPS)) or int(digits) > MOST_STEPS:
            raise _bad_steps(f"{part} steps are not possible: {_TOO_MANY}")
        if int(number) in steps:
            raise _bad_steps(f"{int(number)} steps are asked for twice")
        steps.append(int(number))
    return tuple(steps)


def _speculation(host: Host, steps: int) -> list[str]:
    host.require("server.speculative.draft_model_path")
    speculative = host.server.speculative
    if speculative is None:
        what = f"{steps} steps are asked for and server.speculative of host '{host.name}' is empty"
        raise InputError(what, where=host.name, hint="write server.speculative.draft_model_path into the inventory")
    if steps < 1:
        raise _bad_steps(f"{steps} steps are not possible: a step count is 1 or more")
    if steps > MOST_STEPS:
        raise _bad_steps(f"{steps} steps are not possible: {_TOO_MANY}")
    # With top-k 1 SGLang silently changes any other number of draft tokens to steps + 1, or (up to 0.4.5.post2) obeys.
    tokens = speculative.num_draft_tokens if speculative.eagle_topk > 1 else None
    # All three counts, always: SGLang fails on some of them alone and chooses its own where none is given.
    return [
        "--speculative-algorithm",
        speculative.algorithm,
        "--speculative-draft-model-path",
        str(speculative.draft_model_path),
        "--speculative-num-steps",
        str(steps),
        "--speculative-eagle-topk",
        str(speculative.eagle_topk),
        "--speculative-num-draft-tokens",
        str(tokens or steps + 1),
    ]


def _nodes(host: Host) -> list[str]:
    """What makes a host one node of a server. Raises InputError where the inventory does not say which."""
    node, count = host.node, host.server.nnodes
    if count == 1:
        return []
    if node is None:
        what = f"server.nnodes of host '{host.name}' is {count}, and it is in no group of {count} such hosts"
        raise InputError(what, where=host.where, hint="name its hosts in one group, in the order of their ranks")
    return ["--nnodes", str(count), "--node-rank", str(node.rank), "--dist-init-addr", node.address]


def _flag(name: str, value: FlagValue) -> list[str]:
    if isinstance(value, bool):
        return [f"--{name}"] if value else []
    values = value if isinstance(value, list) else [value]
    return [f"--{name}", *map(str, values)]


def _bad_steps(what: str) -> InputError:
    return InputError(what, where="--steps", hint="one or more step counts, such as --steps 2 or --steps 2,3,5")
