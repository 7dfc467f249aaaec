"""Earlier runs under logs/: which one is meant, what it was asked for, and whether it can go on."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from eaglelab.bundle import Bundle
from eaglelab.errors import InputError
from eaglelab.host import Host
from eaglelab.masking import MASK, Masker
from eaglelab.say import Say

__all__ = ["RESUMABLE", "PastRun", "all_runs", "find_run", "newest_of"]

RESUMABLE = ("deploy-profiling", "bench", "sweep", "play")
"""Commands that take --resume."""

_REQUEST, _RESULT = "request.json", "result.json"

_WAY = ("connection", "address", "user", "port")
"""What in a host's entry leads to the machine."""


class _File(BaseModel):
    model_config = ConfigDict(defer_build=True)

    path: str
    sha256: str


class _Recorded(BaseModel):
    """What must be in a `request.json`."""

    model_config = ConfigDict(strict=True, defer_build=True)

    command: str
    playbook: str
    files: Annotated[list[_File], Field(min_length=1)]
    hosts: Annotated[list[str], Field(min_length=1)]
    inventory: str | None
    vars: dict[str, Any]
    more: dict[str, Any]
    tags: list[str]
    skip_tags: list[str]
    takeover: bool
    accept_drift: bool
    resumed: int


@dataclass(frozen=True)
class PastRun:
    """A run and its `request.json`: command, playbook, files, vars, hosts, inventory, tags, skip_tags, more, resumed."""

    folder: Path
    request: Mapping[str, Any]

    @property
    def run(self) -> str:
        return self.folder.name

    @property
    def command(self) -> str:
        return str(self.request["command"])

    @property
    def hosts(self) -> Sequence[str]:
        return list(self.request["hosts"])

    @property
    def resumed(self) -> int:
        """How often it has been taken up again."""
        return int(self.request["resumed"])

    def folder_of(self, host: str) -> Path:
        return self.folder / host if len(self.hosts) > 1 else self.folder

    def result(self, host: str) -> dict[str, Any] | None:
        """What the run found on a host; None where it did not come to its end there."""
        found = self._bundle(self.folder_of(host)).read(_RESULT)
        return found if found and found.get("ok") is True else None

    @property
    def finished(self) -> bool:
        return all(self.result(host) is not None for host in self.hosts)

    def stopped_at(self, host: str) -> str:
        """The task that was the last to begin there; empty where none was."""
        began = [event["task"] for event in self._bundle(self.folder_of(host)).events() if event["state"] == "started"]
        return began[-1] if began else ""

    def command_line(self) -> str:
        """What goes on with it."""
        playbook = [self.request["playbook"]] if self.command == "play" else []
        return shlex.join(["invoke", self.command, *playbook, "--resume", self.run])

    def playbook(self) -> Path:
        """The playbook as this run read it. Raises InputError where there is none like it any more."""
        recorded = [(Path(file["path"]), file["sha256"]) for file in self.request["files"]]
        if all(_sha256(path) == digest for path, digest in recorded):
            return recorded[0][0]
        kept = self.folder_of(self.hosts[0]) / "playbook.yaml"
        if len(recorded) == 1 and _sha256(kept) == recorded[0][1]:
            return kept
        changed = ", ".join(str(path) for path, digest in recorded if _sha256(path) != digest)
        raise InputError(
            f"changed since run {self.run} began: {changed}",
            where="--resume",
            hint="begin a new run, or put that file back as it was",
        )

    def same_entry(self, host: Host) -> None:
        """Raises InputError where the inventory's entry leads elsewhere than when this run looked at the host."""
        bundle = self._bundle(self.folder_of(host.name))
        earlier, now = bundle.read("inventory.json") or {}, host.redacted()
        moved = [key for key in _WAY if key in earlier and earlier[key] != now[key]]
        if moved and bundle.read("facts.json") is not None:
            changes = ", ".join(f"{key} was {earlier[key]} and is {now[key]}" for key in moved)
            raise InputError(
                f"host '{host.name}' is not where it was when run {self.run} began: {changes}",
                where="--resume",
                hint="figures of two machines do not go together: begin a new run, or put that entry back as it was",
            )

    def agree(self, name: str, given: Any, masker: Masker | None = None) -> Any:
        """The recorded value; `given` (None or empty: not given) must be the same. Raises InputError.

        What was masked in the record must be given again, and is taken from there.
        """
        return self._agreed(name, self.request[name], given, masker or Masker(), f"--{name.replace('_', '-')}")

    def agree_all(self, name: str, given: Mapping[str, Any], masker: Masker) -> dict[str, Any]:
        """As `agree`, for each entry of a recorded mapping."""
        recorded = self.request[name]
        names = list(dict.fromkeys([*recorded, *given]))
        return {
            key: self._agreed(key, recorded.get(key), given.get(key), masker, f"--{key.replace('_', '-')}")
            for key in names
        }

    def _agreed(self, name: str, recorded: Any, given: Any, masker: Masker, option: str) -> Any:
        if given in (None, "", False, (), [], {}):
            if MASK in str(recorded):
                what = f"run {self.run} had a secret in '{name}', which is not kept"
                raise InputError(what, where="--resume", hint=f"give {option} again")
            return recorded
        shown = masker.mapping({name: list(given) if isinstance(given, tuple) else given})[name]
        if shown != recorded:
            raise InputError(
                f"run {self.run} had {option} {_words(recorded)}, not {_words(shown)}",
                where="--resume",
                hint=f"leave {option} out: what the run was asked for holds",
            )
        return given

    def _bundle(self, folder: Path) -> Bundle:
        return Bundle(folder, self.run, "")


def _words(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value)) or "none"
    return "none" if value in (None, "", False) else str(value)


def _sha256(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def all_runs(logs: Path, say: Say) -> Iterator[PastRun]:
    """All that have a record of what was asked for, newest first. A damaged one is named and left out."""
    for folder in sorted(logs.iterdir(), reverse=True) if logs.is_dir() else []:
        if not (folder / _REQUEST).exists():
            continue
        request = Bundle(folder, folder.name, "").read(_REQUEST)
        try:
            _Recorded.model_validate(request)
        except ValidationError:
            say.line(f"left out: {folder / _REQUEST} is damaged", style="yellow")
        else:
            yield PastRun(folder, request or {})


def newest_of(logs: Path, host: str, say: Say) -> PastRun | None:
    """The last run that began a task on a host."""
    return next((run for run in all_runs(logs, say) if host in run.hosts and run.stopped_at(host)), None)


def find_run(logs: Path, name: str, command: str, say: Say) -> PastRun:
    """The run of `command` named in full, by a beginning or an end that only it has, or by `last`. Raises InputError."""
    known = list(all_runs(logs, say))
    named = [run for run in known if run.run == name] or [
        run for run in known if run.run.startswith(name) or run.run.endswith(name)
    ]
    if name == "last":
        named = [run for run in known if run.command == command][:1]
    if not named:
        newest = [run.run for run in known if run.command == command][:3]
        hint = f"the last of invoke {command}: {', '.join(newest)}" if newest else f"invoke {command} begins one"
        raise InputError(f"there is no run '{name}' that could go on", where="--resume", hint=hint)
    if len(named) > 1:
        names = ", ".join(run.run for run in named[:5])
        raise InputError(f"'{name}' may be any of {len(named)} runs", where="--resume", hint=f"more letters: {names}")
    (found,) = named
    if found.command != command:
        what = f"run {found.run} is one of invoke {found.command}, not of invoke {command}"
        raise InputError(what, where="--resume", hint=found.command_line())
    return found
