"""The folder of one run, `logs/<run>/`: all that is needed to understand it later, with no secret in it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eaglelab.errors import HostError
from eaglelab.masking import Masker

__all__ = ["Bundle", "new_run"]


def new_run(command: str, now: float, token: Callable[[], str] = lambda: secrets.token_hex(2)) -> str:
    """A name that sorts by time and is new on every machine: 20261129-181500-bench-3fa9."""
    words = re.sub(r"[^a-z0-9]+", "-", command.lower()).strip("-")
    return f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(now))}-{words}-{token()}"


@dataclass
class Bundle:
    """One run's folder (with several hosts: one folder a host below it). Everything written is masked.

    Only its owner may enter it. A text or JSON file is there whole or not at all, however the writing ends.
    """

    folder: Path
    run: str
    host: str
    masker: Masker = field(default_factory=Masker)
    clock: Callable[[], float] = time.time
    diary: str = "events.jsonl"
    """The file of its events. Work that goes on at the same time has one each: what is held is told from them."""
    alone: threading.RLock = field(default_factory=threading.RLock, compare=False, repr=False)
    """Held while a file is written that several threads may write."""

    def path(self, name: str) -> Path:
        """Where file `name` of the bundle is; its folder exists. Raises HostError where it cannot be made."""
        path = self.folder / name
        with self._writing(path):
            if not path.parent.is_dir():
                for folder in (*reversed(path.parent.parents), path.parent):
                    folder.mkdir(mode=0o700, exist_ok=True)
        return path

    def text(self, name: str, content: str) -> Path:
        return self._whole(name, self.masker.text(content))

    def json(self, name: str, content: Mapping[str, Any]) -> Path:
        return self._whole(name, json.dumps(self.masker.mapping(content), indent=1, default=str) + "\n")

    def lines(self, name: str, content: Iterable[Mapping[str, Any]]) -> Path:
        """A JSON-lines file, whole or not there at all."""
        return self._whole(name, "".join(json.dumps(self.masker.mapping(line)) + "\n" for line in content))

    def read(self, name: str) -> dict[str, Any] | None:
        """A JSON file of this bundle; None where there is none, or none that can be read."""
        try:
            found = json.loads((self.folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None

    def move(self, name: str, to: str) -> None:
        """Gives a file or folder of this bundle another name, which none must have. Raises HostError."""
        path = self.path(to)
        with self._writing(path):
            (self.folder / name).rename(path)

    def remove(self, name: str) -> None:
        """Removes a file, if it is there. Raises HostError."""
        with self._writing(self.folder / name):
            (self.folder / name).unlink(missing_ok=True)

    def _whole(self, name: str, text: str) -> Path:
        path = self.path(name)
        with self.alone, self._writing(path):
            half = path.with_name(f".{path.name}.{os.getpid()}.tmp")
            half.write_text(text, encoding="utf-8")
            half.replace(path)
        return path

    def append(self, name: str, data: bytes) -> None:
        """Adds whole lines of a log; bytes that are no UTF-8 stay as they are."""
        masked = self.masker.data(data)
        path = self.path(name)
        with self._writing(path), path.open("ab") as file:
            file.write(masked)

    def event(self, task: str, action: str, state: str, **more: Any) -> None:
        """One line of the diary: what was done, when, and how it ended.

        Where it cannot be written nothing is raised: a full disk here must not keep a host from being put back.
        """
        line = {
            "time": round(self.clock(), 3),
            "run": self.run,
            "host": self.host,
            "task": task,
            "action": action,
            "state": state,
            **more,
        }
        with contextlib.suppress(HostError):
            path = self.path(self.diary)
            data = json.dumps(self.masker.mapping(line), default=str).encode() + b"\n"
            with self._writing(path), path.open("a+b", buffering=0) as file:
                if file.tell() and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n":
                    data = b"\n" + data  # a controller was killed in the middle of the line before
                file.write(data)

    def events(self) -> list[dict[str, Any]]:
        """All events so far, oldest first. A line that a kill has cut off, or that is none of ours, is left out."""
        path = self.folder / self.diary
        found = []
        for line in path.read_bytes().splitlines() if path.exists() else []:
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict) and event.keys() >= {"time", "task", "action", "state"}:
                    found.append(event)
        return found

    @contextlib.contextmanager
    def _writing(self, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise HostError(
                f"the bundle cannot be written: {error.strerror}",
                where=str(path),
                hint="make room or give rights there, then run again",
            ) from error
