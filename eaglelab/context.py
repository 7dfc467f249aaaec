"""What an action works with: one host, the agent there, the bundle, and what earlier tasks of this run found out."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eaglelab.bundle import Bundle
from eaglelab.errors import HostError
from eaglelab.once import Once

if TYPE_CHECKING:  # whoever puts one of these in here has imported it, and nobody else waits for it
    from eaglelab.host import Host
    from eaglelab.nodes.member import Member
    from eaglelab.patching.plan import FilePlan
    from eaglelab.patching.spec import PatchSpec
    from eaglelab.profile.measurement_set import Measurement, MeasurementSet
    from eaglelab.profile.serving import ServingRun
    from eaglelab.remote.client import AgentClient
    from eaglelab.say import Say
    from eaglelab.sweep.nodes import Nodes

__all__ = ["Context", "Found", "LogMark", "Options", "complete"]

_TYPED = re.compile(
    r"\binvoke (deploy-profiling|bench|rollback|stop|status|logs|doctor)\b(?! --resume)( --host [^\s,;]+(?![^\s,;]))?(?! --(?:host|inventory))"
)


def complete(hint: str, host: str, inventory: str | None) -> str:
    """A hint whose commands lead, typed as they stand, to this host of this inventory file (None: the usual one)."""
    more = f" --inventory {shlex.quote(inventory)}" if inventory else ""
    return _TYPED.sub(lambda found: f"invoke {found[1]}{found[2] or f' --host {shlex.quote(host)}'}{more}", hint)


@dataclass(frozen=True)
class Options:
    """How a run is made. `check`: change nothing, say what would be done. `accept_drift`: patch edited workers, too.

    `once` has what is the same for all of its hosts.
    """

    check: bool = False
    takeover: bool = False
    accept_drift: bool = False
    project: Path = field(default_factory=Path.cwd)
    once: Once = field(default_factory=Once, compare=False, repr=False)


@dataclass(frozen=True)
class LogMark:
    """From where on a file of the host belongs to this run.

    `inode` tells it from one that takes its place later, `before` (the agent's fingerprint of what stands before
    `offset`) from one that is written over it.
    """

    path: str
    offset: int
    inode: int | None = None
    before: str | None = None

    @classmethod
    def of_server(cls, record: Mapping[str, Any]) -> LogMark:
        """Where the log of a server of ours begins, by its record."""
        return cls(record["log"], record["log_offset"], record.get("log_inode"), record.get("log_before"))

    @classmethod
    def of_facts(cls, facts: Mapping[str, Any]) -> LogMark:
        """The end of the host's log when it was looked at."""
        return cls(facts["log"], facts["log_size"], facts.get("log_inode"), facts.get("log_before"))


@dataclass
class Found:
    """What the tasks of one run on one host have found out so far.

    `record` is the host's of the server that this run works with, `folder` where in the bundle its files go. `address` is
    where that server is reached if not on the host itself, `port` where not the inventory's; a `node` with these `gpus`
    (one a line of text) runs it, after it `waited` (s) in a queue. `changed`: this try has changed files, `touched`: it has begun to stop or to start a
    server; neither can be found out later. `together`: what was measured, made one set already.
    """

    facts: dict[str, Any] | None = None
    spec: PatchSpec | None = None
    modules: dict[str, bytes] = field(default_factory=dict)
    plans: tuple[FilePlan, ...] = ()
    patched: bool = False
    changed: bool = False
    log: LogMark | None = None
    probe: tuple[LogMark, ...] = ()
    probe_folder: str | None = None
    steps: int | None = None
    started: bool = False
    touched: bool = False
    record: dict[str, Any] | None = None
    address: str | None = None
    port: int | None = None
    node: str | None = None
    gpus: tuple[str, ...] = ()
    waited: float | None = None
    folder: str = ""
    measurements: list[Measurement] = field(default_factory=list)
    serving: list[ServingRun] = field(default_factory=list)
    together: MeasurementSet | None = None
    variation: str = ""
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
    guarded: int = 0
    """How many blocks with a `rescue` are at work: if there is one, an interrupt puts the host back."""
    resumed: int = 0
    """How often this run has been taken up again."""
    attempt: int = 0
    """How often this load was begun before in this try: what it is made of may be there already."""
    start_options: Mapping[str, Any] = field(default_factory=dict)
    """What the launcher is told of a start beside what the inventory says: it belongs to no setting."""
    nodes: Nodes | None = None
    """The nodes that run servers of this run at the same time; None where there is one server at a time."""
    inventory: str | None = None
    """The file that the command named; None for the project's."""
    node: Member | None = None
    """Its part in a server of several hosts that are worked on together."""

    @property
    def run(self) -> str:
        return self.bundle.run

    @property
    def begun_before(self) -> bool:
        """Whether an earlier try may have left something that holds."""
        return bool(self.resumed or self.attempt)

    def invoke(self, command: str) -> str:
        """A command for this host, to be typed as it stands: invoke rollback --host eagle."""
        return complete(f"invoke {command}", self.host.named, self.inventory)

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
        return self.found.log or LogMark.of_facts(self.facts)

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
        return self.host.server.port if self.found.port is None else self.found.port

    @property
    def server_address(self) -> str:
        """Where the server is reached from the host: on its own machine, or on the node that runs it."""
        if self.found.address is not None:
            return self.found.address
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
