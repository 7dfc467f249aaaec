"""The one invariant, in three parts: whole files at any moment, originals after a rollback, and a clear end of a command."""

from __future__ import annotations

import hashlib
import re
import signal
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from gate import PATIENCE_S
from nursery import Done
from scene import ROOT, picture
from stage import HOST, PROBE, Stage

from eaglelab.patching.plan import plan_file
from eaglelab.patching.spec import load_patch
from eaglelab.remote.agent.journal import Journal
from eaglelab.remote.agent.processes import listener

__all__ = ["Allowed", "clear_end", "original", "whole"]

LEFT_S = PATIENCE_S + 4.0
"""How long what is left on the host may take to end by itself."""


@cache
def patched(path: Path, data: bytes) -> str:
    """sha256 of a worker as the patch makes it, planned here and not read from the host."""
    spec = load_patch(ROOT / "patches/eagle3-profile")
    return plan_file(data, spec, path=str(path)).patched_sha256


@cache
def probe() -> str:
    return hashlib.sha256((ROOT / "patches/eagle3-profile/eaglelab_probe.py").read_bytes()).hexdigest()


_Found = dict[str, tuple[str, int, int, int]]
"""File (below the package) -> its sha256, mode, owner and group."""

Allowed = Callable[[str, str | None], bool]
"""File (below the package) and its sha256 (None: gone) -> whether a stranger, and not we, made it so."""


def whole(stage: Stage, strange: Allowed) -> list[str]:
    """Each file is the original, the patched one or (`strange`) somebody's, and the host's journal says which."""
    found, said = _at_once(stage)
    wrong: list[str] = []
    for name, (digest, mode, uid, gid) in stage.original.items():
        now = found.get(name)
        known = {digest, patched(Path(name), stage.bytes_of(name))} if "worker" in name else {digest}
        if not strange(name, now and now[0]):
            if now is None or now[0] not in known:
                wrong.append(f"{name} is neither the original nor the patched one")
            elif now[1:] != (mode, uid, gid):
                wrong.append(f"{name} has another mode or owner: {now[1:]}")
    for name in found.keys() - stage.original.keys():
        if ".eaglelab-" in name:  # an unfinished write of a killed agent; a rollback is to sweep it
            continue
        if (name != PROBE or found[name][0] != probe()) and not strange(name, found[name][0]):
            wrong.append(f"{name} is not ours, or not whole")
    if isinstance(said, Exception):
        return [*wrong, f"the host's manifest cannot be read: {said}"]
    return wrong + _recorded(stage, found, said)


def _at_once(stage: Stage) -> tuple[_Found, dict[str, str] | Exception]:
    """The files, and what the journal says at that moment: an agent whose controller was killed may be at work still."""
    while True:
        found = _picture(stage)
        try:
            said: Any = {item["path"]: item["state"] for item in Journal(str(stage.state)).states()}
        except Exception as error:  # noqa: BLE001 - whatever it is, the host's memory cannot be read
            said = error
        if _picture(stage) == found:
            return found, said


def _recorded(stage: Stage, found: _Found, states: dict[str, str]) -> list[str]:
    wrong = []
    for name, (digest, *_) in found.items():
        worker = "worker" in name and name in stage.original
        ours = (name == PROBE and digest == probe()) or (worker and digest == patched(Path(name), stage.bytes_of(name)))
        said = states.get(str(stage.package / name), "not on record")
        if ours and said != "patched":
            wrong.append(f"{name} is patched, and the journal says: {said}")
    return wrong


def _picture(stage: Stage) -> _Found:
    return {name: what for name, what in picture(stage.package).items() if not name.endswith(".fill")}


def original(stage: Stage) -> list[str]:
    """After a rollback: every byte, mode and owner as before, nothing beside them, no process of ours, theirs alive."""
    found, before = _picture(stage), stage.original
    wrong = [
        f"after the rollback {name} is {found.get(name)}, it was {before.get(name)}"
        for name in sorted(found.keys() | before.keys())
        if found.get(name) != before.get(name)
    ]
    wrong += [f"left behind: {path}" for path in stage.state.rglob("*.tmp")]
    if (stage.state / "manifest.json").exists():
        wrong.append("the manifest outlived the rollback")
    return wrong + left(stage)


def left(stage: Stage) -> list[str]:
    deadline = time.monotonic() + LEFT_S
    while stage.ours() and time.monotonic() < deadline:
        time.sleep(0.05)
    wrong = [f"process {pid} outlived the rollback: {line[:150]}" for pid, line in stage.ours().items()]
    holder = listener(stage.port)
    if holder is not None:
        wrong.append(f"the port is still held by {holder}")
    if not stage.bystander_lives():
        wrong.append("the bystander was killed")
    return wrong


def clear_end(done: Done, killed: bool) -> list[str]:
    """A command ends by itself, with an exit code of the contract and, unless it went well, words that help."""
    if done.hung:
        return [f"no end within {done.seconds:.0f} s, at this:\n{done.out[-1500:]}{done.err[-4000:]}"]
    if killed:
        return [] if done.code in (0, -signal.SIGKILL) else [f"killed, and it ended with {done.code}"]
    if done.code not in (0, 1, 3, 130):
        return [f"exit code {done.code}: {done.err[-800:]}"]
    if done.code and not ("error: " in done.err and HOST in done.err and "hint: " in done.err):
        return [f"exit {done.code} without host or hint: {done.err[-500:]}"]
    if re.search(r"^Traceback|\bunexpected: ", done.err, re.M):
        return [f"not foreseen: {done.err[-800:]}"]
    return []
