"""One way to run a host's server, and a fingerprint that tells whether the running one is already that."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eaglelab.host import FlagValue, Host
from eaglelab.server.command import server_command, server_env
from eaglelab.server.launching import launching, server_python

__all__ = ["Setting", "setting_name"]


def setting_name(steps: int | None) -> str:
    """What files of a setting are named after: k2, or baseline for none."""
    return "baseline" if steps is None else f"k{steps}"


@dataclass(frozen=True)
class Setting:
    """`steps`: those of the launch; None is the baseline, without speculation. `gate`: the variable that switches the
    probe on. `candidates`: a file on the host that names the step counts among which requests choose.
    """

    steps: int | None
    gate: str | None
    probe_folder: str | None
    flags: Mapping[str, FlagValue]
    env: Mapping[str, str]
    candidates: str | None = None

    def command(self, host: Host, api_key: str | None) -> list[str]:
        flags = dict(self.flags)
        if self.candidates is not None:
            flags |= {"speculative-adaptive": True, "speculative-adaptive-config": self.candidates}
        return server_command(host, python=server_python(host), steps=self.steps, extra=flags, api_key=api_key)

    def environment(self, host: Host) -> dict[str, str]:
        """What the server's process gets beside what it inherits."""
        extra = dict(self.env)
        if self.gate is not None:
            extra[self.gate] = "1"
        if self.candidates is not None:
            extra["EAGLE3_STEPS_FROM_RID"] = "1"
        if self.probe_folder is not None:
            extra["EAGLE3_PROFILE_DIR"] = self.probe_folder
        return server_env(host, extra)

    def fingerprint(self, host: Host, files: Mapping[str, str], machine: object = None) -> str:
        """Over command line, variables, the sha256 of the worker files that the server would load, and the machine.

        The probe's folder is left out: it differs between runs and changes nothing else.
        """
        environment = {name: value for name, value in self.environment(host).items() if name != "EAGLE3_PROFILE_DIR"}
        about: Any = [self.command(host, None), sorted(environment.items()), sorted(files.items())]
        if host.server.launcher != "process":
            about.append(launching(host))
        if machine is not None:  # an agent that does not know it, and records of before, go by the rest alone
            about.append(machine)
        return hashlib.sha256(json.dumps(about).encode()).hexdigest()
