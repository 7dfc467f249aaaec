"""Places whose servers are gone, and how long they are kept: nobody may have looked at their logs yet, but a host's disk is
not ours to fill."""

from __future__ import annotations

import os
import time
from typing import Any, Callable, Iterable

from eaglelab.remote.agent.lock import Lock
from eaglelab.remote.agent.places import Places, heartbeat, log_in, remove_if_empty
from eaglelab.remote.agent.record import damaged_record
from eaglelab.remote.agent.state import StateFolder
from eaglelab.remote.agent.wire import Beat

__all__ = ["KEPT_RUNS", "KEPT_S", "Ended"]

KEPT_RUNS = 5
"""Of so many runs, the last ones, the ended places are kept."""

KEPT_S = 14 * 86400.0
"""And no longer than this after their server wrote something or somebody worked there."""


class Ended:
    """The ended ones of some places. `server_of` makes what looks at the server of one; `clock` is the time of day."""

    def __init__(
        self, places: Places, server_of: Callable[[StateFolder], Any], clock: Callable[[], float] = time.time
    ) -> None:
        self._places = places
        self._server_of = server_of
        self._clock = clock

    def all(self, but: str | None, beat: Beat) -> list[dict[str, Any]]:
        """`run`, `task`, `log` (a path) and its `size` (bytes), `quiet` (s since anything happened there), and whether it
        is `due` to be removed. Those of the run `but` are no one else's business.

        Only where it is known that no server is left, and nobody is in there: a record that is damaged, or a job of which
        nothing can be said, is a person's business.
        """
        found: list[dict[str, Any]] = []
        for run, name, place in self._places.all():
            beat({"looking": name})
            if run != but and self._gone(place):
                log = log_in(place)
                quiet = max(0.0, self._clock() - _last_seen(place, log))
                found.append({"run": run, "task": name, "log": log, "size": _size(log), "quiet": round(quiet, 1)})
        quiet_of: dict[str, float] = {}
        for each in found:
            quiet_of[each["run"]] = min(each["quiet"], quiet_of.get(each["run"], each["quiet"]))
        last = sorted(quiet_of, key=lambda run: quiet_of[run])[:KEPT_RUNS]
        return [dict(each, due=each["run"] not in last or each["quiet"] > KEPT_S) for each in found]

    def remove(self, by: str, tasks: Iterable[Iterable[str]], beat: Beat) -> list[list[str]]:
        """Removes those of `tasks` (run and name of each) that are due. Returns them."""
        from shutil import rmtree  # here, for the sake of every start

        wanted = {tuple(each) for each in tasks}
        due = [each for each in self.all(by, beat) if each["due"] and (each["run"], each["task"]) in wanted]
        home = self._places.home
        if due:
            home.note_if_possible("remove-tasks", run=by, tasks=["%s/%s" % (each["run"], each["task"]) for each in due])
        for each in due:
            folder = os.path.dirname(each["log"])
            rmtree(folder, ignore_errors=True)
            remove_if_empty(os.path.dirname(folder))
        return [[each["run"], each["task"]] for each in due]

    def _gone(self, place: StateFolder) -> bool:
        seen = self._server_of(place).status()
        known = not seen["damaged"] and not seen["unknown"] and not os.path.exists(damaged_record(place))
        return known and not seen["there"] and not seen["alive"] and Lock(place).holder() is None


def _last_seen(place: StateFolder, log: str) -> float:
    """When its server last wrote something, or somebody last worked there; else when it was made."""
    times = [found for found in (_modified(heartbeat(place)), _modified(log)) if found is not None]
    return max(times) if times else _modified(place.folder) or 0.0


def _modified(path: str) -> float | None:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return None


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
