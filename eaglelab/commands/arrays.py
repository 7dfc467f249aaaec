"""`sweep --array`: the loads of one sweep as jobs of a cluster at the same time, each in a place of its own.

One thread drives each job as a sweep drives its load; what any of them does, it does through an agent of its own. The
jobs are Slurm's: a controller that goes away leaves them, and the one that takes the run up again finds them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from eaglelab.actions import ACTIONS
from eaglelab.actions.ended import clear_ended
from eaglelab.actions.tasks import end_tasks, tasks_of
from eaglelab.board import Board
from eaglelab.commands.hosts import LOGINS, Selection, connected
from eaglelab.commands.measuring import Job, try_load
from eaglelab.commands.together import Manner, Together
from eaglelab.context import Context, Found
from eaglelab.errors import AttentionError, EaglelabError, HostError, InputError, Interrupted, NotOurs
from eaglelab.host import Host
from eaglelab.idle import Sign
from eaglelab.interruption import Interruption
from eaglelab.playbook import Playbook
from eaglelab.profile.measurement_set import Failed, Measurement
from eaglelab.profile.nodes import merge_nodes
from eaglelab.profile.setting_key import SettingKey
from eaglelab.remote.pipe import LinkLost
from eaglelab.report.array_view import array_table, queue_words
from eaglelab.report.spread_view import spread_table
from eaglelab.runner import Runner, arguments_of
from eaglelab.server.launching import launching, lost
from eaglelab.sweep.jobs import JobQueue
from eaglelab.sweep.nodes import Nodes
from eaglelab.sweep.plan import Load, SweepPlan

__all__ = ["Array", "refuse_array"]

_GRACE_S = 30.0
_KEEPER = "keeper"


def refuse_array(hosts: Sequence[Host], *, shares: bool, spread: bool, keep: bool) -> None:
    """Raises InputError where a sweep cannot be jobs at the same time."""
    where = "--array"
    if len(hosts) != 1:
        raise InputError("an array of jobs is one cluster's", where=where, hint="--host NAME of one cluster")
    host = hosts[0]
    if host.server.launcher != "slurm":
        what = f"host '{host.name}' runs its servers by the launcher {host.server.launcher}, which has no jobs"
        raise InputError(what, where=where, hint="server.launcher: slurm in inventory.yaml (docs/launchers/slurm.md)")
    if spread:
        raise InputError("a sweep is spread over hosts or an array of jobs", where=where, hint="leave out --spread")
    if not shares:
        raise InputError("SGLang's own client drives no array", where=where, hint="leave out --client sglang")
    if keep:
        raise InputError("each job of an array ends once it is measured", where=where, hint="leave out --keep")


@dataclass
class Array:
    """One sweep as jobs. `ready` is the playbook that patches, `job_of` that of one job; `at_once` jobs at a time, None:
    all. `rows` say what became of each job, once it ended."""

    selection: Selection
    ready: Playbook
    job_of: Callable[[Load], Playbook]
    at_once: int | None
    rows: list[dict[str, Any]] = field(default_factory=list)
    by_node: dict[str, list[Measurement]] = field(default_factory=dict)
    turn: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(LOGINS))
    queue: JobQueue = field(init=False)
    nodes: Nodes = field(init=False)

    def loads(self, context: Context, job: Job, plan: SweepPlan, failed: list[Failed]) -> None:
        """All loads of a plan on one cluster; see `measuring.Loads`. Every job of this run has ended when it returns."""
        host = context.host
        # A load whose server dies may become several: then they, too, are made at the same time.
        count = self.at_once or host.server.slurm.array or len(plan.points)
        queue = context.client.call("queue", options=launching(host)["launcher"])
        slurm, gpus = host.server.slurm, launching(host)["launcher"]["gpus"]
        for line in queue_words(plan, count, gpus, slurm.partition, queue, slurm.time, slurm.idle):
            context.say.line(f"  {line}")
        others = self._say_others(context)
        Runner(context, ACTIONS).run(self.ready)
        if context.options.check:
            self._preview(context, plan)
            return
        if others:
            clear_ended(context)
        workers = [str(number) for number in range(1, count + 1)]
        self.queue, self.nodes = JobQueue(plan.loads, workers), Nodes(plan.loads[0])
        context.client.doing(f"{len(plan.loads)} jobs of a sweep")
        try:
            self._all(context, job, plan, failed, workers)
        finally:
            try:
                self._end_left(context)
            finally:
                self._conclude(context, failed)

    def _say_others(self, context: Context) -> bool:
        """Jobs of other runs. Whether they, or ended ones, have left anything on the host."""
        status = context.client.call("status")
        for task in tasks_of(status):
            if task["run"] != context.run:
                context.say.line(
                    f"  a job of run {task['run']} is there ({task['task']}): {context.invoke('stop')} would end it",
                    style="yellow",
                )
        return bool(tasks_of(status) or status.get("ended"))

    def _preview(self, context: Context, plan: SweepPlan) -> None:
        start = ACTIONS["start"]
        for load in plan.loads:
            context.say.line(f"Job: {load.name}", style="bold")
            if start.preview:
                start.preview(context, arguments_of(self.job_of(load), ACTIONS, "start", context))

    def _all(self, context: Context, job: Job, plan: SweepPlan, failed: list[Failed], workers: Sequence[str]) -> None:
        """All workers to their end. Raises the gravest of what ended one of them before its time."""
        with Board(context.say.console, [load.name for load in plan.loads]) as board:

            def work(name: str, stop: Interruption) -> None:
                if name == _KEEPER:
                    self._keep_lock(context, stop)
                else:
                    self._work(context, replace(job, book_of=self.job_of), failed, name, stop, board)

            names = [*workers, _KEEPER]
            found = Together(names, work, Manner(len(names), None, "continue")).run()
        errors = [ended.error for ended in found.values() if ended.error is not None]
        grave = [error for error in errors if not isinstance(error, LinkLost)]
        if not grave and not self.queue.left:
            return  # the others have made what a worker left
        if errors:
            raise _gravest(grave or errors, context.host.name)

    def _keep_lock(self, context: Context, stop: Interruption) -> None:
        """The lock of the host is that of this run's first agent, which would end if it heard nothing for long.

        Once it is gone no further job begins; those who drive one hear it from their own agents.
        """
        stop.begun = True
        sign = Sign(context)
        try:
            while not self.queue.over:
                stop.sleep(0.5)
                sign()
        except BaseException:
            self.queue.close()
            raise

    def _work(
        self, main: Context, job: Job, failed: list[Failed], worker: str, stop: Interruption, board: Board
    ) -> None:
        """Drives one load after another until none is left."""
        try:
            load = self.queue.take(worker, lambda: stop.sleep(0))
            if load is None:
                return  # a worker that gets no load makes no connection
            way = connected(
                self.selection, main.host, main.bundle, main.say, main.options, lock=None, stop=stop, turn=self.turn
            )
            with way as context:
                stop.begun = True
                context.inventory = main.inventory
                sign = Sign(context)
                try:
                    while load is not None:
                        self.queue.done(worker, self._one(main, context, job, load, failed, board))
                        load = self.queue.take(worker, sign)
                finally:
                    if context.client.given_up:
                        main.client.give_up()
        except (AttentionError, NotOurs):
            self.queue.close()
            raise
        finally:
            self.queue.leave(worker)

    def _one(self, main: Context, way: Context, job: Job, load: Load, failed: list[Failed], board: Board) -> list[Load]:
        """One load to the end of its job. Which loads are to be made instead of it, or because of it."""
        context = self._context(main, way, load, board)
        own: list[Failed] = []
        main.bundle.event(load.name, "job", "started")
        ended = "interrupted"
        try:
            instead = try_load(context, job, load, own, lambda error: lost(error.what) and self.queue.once_more(load))
            ended = own[0].what if own else "not, submitted anew" if instead else "measured"
            if load == self.nodes.reference and instead:
                self.nodes.reference = instead[0]
        except EaglelabError as error:
            ended = error.what.splitlines()[0]
            raise
        finally:
            board.ended(load.name, "done" if ended == "measured" else "failed")
            row = {**_job_of(context, load), "ended": ended}
            self.rows.append(row)
            main.bundle.event(load.name, "job", "ok" if ended == "measured" else "failed", result=row)
        main.found.server_info = main.found.server_info or context.found.server_info
        if load.on and own:
            context.say.line(f"  without it, nothing that was measured on {load.on} compares with other nodes", "red")
        elif own:
            failed += own
        node = row["node"]
        if node is None or not context.found.measurements:
            return instead
        self.by_node.setdefault(node, []).extend(context.found.measurements)
        return [*instead, *(self.nodes.measured(load, node) if not own else ())]

    def _context(self, main: Context, way: Context, load: Load, board: Board) -> Context:
        """That of one load: what the host's is known by, the place of its own, a log and a diary of its own."""
        found = main.found
        folder = way.client.enter(main.run, load.folder, main.client.session)
        facts = {**main.facts, "state": folder, "log": f"{folder}/server.log", "log_size": 0}
        facts |= {"log_inode": None, "log_before": None, "port_holder": None}
        options: dict[str, Any] = {"apart": True, "idle": main.host.server.slurm.idle}
        return replace(
            way,
            bundle=replace(main.bundle, diary=f"{load.folder}/events.jsonl"),
            say=main.say.for_host(load.name, main.bundle.masker, board),
            found=Found(facts=facts, spec=found.spec, modules=found.modules, plans=found.plans, patched=found.patched),
            resumed=main.resumed,
            attempt=self.queue.attempt(load),
            start_options={**options, "nodelist": load.on} if load.on else options,
            nodes=self.nodes,
        )

    def _end_left(self, context: Context) -> None:
        """Whatever a worker could not end, and the places of all. An interrupt does not keep it from being done."""
        try:
            end_tasks(context, context.run, _GRACE_S)
        except KeyboardInterrupt:
            end_tasks(context, context.run, _GRACE_S)
            raise

    def _conclude(self, context: Context, failed: list[Failed]) -> None:
        """All figures as one set; what cannot be compared counts as failed."""
        home = self.nodes.home
        by_node = dict(sorted(self.by_node.items(), key=lambda item: (item[0] != home, item[0])))
        point = self.nodes.reference.points[0]
        together, spread = merge_nodes(
            by_node,
            SettingKey(point.steps, point.variation.name),
            simulated=context.simulated,
            sglang=context.facts["sglang_version"],
            failed=failed,
        )
        context.found.measurements, context.found.together = list(together.measurements), together
        failed[:] = together.failed
        context.bundle.json("array.json", {"jobs": self.rows})
        context.say.show(array_table(self.rows))
        if spread is not None:
            context.bundle.json("spread.json", spread.to_json())
            context.say.show(spread_table(spread))


