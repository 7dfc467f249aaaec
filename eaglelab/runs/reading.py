"""Reads the folder of a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from eaglelab.errors import InputError
from eaglelab.nearest import did_you_mean
from eaglelab.profile.measurement_set import from_json
from eaglelab.profile.setting_json import setting_of
from eaglelab.profile.summary import Profile
from eaglelab.runs.evidence import LoadEvidence, RunEvidence

__all__ = ["SET_ASIDE", "read_run"]

_Made = TypeVar("_Made")
SET_ASIDE = "set-aside"
"""The folder of what a run measured and does not count any more."""
_MARKS = ("profile.json", "fingerprint.json", "server.json", "server.log")
"""One of these is in the folder of every load."""
_RUN = ("request.json", "events.jsonl", "inventory.json", "measurements.json", "serving.json", *_MARKS)
"""One of these is in the folder of every run, or host of one."""


def read_run(folder: Path, host: str | None = None) -> tuple[RunEvidence, ...]:
    """What is in a run's bundle, an entry for each of its hosts (for `host` alone, if one is named).

    A sweep that was spread is one entry with all that its hosts measured, in that order; facts are those of the first.

    A file that is damaged or missing costs what is in it and nothing else; see `RunEvidence.problems`. Raises InputError
    where the folder is none of a run, or the host was not in it.
    """
    if not folder.is_dir():
        raise InputError("there is no such run", where=str(folder), hint="invoke logs --runs lists them")
    if not any((folder / name).is_file() for name in _RUN):
        raise InputError("nothing of a run is in it", where=str(folder), hint="give a folder under logs/")
    top = _Files(folder)
    request = top.json("request.json")
    named_hosts = request.get("hosts")
    hosts = [str(name) for name in named_hosts] if isinstance(named_hosts, list) else []
    folders = {name: folder / name for name in hosts} if len(hosts) > 1 else {hosts[0] if hosts else "": folder}
    damaged = tuple(top.problems)
    found = [_read(folder.name, path, name, request, damaged) for name, path in folders.items() if path.is_dir()]
    if host is not None:
        there = [each.host for each in found]
        found = [each for each in found if each.host == host]
        if not found:
            what = f"run {folder.name} has nothing of host '{host}'"
            raise InputError(what, where=str(folder), hint=did_you_mean(host, there, label="it is of"))
    if host is None and len(found) > 1 and _shared(request) and (folder / "measurements.json").is_file():
        found = [_whole(_read(folder.name, folder, ", ".join(hosts), request, damaged), found)]
    if not any(each.began or each.loads or not each.empty for each in found):
        raise InputError("nothing of a run is in it", where=str(folder), hint="give a folder under logs/")
    return tuple(found)


def _read(run: str, folder: Path, host: str, request: Mapping[str, Any], damaged: tuple[str, ...]) -> RunEvidence:
    files = _Files(folder)
    inventory, facts = files.json("inventory.json"), files.json("facts.json")
    measured = files.made("measurements.json", from_json)
    loads = tuple(_loads(files))
    profiles = [load.profile for load in loads if load.profile is not None]
    serving = files.json("serving.json") or None
    return RunEvidence(
        run=run,
        host=host or str(inventory.get("name", "")),
        command=str(request.get("command") or _command_in(run)),
        folder=folder,
        finished=files.json("result.json").get("ok") is True,
        began=_began(folder / "events.jsonl"),
        simulated=next(
            (each.simulated for each in (measured, *profiles) if each and each.simulated),
            (serving or {}).get("simulated"),
        ),
        sglang=facts.get("sglang_version"),
        request=request,
        inventory=inventory,
        facts=facts,
        server_info=files.json("server_info.json"),
        serving=serving,
        measured=measured,
        loads=loads,
        problems=(*damaged, *files.problems),
    )


def _shared(request: Mapping[str, Any]) -> bool:
    """Whether the hosts of a run shared its loads."""
    more = request.get("more")
    return isinstance(more, dict) and more.get("spread") is True


def _whole(all_of_it: RunEvidence, hosts: Sequence[RunEvidence]) -> RunEvidence:
    """What a run is on hosts that shared its loads."""
    first = next((each for each in hosts if each.facts), hosts[0])
    return replace(
        all_of_it,
        finished=all(each.finished for each in hosts),
        began=min((each.began for each in hosts if each.began is not None), default=None),
        sglang=first.sglang,
        inventory=first.inventory,
        facts=first.facts,
        server_info=first.server_info,
    )


def _loads(files: _Files) -> Iterator[LoadEvidence]:
    """The loads in the order in which they were started."""
    root = files.folder
    named = {
        path.parent for mark in _MARKS for path in root.rglob(mark) if SET_ASIDE not in path.relative_to(root).parts
    }
    for folder in sorted(named, key=_started):
        name = str(folder.relative_to(root)) if folder != root else ""
        fingerprint, server = files.json(f"{name}/fingerprint.json"), files.json(f"{name}/server.json")
        profile = files.made(f"{name}/profile.json", _profile)
        if not name and len(named) > 1 and profile is None and not server:
            continue
        log = folder / "server.log"
        yield LoadEvidence(
            name=name,
            steps=_steps(fingerprint, server, profile),
            fingerprint=fingerprint,
            server=server,
            gpus={
                str(path.parent.relative_to(root)): files.json(str(path.relative_to(root)))
                for path in sorted(folder.glob("**/gpus.json"))
            },
            workloads=_workloads(files, folder),
            profile=profile,
            log=log if log.is_file() else None,
            probe_files=tuple(sorted(folder.glob("probe/*.jsonl"))),
        )


def _workloads(files: _Files, folder: Path) -> dict[int, Mapping[str, Any]]:
    """What was sent, by concurrency."""
    found: dict[int, Mapping[str, Any]] = {}
    for path in sorted(folder.glob("measured-c*.json")):
        measured = files.json(str(path.relative_to(files.folder)))
        concurrency, args = measured.get("concurrency"), measured.get("args")
        if isinstance(concurrency, int) and isinstance(args, dict):
            found[concurrency] = args
    return found


def _steps(
    fingerprint: Mapping[str, Any], server: Mapping[str, Any], profile: Profile | None
) -> tuple[int, ...] | None:
    if isinstance(fingerprint.get("steps"), list):
        return tuple(fingerprint["steps"])
    if "steps" in server:
        steps = server["steps"]
        if steps is None or isinstance(steps, int | list):
            return () if steps is None else tuple(steps) if isinstance(steps, list) else (steps,)
    return None if profile is None else tuple(sorted({setting.steps for setting in profile.settings}))


def _started(folder: Path) -> float:
    return min(path.stat().st_mtime for mark in _MARKS if (path := folder / mark).is_file())


def _profile(text: str) -> Profile:
    found = json.loads(text)
    return Profile(
        simulated=found["simulated"],
        sglang=tuple(found["sglang"]),
        probe=tuple(found["probe"]),
        settings=tuple(setting_of(each) for each in found["settings"]),
        notes=tuple(found["notes"]),
    )


def _began(events: Path) -> float | None:
    try:
        with events.open(encoding="utf-8", errors="replace") as file:
            return float(json.loads(file.readline())["time"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _command_in(run: str) -> str:
    """20261129-181500-deploy-profiling-3fa9: what stands between the time and the token."""
    return "-".join(run.split("-")[2:-1])


class _Files:
    """The files below a folder; those that cannot be read are noted, once each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.problems: dict[str, None] = {}

    def json(self, name: str) -> dict[str, Any]:
        """A JSON object; empty where there is none."""
        return self.made(name, _object) or {}

    def made(self, name: str, make: Callable[[str], _Made]) -> _Made | None:
        """What `make` makes of a file's text; None where there is none, or it can make nothing of it."""
        path = self.folder / name.lstrip("/")
        try:
            return make(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, InputError) as error:
            what = error.what if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
            self.problems[f"{path.relative_to(self.folder)} is damaged and left out ({what})"] = None
            return None


def _object(text: str) -> dict[str, Any]:
    found = json.loads(text)
    if not isinstance(found, dict):
        raise TypeError("no JSON object")
    return found
