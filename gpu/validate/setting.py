"""How a server is started for an experiment, and the inventory entry that says so. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["CANDIDATES", "Flags", "Setting", "Worker", "merged", "server_entry"]

Worker = Literal["v1", "v2"]
Flags = tuple[tuple[str, str | int | float | bool], ...]

WORKERS: tuple[Worker, ...] = ("v2", "v1")
"""The release's default first."""

CANDIDATES = (1, 2, 3, 5, 8)
"""Step counts that one load serves."""


@dataclass(frozen=True)
class Setting:
    """`candidates`: step counts that requests choose from, the server being started with the largest; none: all run with `steps`.

    `patched`: with our lines in the workers; `probe`: switched on. `sync`: it synchronises at each mark.
    `device_timer`: SGLang's own. `flags`: more of SGLang's, `env`: more variables.
    """

    worker: Worker = "v2"
    acceptance: float = 0.6
    steps: int = 3
    candidates: tuple[int, ...] = ()
    tp_size: int = 1
    patched: bool = True
    probe: bool = True
    sync: bool = False
    device_timer: bool = False
    flags: Flags = ()
    env: tuple[tuple[str, str], ...] = ()

    @property
    def late(self) -> bool:
        """Whether the scheduler learns a cycle late that a request is over: v2 overlaps, v1 does not."""
        return self.worker == "v2"

    @property
    def name(self) -> str:
        """For people and file names, such as `v2-p0.6-k1.2.3.5.8`."""
        counts = self.candidates or (self.steps,)
        words = [self.worker, f"p{self.acceptance}", "k" + ".".join(map(str, counts))]
        words += [f"tp{self.tp_size}"] if self.tp_size > 1 else []
        words += [flag for flag, value in self.flags if value is True] + [value for _, value in self.env]
        words += [name for name in ("sync", "device_timer") if getattr(self, name)]
        words += ["unpatched"] if not self.patched else [] if self.probe else ["off"]
        return "-".join(words)


def server_entry(setting: Setting, adaptive_config: str) -> dict[str, Any]:
    """What every machine's inventory entry says under `server`. `adaptive_config`: path of the file with the candidates."""
    flags: dict[str, Any] = dict(setting.flags)
    env = dict(setting.env) | ({"SGLANG_ENABLE_SPEC_V2": "0"} if setting.worker == "v1" else {})
    if setting.candidates:
        flags |= {"speculative-adaptive": True, "speculative-adaptive-config": adaptive_config}
        env["EAGLE3_STEPS_FROM_RID"] = "1"
    if setting.sync:
        env["EAGLE3_PROFILE_SYNC"] = "1"
    if setting.device_timer:
        flags["enable-metrics"] = True
        env["SGLANG_ENABLE_METRICS_DEVICE_TIMER"] = "1"
    # SGLang 0.5.15 to 0.5.18 cannot capture more steps than they were started with.
    speculative = {"num_steps": max(setting.candidates, default=setting.steps)}
    return {"tp_size": setting.tp_size, "speculative": speculative, "flags": flags, "env": env}


def merged(entry: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """`entry` with `more` in it, mappings key by key."""
    result = dict(entry)
    for key, value in more.items():
        inner = result.get(key)
        result[key] = merged(inner, value) if isinstance(inner, Mapping) and isinstance(value, Mapping) else value
    return result