def _job_of(context: Context, load: Load) -> dict[str, Any]:
    """Number, node and times of a load's last job; those of an earlier try where they hold."""
    known = context.bundle.read(f"{load.folder}/node.json") or {}
    waits: list[Mapping[str, Any]] = []
    for event in context.bundle.events():
        if (event["action"], event["state"]) == ("start", "ok"):
            waits = []
        elif (event["action"], event["state"]) == ("wait", "ok"):
            waits.append(event.get("result") or {})
    waited = waits[0] if waits else {}  # later ones are of a run that was taken up again, on a server that was ready
    # Nobody may have looked on while it was in the queue: then Slurm's word, in whole seconds, is the larger one.
    queued = [each for each in (waited.get("queued"), known.get("waited")) if each is not None]
    return {
        "load": load.name,
        "folder": load.folder,
        "job": (context.found.record or {}).get("job") or known.get("job"),
        "node": context.found.node or known.get("node"),
        "queued": max(queued, default=None),
        "seconds": waited.get("seconds"),
    }


def _gravest(errors: Sequence[BaseException], host: str) -> BaseException:
    """What a person has to see to before anything else, and then what is said of the run."""

    def order() -> Iterator[type[BaseException]]:
        yield from (AttentionError, NotOurs, KeyboardInterrupt, Interrupted, EaglelabError, BaseException)

    error = next(error for kind in order() for error in errors if isinstance(error, kind))
    if isinstance(error, EaglelabError | KeyboardInterrupt):
        return error
    return HostError(
        f"unexpected: {type(error).__name__}: {error}",
        where=host,
        hint="run it again with --debug and report what it prints",
    )
