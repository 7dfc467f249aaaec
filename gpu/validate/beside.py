"""Servers of several loads, up at once on one GPU: what they are asked in turn sees the same minute, clocks and host."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from gpu.validate.budget import Budget, OutOfTimeError
from gpu.validate.client import ServerError
from gpu.validate.setting import Setting
from gpu.validate.site import Server, Site
from gpu.validate.workspace import CommandError

__all__ = ["Beside"]

_CLEANING_S = 120.0


class Beside:
    """The server of a site, and others beside it: each with an SGLang tree, a folder of state and a port of its own."""

    def __init__(self, site: Site, own: Setting, others: Mapping[str, Setting]) -> None:
        self._site, self._own, self._others = site, own, others
        self._sites: dict[str, Site] = {}
        self.failed: dict[str, str] = {}

    def serve(self, budget: Budget) -> tuple[Server, dict[str, Server]]:
        """Loads all of them at once. Raises what `Site.serve` raises where the site's own fails; others may stay away."""
        for number, name in enumerate(self._others, 1):
            machine = self._site.machine.beside(name, number)
            self._sites[name] = Site(machine, machine.workspace, partial(self._say, name))
        with ThreadPoolExecutor(len(self._others) + 1) as pool:
            own = pool.submit(self._site.serve, self._own, budget)
            loads = {name: pool.submit(self._sites[name].serve, each, budget) for name, each in self._others.items()}
        servers = {name: server for name, load in loads.items() if (server := self._came_up(name, load)) is not None}
        if self._others and not servers:
            raise CommandError(f"no other server came up: {next(iter(self.failed.values()))}")
        return own.result(), servers

    def _came_up(self, name: str, load: Future[Server]) -> Server | None:
        try:
            return load.result()
        except (CommandError, ServerError, OutOfTimeError, OSError) as error:
            self.failed[name] = f"{type(error).__name__}: {error}"
            self._site.say(f"{name}: did not come up: {error}")
            return None

    def _say(self, name: str, text: str) -> None:
        self._site.say(f"{name}: {text}")

    def close(self) -> None:
        """Stops the others and puts their trees back; the site's own server stays."""
        with ThreadPoolExecutor(max(1, len(self._sites))) as pool:
            list(pool.map(self._close, self._sites.values()))
        self._sites.clear()

    def _close(self, site: Site) -> None:
        try:
            site.rollback(Budget(_CLEANING_S))
            site.machine.close()
        except CommandError as error:
            self._site.say(f"a server beside is not put back: {error}")
