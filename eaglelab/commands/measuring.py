"""Measures the settings of a matrix on one host: as few loads as it takes, one after another, then all figures together."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eaglelab.actions import ACTIONS
from eaglelab.actions.serve import wanted_fingerprint
from eaglelab.actions.wait import expected_load
from eaglelab.commands.clients import Client
from eaglelab.commands.known_settings import refuse_unknown
from eaglelab.commands.nccl_settings import refuse_nccl_settings
from eaglelab.commands.restoring import found_before, leave, named, put_back
from eaglelab.commands.spread_tries import SpreadTries
from eaglelab.context import Context
from eaglelab.errors import AttentionError, EaglelabError, HostError, Interrupted, NotOurs
from eaglelab.nodes.member import NodeGone
from eaglelab.playbook import Playbook
from eaglelab.profile.measurement_set import Failed
from eaglelab.profile.setting_key import SettingKey
from eaglelab.remote.pipe import LinkLost
from eaglelab.report.plan_view import plan_table
from eaglelab.runner import Runner, arguments_of
from eaglelab.server.launching import cancelled
from eaglelab.server.readiness import ServerDied
from eaglelab.sweep.matrix import Matrix, Variation
from eaglelab.sweep.one_load import why_not_one_load
from eaglelab.sweep.plan import Load, SweepPlan, plan_loads

__all__ = ["Job", "Loads", "forget", "hold", "load_vars", "measure_host", "try_load"]


@dataclass(frozen=True)
class Job:
    """What to measure and how. `book_of` gives the playbook of one load; `client`, `concurrency`, `ranked`: what it sends.

    `separate`: a load for each setting, though one could serve several. `anyway`: settings that cannot matter, too.
    `apart`: each server has a place of its own on the host, so that none which is there is ended for it.
    """

    matrix: Matrix
    book_of: Callable[[Load], Playbook]
    client: Client
    concurrency: Sequence[int]
    ranked: bool
    separate: bool = False
    anyway: bool = False
    keep: bool = False
    apart: bool = False


Loads = Callable[[Context, Job, SweepPlan, list[Failed]], None]
"""Makes the loads of a plan on one host; the settings of those that fail are added to the list."""


def load_vars(load: Load, client: Client, *, probed: bool = True) -> dict[str, Any]:
    """The playbook's variables for one load. `probed`: with measured rounds beside the unmeasured ones."""
    steps: Any = "baseline" if load.steps is None else list(load.steps) if load.one_load else load.steps[0]
    shared = {"choose": list(load.steps or ()) if load.one_load else [], "probed": probed and load.steps is not None}
    return {
        "steps": steps,
        "flags": dict(load.variation.flags),
        "env": dict(load.variation.env),
        "folder": load.folder,
        **(shared if client.shares else {}),
    }


def measure_host(
    context: Context, job: Job, tell: Callable[[dict[str, Any]], None], loads: Loads | None = None
) -> None:
    """All of it on one host, which is then left as it was found. `tell` is given what came out, also of a run that failed.

    `loads` makes them; without it all are made here, one after another.

    Raises HostError in the end if a setting failed.
    """
    before = found_before(context)
    failed: list[Failed] = []
    follows = context.node is not None and not context.node.first  # the figures are those of rank 0

    def conclude() -> None:
        tell({} if follows else job.client.conclude(context, failed, job.ranked))

    context.guarded += 1
    try:
        try:
            plan = _plan(context, job)
            (loads or _all_loads)(context, job, plan, failed)
        except (EaglelabError, KeyboardInterrupt) as error:
            failure = named(context, error)
            try:
                conclude()
            finally:
                put_back(context, before, failure, apart=job.apart)
            raise failure from error
        try:
            conclude()
        finally:
            if not context.options.check:
                leave(context, before, keep=job.keep, apart=job.apart)
    finally:
        context.guarded -= 1
    if failed and not follows:
        raise _some_failed(context, failed, len(plan.points))


def _plan(context: Context, job: Job) -> SweepPlan:
    """What will be loaded, and why: said before anything is changed."""
    first = job.book_of(Load(None, Variation()))
    for name in job.client.reads:
        ACTIONS[name].run(context, arguments_of(first, ACTIONS, name, context))
    if context.node is not None:
        context.node.meet(context, "plan")
    server, version = context.host.server, context.facts["sglang_version"]

    def why_not(variation: Variation) -> str | None:
        if server.speculative is None:
            return "this host has no speculation"
        if not job.client.shares:
            return "bench_serving cannot choose a step count by request"
        return why_not_one_load(version, server.speculative, {**server.flags, **variation.flags})

    plan = plan_loads(job.matrix.points(), why_not, expected_load(context), separate=job.separate)
    if context.node is None or context.node.first:
        context.say.show(plan_table(plan))
    job.client.refuse(context, arguments_of(first, ACTIONS, job.client.measures, context))
    refuse_unknown(context, job.matrix, anyway=job.anyway)
    refuse_nccl_settings(context, job.matrix, max(job.concurrency), anyway=job.anyway)
    for load in () if job.apart else plan.loads:  # whose server would be ended, before the first one is measured
        ACTIONS["check_owner"].run(context, arguments_of(job.book_of(load), ACTIONS, "check_owner", context))
    return plan


