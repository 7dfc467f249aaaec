"""What a command line asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eaglelab.commands.options import filled
from eaglelab.commands.past import PastRun
from eaglelab.commands.together import Manner
from eaglelab.context import Options
from eaglelab.once import Once

__all__ = ["Request"]


@dataclass(frozen=True)
class Request:
    """What a command line asked for. `vars` override the playbook's; `more` is what else the command takes.

    `resume` names an earlier run, which `take_up` puts into `past`. `manner`: how several hosts are worked on at once.
    """

    command: str
    project: Path
    host: str | None = None
    inventory: str | None = None
    check: bool = False
    takeover: bool = False
    accept_drift: bool = False
    vars: Mapping[str, Any] = field(default_factory=dict)
    tags: Sequence[str] = ()
    skip_tags: Sequence[str] = ()
    steal_lock: bool = False
    resume: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict)
    past: PastRun | None = None
    manner: Manner = field(default_factory=Manner)
    once: Once = field(default_factory=Once, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Raises InputError for an option that is there and empty: it must not mean another inventory, or a new run."""
        for option in ("inventory", "resume"):
            filled(getattr(self, option), f"--{option}")

    @property
    def logs(self) -> Path:
        return self.project / "logs"

    @property
    def options(self) -> Options:
        return Options(self.check, self.takeover, self.accept_drift, self.project, self.once)
