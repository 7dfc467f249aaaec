"""Places for servers that run at the same time: `tasks/RUN/NAME/` of the state folder, each with what one server needs.

A place is a state folder of its own (server.json, launch/, runs/, files/), but for the originals and the manifest, which
are those of the state folder that it lies in: its `home`. Who may change what is in it has the lock of the home; one agent
at a time does so, which has the lock of the place.
"""

from __future__ import annotations

import os
import re
import threading
from typing import Any, Callable

from eaglelab.remote.agent.files import os_error
from eaglelab.remote.agent.lock import Lock
from eaglelab.remote.agent.record import damaged_record, read_record
from eaglelab.remote.agent.state import StateFolder
from eaglelab.remote.agent.wire import AgentError, Beat

__all__ = ["Places", "heartbeat", "log_in", "remove_if_empty"]

_PLACE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._,-]*\Z")

_ENDED_AT_ONCE = 8
"""Servers that are ended at the same time: each asks its engine twice a second."""


def heartbeat(place: StateFolder) -> str:
    """The file that an agent touches while somebody works in a place."""
    return os.path.join(place.folder, "alive")


class Places:
    """Those of one state folder. `server_of` makes what looks at and ends the server of a place."""

    def __init__(self, home: StateFolder, server_of: Callable[[StateFolder], Any]) -> None:
        self.home = home
        self._server_of = server_of

    def enter(self, run: str, name: str) -> StateFolder:
        """The place `name` of a run, made if it is missing. Raises AgentError."""
        if not _PLACE_NAME.match(run) or not _PLACE_NAME.match(name):
            raise AgentError("bad-place", "no place can be named %s of run %s" % (name, run))
        self.home.open("tasks")
        folder = os.path.join(self.home.folder, "tasks", run)
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
        except OSError as error:
            raise os_error(error, "cannot make %s" % folder) from error
        place = StateFolder(os.path.join(folder, name), self.home)
        place.open()
        return place

    def all(self, run: str | None = None) -> list[tuple[str, str, StateFolder]]:
        """Run, name and place of each, of one run or of all."""
        base = os.path.join(self.home.folder, "tasks")
        runs = _names_in(base) if run is None else [run]
        names = [(one, name) for one in runs for name in _names_in(os.path.join(base, one))]
        return [(one, name, StateFolder(os.path.join(base, one, name), self.home)) for one, name in names]

    def status(self, beat: Beat) -> dict[str, list[Any]]:
        """`tasks`: each server that is on record in a place, by `run`, `task`, and what its own `status` says. `ended`: run
        and name of each place that has none any more.
        """
        found, ended = [], []
        for run, name, place in self.all():
            beat({"looking": name})  # an engine is asked of each, which takes its time
            seen = self._server_of(place).status()
            if seen["record"] is not None or seen["there"] or seen["damaged"]:
                found.append(dict(seen, run=run, task=name))
            else:
                ended.append([run, name])
        return {"tasks": found, "ended": ended}

    def end(self, by: str, run: str | None, grace: float, beat: Beat) -> list[str]:
        """Ends the servers in the places of `run`, or in all. Says which servers were there.

        The places of the run `by` are removed. Those of another one stay, if they have a log, for nobody may have looked at
        it yet (see ended.py); so does one whose record is damaged. An agent that is stuck in a place is ended first.
        Raises `not-stopped` with those that could not be ended, or of which that cannot be known; the others are by then.
        """
        from shutil import rmtree  # here, for the sake of every start; and before there are threads

        places = self.all(run)
        if places:
            self.home.note_if_possible("end-tasks", run=by, tasks=["%s/%s" % (one, name) for one, name, _ in places])
        stopped: list[str] = []
        failed: list[str] = []
        turn, saying = threading.BoundedSemaphore(_ENDED_AT_ONCE), threading.Lock()

        def say(news: dict[str, Any]) -> None:
            with saying:
                beat(news)

        def end(one: str, name: str, place: StateFolder) -> None:
            with turn:
                try:
                    ended = self._end(by, place, grace, say)
                    stopped.extend("%s (%s)" % (name, each) if isinstance(each, str) else name for each in ended)
                    nothing_to_see = one == by or not _has_log(place)
                    if nothing_to_see and not os.path.exists(damaged_record(place)):
                        rmtree(place.folder, ignore_errors=True)
                except AgentError as error:
                    failed.append("%s of run %s: %s" % (name, one, error.what))
                except Exception as error:  # whatever it is: nobody may take this server for ended
                    failed.append("%s of run %s: %s: %s" % (name, one, type(error).__name__, error))

        threads = [threading.Thread(target=end, args=found, daemon=True) for found in places]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for one in {one for one, _, _ in places}:
            remove_if_empty(os.path.join(self.home.folder, "tasks", one))
        if failed:
            raise AgentError("not-stopped", "not ended: %s" % "; ".join(sorted(failed)))
        return sorted(stopped)

    def _end(self, by: str, place: StateFolder, grace: float, say: Beat) -> list[Any]:
        """The first of what was there, if anything was. Raises AgentError."""
        lock = Lock(place)
        try:
            lock.take({"run": by}, steal=True)
            record, damaged = read_record(place)
            there = self._server_of(place).stop(by, grace, say)["stopped"]
        finally:
            lock.let_go()
        if damaged and record is None and not there:
            what = "its record cannot be read, and no server of it was found: see whether a job of it runs on"
            raise AgentError("not-stopped", "%s (%s)" % (what, place.folder))
        return list(there[:1])


def log_in(place: StateFolder) -> str:
    """Where the log of the server of a place is."""
    return os.path.join(place.folder, "server.log")


def _has_log(place: StateFolder) -> bool:
    try:
        return os.stat(log_in(place)).st_size > 0
    except FileNotFoundError:
        return False


def _names_in(base: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(base) if _PLACE_NAME.match(name))
    except (FileNotFoundError, NotADirectoryError):
        return []


def remove_if_empty(folder: str) -> None:
    """That of a run, of which no place is left."""
    try:
        os.rmdir(folder)
    except OSError:
        pass  # one that could not be ended keeps its place
