"""A sweep spread over equal hosts: each measures the reference, then takes loads until none is left; one set of all."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eaglelab.actions.equal import identity
from eaglelab.commands.measuring import Job, forget, hold, measure_host, try_load
from eaglelab.commands.spread_tries import SpreadTries
from eaglelab.context import Context
from eaglelab.errors import HostError, InputError, OtherMachine
from eaglelab.host import Host
from eaglelab.idle import Idle
from eaglelab.profile.measurement_set import Failed, Measurement
from eaglelab.profile.setting_key import SettingKey
from eaglelab.profile.spread import Spread, merge
from eaglelab.sweep.deal import Deal, Kept
from eaglelab.sweep.deck import without_dead
from eaglelab.sweep.plan import Load, SweepPlan

__all__ = ["Spreading", "refuse_spread"]


def refuse_spread(hosts: Sequence[Host], *, shares: bool) -> None:
    """Raises InputError where a sweep cannot be spread."""
    where = "--spread"
    if len(hosts) < 2:
        raise InputError("one host is nothing to spread over", where=where, hint="--host GROUP, or --host a,b")
    if not shares:
        raise InputError("SGLang's own client is not spread", where=where, hint="leave out --client sglang")


@dataclass
class Spreading:
    """One sweep on several hosts, begun or taken up again. `measured` and `failed` are what it came to, by host.

    `hint`: what to type where the hosts are not equal. `absent` are hosts whose earlier figures count though they are not
    there now, with those loads.
    """

    names: Sequence[str]
    concurrency: Sequence[int]
    hint: str
    deal: Deal = field(init=False)
    tries: SpreadTries = field(init=False)
    measured: dict[str, list[Measurement]] = field(default_factory=dict)
    failed: dict[str, list[Failed]] = field(default_factory=dict)
    absent: Mapping[str, Sequence[Load]] = field(default_factory=dict)
    reference: SettingKey | None = None
    simulated: str | None = None
    sglang: str | None = None
    _loads_of_all: Sequence[Load] = ()

    def __post_init__(self) -> None:
        self.deal = Deal(self.names, self._measured_before, self.hint)
        self.tries = SpreadTries({}, "")

    def measure(self, context: Context, job: Job, found: dict[str, Any]) -> None:
        """One host's share; `found` is given what it measured. Raises what ends it: its loads go back to the others."""
        folder = context.bundle.folder.parent  # the same on every host
        self.tries = SpreadTries({name: folder / name for name in self.names}, context.run)
        if context.resumed:
            self.tries.reopen(context.host.name)
        try:
            measure_host(context, job, found.update, self._loads)
        except OtherMachine as error:
            self.deal.refuse(f"{context.host.name} is not the host that this run began on: {error.what}")
            raise
        finally:
            self.deal.leave(context.host.name)

    def merged(self) -> Spread | None:
        """All that was measured, as one set; None where no host has measured the reference."""
        found = {**self.measured, **{name: self._figures(name, loads) for name, loads in self.absent.items()}}
        by_host = {name: found[name] for name in self.names if found.get(name)}
        if self.reference is None or not by_host:
            return None
        failed = [each for name in self.names for each in self.failed.get(name, ())]
        return merge(by_host, self.reference, simulated=self.simulated, sglang=self.sglang, failed=failed)

    def _loads(self, context: Context, job: Job, plan: SweepPlan, failed: list[Failed]) -> None:
        name, idle, about = context.host.name, Idle(context, "the other hosts"), identity(context)
        loads = without_dead(plan.loads, self.tries.dead(about, plan.loads) if context.resumed else {})
        self._loads_of_all = loads
        before = self._before(context, job, loads, about)
        claim = self.tries.at_load(name) if context.resumed else None
        reference = self.deal.join(name, about, loads, idle, Kept([load.folder for load in before.kept], claim))
        self.reference = SettingKey(reference.points[0].steps, reference.points[0].variation.name)
        self.failed[name] = failed
        self._begin(context, about, before)
        if reference not in before.kept:
            if before.lost:  # another server has to run there first
                self.deal.disclaim(name)
            # What is made instead begins with the first of its step counts, so that the setting of the reference stays.
            while instead := self._one(context, job, reference, failed, "the reference"):
                reference = self.deal.instead(reference, instead)
        if failed:
            what = "the reference could not be measured, and without it nothing else here can be compared"
            raise HostError(f"{what}: {failed[0].what}", where=name, hint="server.log is in the bundle")
        while (load := self.deal.take(name, idle)) is not None:
            if load in reference.apart:
                continue  # on another host its server died of all step counts at once; here they are measured
            self._note(context, load)
            self.deal.again(self._one(context, job, load, failed, "its share"))
        self._note(context, None)

    def _before(self, context: Context, job: Job, loads: Sequence[Load], about: Mapping[str, Any]) -> _Before:
        """What this host measured in earlier tries, as far as its reference holds: without it nothing can be compared."""
        if not context.resumed:
            return _Before()
        name, reference = context.host.name, loads[0]
        done, was = self.tries.measured(name, loads), self.tries.identity(name)
        if was is not None and was != about:
            begun = self.tries.begun(name, loads)  # of those, too, one concurrency may be measured
            return _Before(lost=begun, why=f"this host is not what it was: {_then_and_now(was, about)}")
        if not done:
            return _Before()
        if not hold(context, job, reference):
            what = "its server would be started otherwise now (flags, variables, models or worker files)"
            return _Before(lost=done, why=f"{reference.name}: {what}")
        kept = [reference, *(load for load in done if load != reference and hold(context, job, load))]
        return _Before(kept, [load for load in done if load not in kept], "another server would be started for it now")

    def _begin(self, context: Context, about: Mapping[str, Any], before: _Before) -> None:
        """Says what holds and what is measured again, from where on nothing but that counts."""
        name = context.host.name
        if before.kept:
            self._keep(context)
        if context.options.check:
            return
        if before.lost:
            again = ", ".join(load.name for load in before.lost)
            context.say.line(f"  measured again: {again}; {before.why}", style="yellow")
            self.tries.set_aside(name, before.lost)
        self.tries.begin(name, about)

    def _one(self, context: Context, job: Job, load: Load, failed: list[Failed], what: str) -> list[Load]:
        """A load, whose figures count once all of it is measured."""
        context.say.line(f"Load ({what}): {load.name}", style="bold")
        try:
            instead = try_load(context, job, load, failed)
        except BaseException:
            forget(context, load)
            raise
        self._keep(context)
        return instead

    def _keep(self, context: Context) -> None:
        self.measured[context.host.name] = list(context.found.measurements)
        if not context.options.check:
            self.simulated, self.sglang = context.simulated, context.facts["sglang_version"]

    def _note(self, context: Context, load: Load | None) -> None:
        if not context.options.check:
            self.tries.give(context.host.name, load)

    def _measured_before(self, about: Mapping[str, Any], joined: Collection[str]) -> Collection[str]:
        """The loads that hosts measured in earlier tries and that are not there now, if they were what the others are."""
        self.absent = self.tries.others(about, joined, self._loads_of_all, self.concurrency)
        return {load.folder for loads in self.absent.values() for load in loads}

    def _figures(self, name: str, loads: Sequence[Load]) -> list[Measurement]:
        return [found for load in loads for found in self.tries.figures(name, load, self.concurrency)]


@dataclass(frozen=True)
class _Before:
    """What a host measured in earlier tries: what holds, what does not and why."""

    kept: Sequence[Load] = ()
    lost: Sequence[Load] = ()
    why: str = ""


def _then_and_now(was: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    changed = [what for what in now if was.get(what) != now[what]]
    return "; ".join(f"{what}: {was.get(what, 'not known')}, now {now[what]}" for what in changed)
