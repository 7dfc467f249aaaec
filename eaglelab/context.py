"""What an action works with: one host, the agent there, the bundle, and what earlier tasks of this run found out."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eaglelab.bundle import Bundle
from eaglelab.errors import HostError
from eaglelab.host import Host
from eaglelab.patching.plan import FilePlan
from eaglelab.patching.spec import PatchSpec
from eaglelab.profile.bench import BenchResult
from eaglelab.remote.client import AgentClient
from eaglelab.say import Say

__all__ = ["Context", "Found", "LogMark", "Options"]


@dataclass(frozen=True)
class Options:
    """How a run is made. `check`: change nothing, say what would be done."""

    check: bool = False
    takeover: bool = False
    project: Path = field(default_factory=Path.cwd)


@dataclass(frozen=True)
class LogMark:
    """From where on a file of the host belongs to this run."""

    path: str
    offset: int


@dataclass
class Found:
    """What the tasks of one run on one host have found out so far."""

    facts: dict[str, Any] | None = None
    spec: PatchSpec | None = None
    modules: dict[str, bytes] = field(default_factory=dict)
    plans: tuple[FilePlan, ...] = ()
    patched: bool = False
    log: LogMark | None = None
    probe: tuple[LogMark, ...] = ()
    probe_folder: str | None = None
    steps: int | None = None
    started: bool = False
    bench: list[BenchResult] = field(default_factory=list)
    server_info: dict[str, Any] = field(default_factory=dict)
    diff: str = ""


@dataclass
class Context:
    """One host in one run."""

    host: Host
    client: AgentClient
    bundle: Bundle
    say: Say
    options: Options
    api_key: str | None = None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    found: Found = field(default_factory=Found)

    @property
    def run(self) -> str:
        return self.bundle.run

    @property
    def facts(self) -> dict[str, Any]:
        """What `doctor` read. Raises HostError in a playbook that did not ask it."""
        if self.found.facts is None:
            raise HostError(
                "nothing is known of this host yet",
                where=self.host.name,
                hint="put the action `doctor` first in the playbook",
            )
        return self.found.facts

    @property
    def log(self) -> LogMark:
        """The part of the server's log that belongs to this run. Raises HostError in a playbook without `doctor`."""
        return self.found.log or LogMark(self.facts["log"], self.facts["log_size"])

    def host_path(self, plan: FilePlan) -> str:
        """Where on the host a planned file is; the plan itself names it below the package."""
        return str(self.facts["files"][plan.path]["path"])

    @property
    def spec(self) -> PatchSpec:
        """The patch that `plan` read. Raises HostError in a playbook without it."""
        if self.found.spec is None:
            raise self._unplanned()
        return self.found.spec

    @property
    def plans(self) -> tuple[FilePlan, ...]:
        """The files that `plan` planned, one at least. Raises HostError in a playbook without it."""
        if not self.found.plans:
            raise self._unplanned()
        return self.found.plans

    def _unplanned(self) -> HostError:
        return HostError(
            "no patch is planned yet",
            where=self.host.name,
            hint="put the action `plan` before this one in the playbook",
        )

    @property
    def port(self) -> int:
        return self.host.server.port

    @property
    def server_address(self) -> str:
        """Where the server is reached from its own machine."""
        return "127.0.0.1" if self.host.server.host in ("0.0.0.0", "::") else self.host.server.host  # noqa: S104 - compared, not bound

    @property
    def simulated(self) -> str | None:
        """What to label figures with if no real GPU made them."""
        found = self.found.server_info.get("simulated")
        return str(found["label"]) if found else None

    @property
    def clock_rate(self) -> float:
        """Seconds that the server's clock runs in one second of wall time: 1, but for a simulated GPU."""
        found = self.found.server_info.get("simulated")
        return float(found["clock_rate"]) if found else 1.0
