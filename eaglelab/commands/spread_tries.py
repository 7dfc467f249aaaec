"""What earlier tries of a sweep that is spread left of each host in the bundle."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eaglelab.bundle import Bundle
from eaglelab.errors import InputError
from eaglelab.profile.measurement_set import Measurement, from_json
from eaglelab.runs.reading import SET_ASIDE
from eaglelab.sweep.plan import Load

__all__ = ["SpreadTries"]

_IDENTITY, _AT_LOAD = "identity.json", "at-load.json"


@dataclass(frozen=True)
class SpreadTries:
    """`folders`: each host's, in the order of the command. A run that begins has none of what is asked for here."""

    folders: Mapping[str, Path]
    run: str

    def identity(self, host: str) -> dict[str, Any] | None:
        """What the host was (see `identity` in spreading.py) when its figures were measured."""
        return self._bundle(host).read(_IDENTITY)

    def begin(self, host: str, identity: Mapping[str, Any]) -> None:
        """Keeps what the host is, of which all that it measures from now on."""
        self._bundle(host).json(_IDENTITY, identity)

    def measured(self, host: str, loads: Iterable[Load]) -> list[Load]:
        """Those of `loads` that the host has measured, all of them."""
        bundle = self._bundle(host)
        return [load for load in loads if bundle.read(f"{load.folder}/done.json") is not None]

    def begun(self, host: str, loads: Iterable[Load]) -> list[Load]:
        """Those of which the host has anything."""
        return [load for load in loads if (self.folders[host] / load.folder).exists()]

    def at_load(self, host: str) -> str | None:
        """The folder of the load that was the last to be given to the host; None where it was through with that."""
        return (self._bundle(host).read(_AT_LOAD) or {}).get("load")

    def give(self, host: str, load: Load | None) -> None:
        """Keeps what a host is at now."""
        self._bundle(host).json(_AT_LOAD, {"load": load and load.folder})

    def dead(self, identity: Mapping[str, Any], loads: Iterable[Load]) -> dict[str, Sequence[Load]]:
        """Loads (by folder) whose server died of its several step counts on a host like this, and what is made instead."""
        alike = [host for host in self.folders if self.identity(host) == identity]
        return {
            load.folder: load.apart
            for load in loads
            if load.one_load and any(self._bundle(host).read(f"{load.folder}/instead.json") for host in alike)
        }

    def figures(self, host: str, load: Load, concurrency: Iterable[int]) -> list[Measurement]:
        """What a host measured in a load. Raises InputError where a file of it cannot be read."""
        found: list[Measurement] = []
        for count in concurrency:
            path = self.folders[host] / load.folder / f"measurements-c{count}.json"
            try:
                found += from_json(path.read_text(encoding="utf-8")).measurements
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise InputError(f"it cannot be read: {error}", where=str(path)) from error
        return found

    def set_aside(self, host: str, loads: Iterable[Load]) -> None:
        """Figures that do not count any more: kept, where no later try and no report looks for them."""
        bundle = self._bundle(host)
        for load in loads:
            names = (f"{SET_ASIDE}/{load.folder}-{number}" for number in itertools.count(1))
            bundle.move(load.folder, next(name for name in names if not (bundle.folder / name).exists()))

    def reopen(self, host: str) -> None:
        """A host that had come to its end, and was left as it was found, is begun anew: it may be another by now."""
        if (self._bundle(host).read("result.json") or {}).get("ok") is True:
            for name in ("before.json", "result.json"):  # in this order: a kill between them leaves it as finished
                self._bundle(host).remove(name)

    def others(
        self, identity: Mapping[str, Any], joined: Collection[str], loads: Sequence[Load], concurrency: Sequence[int]
    ) -> dict[str, list[Load]]:
        """By host: what hosts that are not there now, and were just so, have measured, the reference (the first) included.

        What cannot be read back is as good as not measured.
        """
        found = {
            host: [load for load in self.measured(host, loads) if self._readable(host, load, concurrency)]
            for host in self.folders
            if host not in joined and self.identity(host) == identity
        }
        return {host: measured for host, measured in found.items() if loads[0] in measured}

    def _readable(self, host: str, load: Load, concurrency: Sequence[int]) -> bool:
        try:
            return bool(self.figures(host, load, concurrency))
        except InputError:
            return False

    def _bundle(self, host: str) -> Bundle:
        return Bundle(self.folders[host], self.run, host)
