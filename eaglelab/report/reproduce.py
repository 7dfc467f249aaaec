"""The command line that makes a run again, from its request.json, quoted as a shell wants it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from eaglelab.masking import MASK

__all__ = ["command_line", "lacks_a_secret", "show_again", "show_log_again"]

_SWITCHES = ("no_baseline", "no_probe", "separate_loads", "anyway", "keep", "spread")


def command_line(request: Mapping[str, Any]) -> str | None:
    """What was typed; None for a run without a record (of an early version, or of a command that cannot be resumed).

    A secret is not in the record: `***` stands in its place and has to be given again.
    """
    command = request.get("command")
    if not isinstance(command, str):
        return None
    words = ["invoke", command]
    if command == "play":
        words.append(str(request.get("playbook", "")))
    hosts = request.get("hosts")
    if hosts:
        words += ["--host", ",".join(map(str, hosts))]
    if request.get("inventory"):
        words += ["--inventory", str(request["inventory"])]
    words += _variables(command, _mapping(request, "vars"))
    words += _more(_mapping(request, "more"))
    for name in ("tags", "skip_tags"):
        if request.get(name):
            words += [_option(name), ",".join(map(str, request[name]))]
    words += [_option(name) for name in ("takeover", "accept_drift") if request.get(name)]
    return shlex.join(words)


def show_again(run: str, host: str = "", several: bool = False) -> str:
    """What shows the run's report again."""
    return shlex.join(["invoke", "report", "--run", f"{run}:{host}" if several else run])


def show_log_again(logs: Sequence[str]) -> str:
    """What shows the report of these logs again."""
    return shlex.join(["invoke", "report", *(word for log in logs for word in ("--log", log))])


def lacks_a_secret(line: str) -> bool:
    """Whether something in a command line was masked."""
    return MASK in line


def _variables(command: str, given: Mapping[str, Any]) -> Iterator[str]:
    for name, value in given.items():
        if command == "play":
            yield from ("--var", f"{name}={_text(value)}")
        else:
            yield from (_option(name), _text(value))


def _more(more: Mapping[str, Any]) -> Iterator[str]:
    """bench and sweep."""
    if more.get("file"):
        yield from ("--file", str(more["file"]))
    if more.get("steps"):
        yield from ("--steps", _text(more["steps"]))
    if more.get("client"):
        yield from ("--client", str(more["client"]))
    for name, option in (("env", "--env"), ("server_args", "--server-arg")):
        for key, values in _mapping(more, name).items():
            yield from (option, f"{key}={_text(values)}")
    if more.get("combine") == "zip":
        yield "--zip"
    if array := more.get("array"):
        yield from ("--array",) if array is True else ("--array", str(array))
    yield from (_option(name) for name in _SWITCHES if more.get(name))


def _mapping(found: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = found.get(name)
    return value if isinstance(value, Mapping) else {}


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(_text, value))
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)
