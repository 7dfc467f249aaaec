"""Which run under logs/ is meant by a name."""

from __future__ import annotations

from pathlib import Path

from eaglelab.errors import InputError
from eaglelab.nearest import did_you_mean
from eaglelab.runs.evidence import RunEvidence
from eaglelab.runs.reading import read_run

__all__ = ["find_run", "named_run", "unknown_run"]

_LISTING = "invoke logs --runs lists them"


def named_run(logs: Path, name: str) -> tuple[RunEvidence, ...]:
    """A run's hosts: `name` as `find_run` takes it, with `:HOST` behind it for one of several.

    Raises InputError where nothing is meant by it, or nothing in it says anything about speed.
    """
    folder, host = find_run(logs, name), None
    if folder is None:
        name, _, host = name.rpartition(":")
        folder = find_run(logs, name) if name and host else None
    if folder is None:
        raise unknown_run(logs, name or str(host))
    found = read_run(folder, host)
    told = tuple(each for each in found if not each.empty)
    if not told:
        problems = "; ".join(problem for each in found for problem in each.problems)
        what = f"nothing in run {folder.name} says anything about speed"
        raise InputError(f"{what}: {problems}" if problems else what, where=str(folder), hint=_LISTING)
    return told


def find_run(logs: Path, name: str) -> Path | None:
    """The folder of a run: a path to one, its full name, a beginning or end that only it has, or `last`: the newest that
    measured anything. None where there is none. Raises InputError where several are meant."""
    if "/" in name and Path(name).is_dir():
        return Path(name).resolve()
    folders = sorted((path for path in _entries(logs) if path.is_dir()), reverse=True)
    if name == "last":
        return next((folder for folder in folders if _measured(folder)), None)
    exact = [folder for folder in folders if folder.name == name]
    found = exact or [
        folder for folder in folders if name and (folder.name.startswith(name) or folder.name.endswith(name))
    ]
    if len(found) > 1:
        names = ", ".join(folder.name for folder in found[:5])
        raise InputError(f"'{name}' may be any of {len(found)} runs", where=str(logs), hint=f"more letters: {names}")
    return found[0] if found else Path(name).resolve() if name and Path(name).is_dir() else None


def _entries(logs: Path) -> list[Path]:
    return list(logs.iterdir()) if logs.is_dir() else []


def _measured(folder: Path) -> bool:
    try:
        return any(not each.empty for each in read_run(folder))
    except InputError:
        return False


def unknown_run(logs: Path, name: str) -> InputError:
    """That no run is meant by `name`, with those that may have been."""
    newest = sorted((path.name for path in _entries(logs) if path.is_dir()), reverse=True)
    hint = did_you_mean(name, newest[:5], label="the newest") if newest else "invoke bench begins one"
    return InputError(f"there is no run '{name}'", where=str(logs), hint=f"{hint}; {_LISTING}" if newest else hint)
