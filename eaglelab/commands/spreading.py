"""A sweep spread over equal hosts: each measures the reference, then takes loads until none is left; one set of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from eaglelab.commands.measuring import Job, forget, measure_host, try_load
from eaglelab.context import Context
from eaglelab.errors import HostError, InputError
from eaglelab.host import Host
from eaglelab.profile.measurement_set import Failed, Measurement
from eaglelab.profile.setting_key import SettingKey
from eaglelab.profile.spread import Spread, merge
from eaglelab.sweep.deal import Deal
from eaglelab.sweep.plan import Load, SweepPlan

__all__ = ["Spreading", "identity", "refuse_spread"]

_SIGN_S = 60.0
"""How often a host that waits is told that somebody is still there: its agent ends after five minutes of silence."""


def refuse_spread(hosts: Sequence[Host], *, shares: bool, resumed: bool) -> None:
    """Raises InputError where a sweep cannot be spread."""
    where = "--spread"
    if len(hosts) < 2:
        raise InputError("one host is nothing to spread over", where=where, hint="--host GROUP, or --host a,b")
    if not shares:
        raise InputError("SGLang's own client is not spread", where=where, hint="leave out --client sglang")
    if resumed:
        raise InputError("a sweep that was spread is not taken up again", where=where, hint="begin a new run")


@dataclass
class Spreading:
    """One sweep on several hosts. `measured` and `failed` are what it came to, by host in the order of the command."""

    names: Sequence[str]
    deal: Deal = field(init=False)
    measured: dict[str, list[Measurement]] = field(default_factory=dict)
    failed: dict[str, list[Failed]] = field(default_factory=dict)
    reference: SettingKey | None = None
    simulated: str | None = None
    sglang: str | None = None

    def __post_init__(self) -> None:
        self.deal = Deal(self.names)

    def measure(self, context: Context, job: Job, found: dict[str, Any]) -> None:
        """One host's share; `found` is given what it measured. Raises what ends it: its loads go back to the others."""
        try:
            measure_host(context, job, found.update, self._loads)
        finally:
            self.deal.leave(context.host.name)

    def merged(self) -> Spread | None:
        """All that was measured, as one set; None where no host has measured the reference."""
        by_host = {name: self.measured[name] for name in self.names if self.measured.get(name)}
        if self.reference is None or not by_host:
            return None
        failed = [each for name in self.names for each in self.failed.get(name, ())]
        return merge(by_host, self.reference, simulated=self.simulated, sglang=self.sglang, failed=failed)

    def _loads(self, context: Context, job: Job, plan: SweepPlan, failed: list[Failed]) -> None:
        name = context.host.name
        idle = _Idle(context)
        reference = self.deal.join(name, identity(context), plan.loads, idle)
        self.reference = SettingKey(reference.points[0].steps, reference.points[0].variation.name)
        self.failed[name] = failed
        self._one(context, job, reference, failed, "the reference")
        if failed:
            what = "the reference could not be measured, and without it nothing else here can be compared"
            raise HostError(f"{what}: {failed[0].what}", where=name, hint="server.log is in the bundle")
        while (load := self.deal.take(name, idle)) is not None:
            self.deal.again(self._one(context, job, load, failed, "its share"))

    def _one(self, context: Context, job: Job, load: Load, failed: list[Failed], what: str) -> list[Load]:
        """A load, whose figures count once all of it is measured."""
        context.say.line(f"Load ({what}): {load.name}", style="bold")
        try:
            instead = try_load(context, job, load, failed)
        except BaseException:
            forget(context, load)
            raise
        self.measured[context.host.name] = list(context.found.measurements)
        if not context.options.check:
            self.simulated, self.sglang = context.simulated, context.facts["sglang_version"]
        return instead


@dataclass
class _Idle:
    """What a host does while it waits for others: it can be ended, and gives a sign of life now and then."""

    context: Context
    said: float = field(init=False)

    def __post_init__(self) -> None:
        self.said = self.context.clock()

    def __call__(self) -> None:
        context = self.context
        context.sleep(0)
        context.say.progress("waiting for the other hosts")
        if context.clock() - self.said >= _SIGN_S:
            self.said = context.clock()
            context.client.doing("wait for the other hosts")


def identity(context: Context) -> Mapping[str, Any]:
    """All that must be the same on two hosts for figures of one to say something about the other."""
    facts = context.facts
    server = context.host.server
    settings = server.model_dump(
        exclude={"port": True, "host": True, "model_path": True, "speculative": {"draft_model_path"}}
    )
    models = [server.model_path, server.speculative.draft_model_path if server.speculative else None]
    return {
        "GPUs": f"{len(facts['gpus'])} x " + " / ".join(sorted({_gpu(gpu) for gpu in facts["gpus"]})),
        "SGLang": facts["sglang_version"],
        "Python": facts["python_version"],
        "workers": ", ".join(f"{plan.path} {plan.original_sha256[:12]}" for plan in context.found.plans),
        "models": ", ".join(PurePosixPath(path).name for path in models if path),
        "server settings": context.bundle.masker.mapping(settings),
    }


def _gpu(gpu: Mapping[str, str]) -> str:
    return ", ".join(str(gpu.get(key, "?")) for key in ("name", "memory.total", "driver_version"))
