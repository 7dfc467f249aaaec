"""The launchers by name, and what each has started from a state folder."""

from __future__ import annotations

from typing import Any, Callable

from eaglelab.remote.agent.launchers.container import ContainerLauncher
from eaglelab.remote.agent.launchers.contract import Launcher
from eaglelab.remote.agent.launchers.process import ProcessLauncher
from eaglelab.remote.agent.launchers.slurm import SlurmLauncher
from eaglelab.remote.agent.launchers.systemd import SystemdLauncher
from eaglelab.remote.agent.state import StateFolder
from eaglelab.remote.agent.wire import AgentError

__all__ = ["Launchers"]

_KINDS = {kind.name: kind for kind in (ProcessLauncher, ContainerLauncher, SlurmLauncher, SystemdLauncher)}


class Launchers:
    """One of each kind for a state folder, made when it is first needed."""

    def __init__(self, state: StateFolder, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._about = (state, clock, sleep)
        self.process = ProcessLauncher(*self._about)
        self._made: dict[str, Launcher] = {ProcessLauncher.name: self.process}

    def of(self, record: dict[str, Any] | None) -> Launcher:
        """The one that started the server of a record; records of earlier versions are of processes."""
        return self.named("process" if record is None else record.get("launcher", "process"))

    def named(self, name: str) -> Launcher:
        if name not in _KINDS:
            raise AgentError("no-launcher", "there is no way named %s to run a server here" % name)
        if name not in self._made:
            self._made[name] = _KINDS[name](*self._about)
        return self._made[name]