def _all_loads(context: Context, job: Job, plan: SweepPlan, failed: list[Failed]) -> None:
    """Each load in turn."""
    left, done = deque(plan.loads), 0
    while left:
        load, done = left.popleft(), done + 1
        context.say.line(f"Load {done} of {done + len(left)}: {load.name}", style="bold")
        left.extendleft(reversed(try_load(context, job, load, failed)))


def try_load(
    context: Context,
    job: Job,
    load: Load,
    failed: list[Failed],
    once_more: Callable[[HostError], bool] = lambda _: False,
) -> list[Load]:
    """One load. If it fails it is put down, unless the user, the host or the link ended it; which loads to make instead.

    A server that dies with several step counts may live with one: their graphs take memory. `once_more` says of a failure
    whether the same load is to be made again.
    """
    if context.node is not None:
        context.node.again(context)
    try:
        _one_load(context, job, load)
    except (AttentionError, Interrupted, NotOurs, LinkLost, NodeGone):
        raise
    except HostError as error:
        what = error.what.splitlines()[0]
        context.say.line(f"  {load.name} failed: {what}", style="red")
        if once_more(error):
            context.say.line("  that says nothing of its setting: it is submitted once more", style="yellow")
            forget(context, load)
            return [load]
        if load.one_load and isinstance(error, ServerDied) and not cancelled(what):
            context.say.line("  its step counts are tried again, a load for each", style="yellow")
            forget(context, load)
            context.bundle.json(f"{load.folder}/instead.json", {"loads": [each.name for each in load.apart]})
            return load.apart
        failed += [Failed(point.steps, point.variation.name, what) for point in load.points]
    return []


def forget(context: Context, load: Load) -> None:
    """What was measured in a load before its server died; all of it is measured again."""
    keys = {SettingKey(point.steps, point.variation.name) for point in load.points}
    found = context.found
    found.measurements = [each for each in found.measurements if each.result.key not in keys]


def _one_load(context: Context, job: Job, load: Load) -> None:
    """Its settings, measured; from the bundle, where an earlier try has them and its server would be started just so."""
    if hold(context, job, load):
        return
    context.found.variation = load.variation.name
    Runner(context, ACTIONS).run(job.book_of(load))
    record = context.found.record
    if record is not None and not context.options.check:
        at = time.strftime("%Y-%m-%d %H:%M")
        context.bundle.json(f"{load.folder}/fingerprint.json", _fingerprint(context, load, record))
        context.bundle.json(f"{load.folder}/done.json", {"fingerprint": record["fingerprint"], "at": at})


def hold(context: Context, job: Job, load: Load) -> bool:
    """Whether an earlier try has measured a load whose server would be started just so; its figures then count as found."""
    done = context.bundle.read(f"{load.folder}/done.json") if context.begun_before else None
    found = context.found
    was = found.record, found.steps, found.node, list(found.measurements), list(found.serving)
    held = done is not None and _still(context, job.book_of(load), job.client.measures, done["fingerprint"])
    if context.node is not None and context.resumed:
        mine, held = held, context.node.agreed(context, f"{load.name} was measured", held)
        if mine and not held:  # another node's part of the server would be another one: what was measured is of neither
            found.record, found.steps, found.node, found.measurements, found.serving = was
            if not context.options.check:
                tries = SpreadTries({context.host.name: context.bundle.folder}, context.run)
                tries.set_aside(context.host.name, [load])
    if not held or done is None:
        return False
    context.say.line(f"holds since {done['at']}: {load.name}", style="bold")
    context.bundle.event(load.name, job.client.measures, "held")
    return True


def _fingerprint(context: Context, load: Load, record: Mapping[str, Any]) -> dict[str, Any]:
    """All that the figures of a load hang on. Clocks and temperatures are beside each measurement, in gpus.json."""
    facts, spec = context.facts, context.found.spec
    return {
        "fingerprint": record["fingerprint"],
        "host": context.host.name,
        "sglang": facts["sglang_version"],
        "python": facts["python_version"],
        "gpus": [{key: gpu.get(key) for key in ("name", "memory.total", "driver_version")} for gpu in facts["gpus"]],
        "patch": f"{spec.id} {spec.version}" if spec else None,
        "workers": {plan.path: plan.patched_sha256 for plan in context.found.plans},
        "steps": list(load.steps or ()),
        "flags": dict(load.variation.flags),
        "env": dict(load.variation.env),
        "command": record["command"],
        "variables": record["env"],
    }


def _still(context: Context, book: Playbook, measures: str, fingerprint: str) -> bool:
    """Whether the setting is what it was when it was measured."""
    start = arguments_of(book, ACTIONS, "start", context)
    if wanted_fingerprint(context, start, patched=True) != fingerprint:
        return False
    found = context.found
    found.node = found.node or (context.bundle.read(f"{start.folder}/node.json") or {}).get("node")
    found.record, found.steps = {"fingerprint": fingerprint}, start.setting(context).steps
    found.server_info = found.server_info or context.bundle.read("server_info.json") or {}
    if context.node is not None and not context.node.first:
        return True
    measure = ACTIONS[measures]
    return bool(measure.holds and measure.holds(context, arguments_of(book, ACTIONS, measures, context), {}))


def _some_failed(context: Context, failed: Sequence[Failed], of: int) -> HostError:
    names = ", ".join(each.key.words for each in failed)
    others = "the others were measured and " if len(failed) < of else ""
    return HostError(
        f"{len(failed)} of {of} settings failed: {names}; {others}the host is as it was",
        where=context.host.name,
        hint="server.log of each is in the bundle",
    )
