"""Which host makes which load of a sweep that is spread: who has it now, and whose it may become. No threads, no waiting."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from eaglelab.sweep.plan import Load

__all__ = ["Deck", "without_dead"]


@dataclass
class Deck:
    """The loads that nobody has made yet. `claims`: by host the load that it was at when an earlier try ended.

    Its server, and the requests, may run on there; so nobody else is given it as long as that host may still come for it.
    """

    waiting: deque[Load]
    claims: dict[str, Load] = field(default_factory=dict)
    at_work: dict[str, Load] = field(default_factory=dict)

    @classmethod
    def of(cls, loads: Iterable[Load], kept: Collection[str], claims: Mapping[str, str]) -> Deck:
        """`loads` but those `kept` (by folder): an earlier try has measured them. `claims`: host -> folder of its load."""
        waiting = deque(load for load in loads if load.folder not in kept)
        by_folder = {load.folder: load for load in waiting}
        found = {host: by_folder[folder] for host, folder in claims.items() if folder in by_folder}
        return cls(waiting, {host: load for host, load in found.items() if _first(found, load) == host})

    @property
    def over(self) -> bool:
        """Whether nothing is left, also at those at work, whose loads might come back."""
        return not self.waiting and not self.at_work

    def take(self, host: str) -> Load | None:
        """The next load for a host, its own first, which it then has; None where all that wait are claimed by others."""
        claimed = self.claims.pop(host, None)
        free = [load for load in self.waiting if load not in self.claims.values()]
        load = claimed if claimed in self.waiting else next(iter(free), None)
        if load is not None:
            self.waiting.remove(load)
            self.at_work[host] = load
        return load

    def made(self, host: str) -> None:
        """A host has made the load that it had."""
        self.at_work.pop(host, None)

    def instead(self, loads: Sequence[Load]) -> None:
        """Loads to be made, next, instead of one that came to nothing."""
        self.waiting.extendleft(reversed(loads))

    def disclaim(self, host: str) -> None:
        """A host's own load does not run there any more: whoever comes first may make it."""
        self.claims.pop(host, None)

    def leave(self, host: str) -> None:
        """A host makes no more loads; the one that it had is the next to be dealt."""
        self.disclaim(host)
        load = self.at_work.pop(host, None)
        if load is not None:
            self.waiting.appendleft(load)


def without_dead(loads: Iterable[Load], dead: Mapping[str, Sequence[Load]]) -> list[Load]:
    """`loads`, and in place of those whose server died of its several step counts (by folder) what is made instead."""
    return [each for load in loads for each in dead.get(load.folder, (load,))]


def _first(claims: Mapping[str, Load], load: Load) -> str:
    """Of two hosts that were at one load (it was given to another when the first was lost) the first has it."""
    return next(host for host, claimed in claims.items() if claimed == load)
