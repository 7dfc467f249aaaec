"""Which installation of SGLang is at hand, what it shares with others, and what else of ours is on the host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

from eaglelab.actions.as_found import AT_REST
from eaglelab.context import Context
from eaglelab.errors import HostError

__all__ = ["refuse_unwritable", "say_gone", "say_installation"]

_PAGE = "docs/installations.md"


def say_installation(context: Context, facts: Mapping[str, Any]) -> None:
    """What a reader would not expect of the package that is to be patched; nothing where there is one of its own."""
    for other in facts.get("other_packages", ()):
        context.say.line(
            f"  {other} is there as well: this Python does not import it, and it is left alone", style="dim"
        )
    workers = facts["files"].values()
    if links := sum(bool(found.get("link")) for found in workers):
        words = "patched copies take their place, and the links come back with a rollback"
        context.say.line(f"  {_count(links)} into a store that others may share: {words}", style="dim")
    if shared := sum(not found.get("link") and found.get("links", 1) > 1 for found in workers):
        words = "what else bears their name, as in a cache, keeps the original"
        context.say.line(f"  {_count(shared, 'hard ')}: {words}", style="dim")
    elsewhere = _folders(
        item
        for item in facts["states"]
        if item["state"] not in AT_REST and not PurePosixPath(item["path"]).is_relative_to(facts["package"])
    )
    for folder in elsewhere:
        context.say.line(
            f"  files of another installation are not original: {folder}; {context.invoke('rollback')} puts them back",
            style="yellow",
        )


def say_gone(context: Context, files: Iterable[Mapping[str, Any]]) -> None:
    """What rollback found nothing to put back in, and keeps on record all the same."""
    for folder in _folders(item for item in files if item["state"] == "gone"):
        context.say.line(
            f"  {folder}: its SGLang is gone, so there is nothing to put back; should it return, rollback does it then",
            style="yellow",
        )


def _count(number: int, kind: str = "") -> str:
    return f"1 worker file is a {kind}link" if number == 1 else f"{number} worker files are {kind}links"


def _folders(files: Iterable[Mapping[str, Any]]) -> list[str]:
    return sorted({str(PurePosixPath(item["path"]).parent) for item in files})


def refuse_unwritable(context: Context, facts: Mapping[str, Any]) -> None:
    """Said before anything is stopped or loaded: a swap needs to write the folder of each worker."""
    for target, writable in facts["writable"].items():
        path, where = facts["files"][target]["path"], context.host.name
        if target in facts.get("read_only", ()):
            copy = f"{facts['home'].rstrip('/')}/sglang-copy"
            raise HostError(
                f"the folder of {path} is on a read-only file system (an image, or a mount)",
                where=where,
                hint="nothing was changed. Start the container with a file system that can be written, or run a copy: "
                f"on the host mkdir -p {copy} && cp -rL {facts['package']} {copy}/, and in inventory.yaml "
                f"`sglang: {copy}` and PYTHONPATH: {copy} under `server.env` ({_PAGE})",
            )
        if not writable:
            raise HostError(
                f"{facts['user']} may not write the folder of {path}",
                where=where,
                hint="log in as its owner (`user` in inventory.yaml); nothing was changed",
            )
