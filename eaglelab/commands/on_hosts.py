"""One command on one host or on many: opens the run, does the work in a context for each, and says how all ended."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eaglelab.bundle import Bundle, new_run
from eaglelab.commands.hosts import LOGINS, Selection, connected
from eaglelab.commands.outcome import Outcome
from eaglelab.commands.past import PastRun
from eaglelab.commands.request import Request
from eaglelab.commands.together import Ended, Manner, Together
from eaglelab.context import Context, complete
from eaglelab.errors import AttentionError, EaglelabError, HostError, Interrupted, NotOurs
from eaglelab.host import Host
from eaglelab.interruption import Interruption
from eaglelab.masking import Masker
from eaglelab.nodes.lockstep import Lockstep
from eaglelab.remote.payload import agent_source
from eaglelab.runs.figures import has_figures
from eaglelab.say import Say

if TYPE_CHECKING:
    from eaglelab.board import Board
    from eaglelab.nodes.member import Member

__all__ = ["run_on_hosts"]

_SWITCH_S = 0.0005


def run_on_hosts(
    request: Request,
    selection: Selection,
    outcome: Outcome,
    say: Say,
    work: Callable[[Context], dict[str, Any]],
    *,
    playbook: Path | None = None,
    record: Mapping[str, Any] | None = None,
    looks: bool = False,
    undo: Callable[[Context], None] | None = None,
    whole: bool = False,
    over: Callable[[str], None] = lambda _name: None,
    together: bool = False,
    warm: Callable[[], None] | None = None,
) -> None:
    """Opens a run, then does `work` on each host; what it returns goes under the host's name into the outcome.

    `looks`: it changes nothing, and so takes no host's lock. With `record` the run can be resumed. `undo` puts back what
    `work` did, also where that went well; None where it leaves nothing behind. `whole`: the hosts share one piece of work, so
    that as long as it is not done all have their part in it again, and none has a report of its own. `over` hears of each
    of several hosts that has ended. `together`: hosts that are the nodes of one server do it in step. `warm` is done beside
    it, while the hosts are being reached.
    """
    past = request.past
    run = past.run if past else new_run(request.command, time.time())
    folder = request.logs / run
    outcome.run, outcome.bundle, outcome.resume = run, folder, ""
    if past and past.finished:
        outcome.hosts.update({host: past.result(host) for host in past.hosts})
        say.line(f"run {run} came to its end: nothing is left to do")
        return
    if record and not request.check:
        Bundle(folder, run, "").json("request.json", record)
    for host in selection.hosts:
        outcome.hosts[host.name] = (past and not whole and past.result(host.name)) or {"ok": False}
    nodes = selection.server if together else None
    left = [host for host in selection.hosts if nodes or not outcome.hosts[host.name]["ok"]]
    step = Lockstep(nodes.names) if nodes else None
    if nodes:
        outcome.more["server"] = {"name": nodes.server, "nodes": list(nodes.names)}
        outcome.hosts.update({name: {"ok": False} for name in nodes.names})
        request = replace(request, manner=Manner(request.manner.forks, None, "continue"))  # they end each other
    job = _Job(request, selection, outcome, work, undo, over, playbook, record, looks, whole, run, folder, step)
    outcome.masker = Masker.of_all(host.masker(os.environ) for host in left)
    if warm is not None:
        how = {"reached_by_ssh": any(host.connection != "local" for host in left), "several": len(selection.hosts) > 1}
        threading.Thread(target=_quietly, args=(warm,), kwargs=how, name="warm", daemon=True).start()
    try:
        if len(selection.hosts) == 1:
            job.on(left[0], say, None)
        else:
            _on_all(job, left, say)
    finally:
        reported = [host for host in left if not nodes or host.name == nodes.names[0]]
        _report(job, [host.name for host in reported if outcome.hosts[host.name]["ok"] or job.measured(host.name)], say)
    if outcome.has_bundle:
        note = " (--check: nothing was changed)" if request.check else ""
        say.line(f"done{note}; bundle: {outcome.shown_bundle}")


def _quietly(warm: Callable[[], None], *, reached_by_ssh: bool, several: bool) -> None:
    """What is wrong with anything in it is said by who needs it."""
    # Else each answer of a host waits 5 ms for this thread to let Python go.
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    try:
        if reached_by_ssh:
            from eaglelab.remote import ssh  # nobody can be reached before this is loaded

            del ssh
        agent_source()
        warm()
        if several:
            from eaglelab.commands import summary

            del summary  # it is loaded
    except Exception:  # noqa: BLE001 - see above
        return
    finally:
        sys.setswitchinterval(before)


@dataclass
class _Job:
    """What is to be done on each host. `begun` has the contexts of those on which it was begun under their lock."""

    request: Request
    selection: Selection
    outcome: Outcome
    work: Callable[[Context], dict[str, Any]]
    undo: Callable[[Context], None] | None
    over: Callable[[str], None]
    playbook: Path | None
    record: Mapping[str, Any] | None
    looks: bool
    whole: bool
    run: str
    folder: Path
    step: Lockstep | None = None
    begun: dict[str, Context] = field(default_factory=dict)
    turn: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(LOGINS))

    @property
    def puts_all_back(self) -> bool:
        """Whether a failure on one host ends the work on all."""
        return self.request.manner.on_failure == "rollback" and not self.looks and not self.request.check

    @property
    def records(self) -> bool:
        """Whether this run can be gone on with."""
        return self.record is not None and not self.request.check

    @property
    def cause(self) -> str | None:
        """Of nodes of one server: the one that the others failed for."""
        return self.step.to_blame if self.step else None

    def folder_of(self, name: str) -> Path:
        return self.folder / name if len(self.selection.hosts) > 1 else self.folder

    def measured(self, name: str) -> bool:
        """Whether there are figures of a host, also where a setting failed in the end."""
        return (self.folder_of(name) / "measurements.json").is_file()

    def on(self, host: Host, say: Say, stop: Interruption | None, board: Board | None = None) -> None:
        """The work on one host. Raises what it raises."""
        request, outcome, past = self.request, self.outcome, self.request.past
        several = len(self.selection.hosts) > 1
        bundle = Bundle(self.folder_of(host.name), self.run, host.name, masker=host.masker(os.environ))
        if self.playbook is not None:
            bundle.json("inventory.json", host.redacted())
            bundle.text("playbook.yaml", self.playbook.read_text(encoding="utf-8"))
        lock = None if self.looks or request.check else request.command
        speaker = say.for_host(host.name if several else "", bundle.masker, board)
        options, steal = request.options, request.steal_lock
        way = connected(
            self.selection, host, bundle, speaker, options, lock=lock, steal=steal, stop=stop, turn=self.turn
        )
        with _whole_hints(host, request.inventory), way as context:
            context.inventory = request.inventory
            shared = self.whole or self.step is not None
            if self.step is not None:
                context.node = self._member(host.name, self.step, stop)
            done = past.result(host.name) if past and not shared else None
            if done:  # whoever had the lock until now may have gone on with it, too
                outcome.hosts[host.name] = done
                speaker.line(f"run {self.run} has come to its end here meanwhile: nothing is left to do")
                return
            if self.record is not None and self.records:
                context.resumed = self.record["resumed"]
                outcome.resume = PastRun(self.folder, self.record).command_line()
            with self._at_work(context, stop) if lock else nullcontext():
                outcome.hosts[host.name] = {"ok": True, **bundle.masker.mapping(self.work(context))}
        if self.records:
            bundle.json("result.json", outcome.hosts[host.name])

    def _member(self, name: str, step: Lockstep, stop: Interruption | None) -> Member:
        from eaglelab.actions.equal import identity  # here, so that no other command waits for them
        from eaglelab.nodes.member import Member
        from eaglelab.sweep.deal import differences

        return Member(name, step, identity, differences, stop)

    @contextmanager
    def _at_work(self, context: Context, stop: Interruption | None) -> Iterator[None]:
        """What an interrupt has to know; after a failure the outcome keeps it."""
        outcome, name = self.outcome, context.host.name
        self.begun[name] = outcome.at_work[name] = context
        outcome.recover[name] = context.invoke("stop" if self.request.command == "stop" else "rollback")
        if stop is not None:
            stop.begun = True
        yield
        del outcome.at_work[name], outcome.recover[name]


def _report(job: _Job, names: Sequence[str], say: Say) -> None:
    """A page for each host on which all went well, and for those of which something was measured."""
    for name in names if job.records and not job.whole else ():
        if not has_figures(job.folder_of(name)):
            continue
        from eaglelab.report import write  # here, so that no other command waits for it

        write.write_report(job.folder, name, say.line)


@contextmanager
def _whole_hints(host: Host, inventory: str | None) -> Iterator[None]:
    """Those who raise an error may not know the host, or the inventory, that a command in its hint needs."""
    try:
        yield
    except EaglelabError as error:
        error.hint = complete(error.hint, host.named, inventory)
        raise


def _on_all(job: _Job, hosts: list[Host], say: Say) -> None:
    """On several at once. Raises the failure, or one that sums several up."""
    from eaglelab.board import Board
    from eaglelab.commands.summary import gravest, summary_table

    manner, outcome = job.request.manner, job.outcome
    by_name = {host.name: host for host in hosts}
    causes: list[str] = []

    def work(name: str, stop: Interruption) -> None:
        board.at(name, "connecting")
        if job.step is None:
            job.on(by_name[name], say, stop, board)
            return
        try:
            job.on(by_name[name], say, stop, board)
        except BaseException as error:
            job.step.leave(name, error)
            raise
        job.step.leave(name)

    def ended(name: str, end: Ended) -> None:
        job.over(name)
        error = None if end.error is None else _as_ours(name, end.error, causes if job.puts_all_back else [])
        if error is not None and not causes:
            causes.append(name)
        errors[name] = error
        board.ended(name, "done" if error is None else "failed")
        if error is None or error.exit_code in (1, 2):  # nothing is left to be mended
            outcome.at_work.pop(name, None)
            outcome.recover.pop(name, None)
        if error is not None:
            _note(job, name, error, say, board)

    errors: dict[str, EaglelabError | None] = {}
    with Board(say.console, list(by_name)) as board:
        found = Together(list(by_name), work, manner, ended).run()
    if causes and job.puts_all_back and job.undo:
        errors |= _undo_all(job, job.undo, causes[0], errors, say)
    if causes and job.step is not None and job.undo and not job.request.check:
        well = [name for name in job.begun if errors.get(name) is None]
        errors |= _undo_all(job, job.undo, causes[0], errors, say, well)
    say.show(summary_table(by_name, found, errors, outcome.hosts))
    failed = {name: error for name, error in errors.items() if error is not None}
    if failed:
        raise gravest(failed, len(by_name), job.cause)


def _note(job: _Job, name: str, error: EaglelabError, say: Say, board: Board | None) -> None:
    """Says at once what became of a host, and keeps it for the JSON object."""
    masker = job.outcome.masker
    found = {part: masker.text(getattr(error, part)) for part in ("what", "where", "hint")}
    job.outcome.hosts[name] = {**job.outcome.hosts[name], "ok": False, "error": found, "exit_code": error.exit_code}
    say.for_host(name, masker, board).line(f"error: {error}", style="red")


def _as_ours(name: str, error: BaseException, causes: list[str]) -> EaglelabError:
    """`causes`: a host that failed before, and for whose sake this one was ended."""
    if isinstance(error, KeyboardInterrupt | Interrupted) and causes:
        return HostError(f"ended, because {causes[0]} failed", where=name)
    if isinstance(error, EaglelabError):
        return error
    if isinstance(error, KeyboardInterrupt):
        return Interrupted("interrupted before anything was begun", where=name)
    what = f"unexpected: {type(error).__name__}: {error}"
    return EaglelabError(what, where=name, hint="run it again with --debug and report what it prints")


def _undo_all(
    job: _Job,
    undo: Callable[[Context], None],
    cause: str,
    errors: Mapping[str, EaglelabError | None],
    say: Say,
    names: Sequence[str] | None = None,
) -> dict[str, EaglelabError | None]:
    """Puts back what this run has changed on any host, also where all went well. What it could not put back is an error."""
    hosts = [
        name
        for name in (job.begun if names is None else names)
        if not isinstance(errors.get(name), AttentionError | NotOurs)
    ]  # those are a person's business
    found: dict[str, EaglelabError | None] = {}

    def work(name: str, _: Interruption) -> None:
        context = job.begun[name]
        try:
            undo(context)
        except NotOurs:
            raise
        except EaglelabError as error:
            what = f"{cause} failed, and this host could not be put back: {error.what}"
            raise AttentionError(what, where=name, hint=context.invoke("rollback")) from error
        finally:
            context.client.close()

    def ended(name: str, end: Ended) -> None:
        error = end.error if isinstance(end.error, EaglelabError) else None
        if end.error is not None and error is None:
            error = AttentionError(f"not put back: {end.error}", where=name, hint=job.begun[name].invoke("rollback"))
        earlier = None if error else errors.get(name)
        now = found[name] = error or earlier or HostError(f"rolled back, because {cause} failed", where=name)
        if earlier is None:
            _note(job, name, now, say, None)
        if job.records:
            job.begun[name].bundle.json("result.json", job.outcome.hosts[name])

    Together(hosts, work, Manner(job.request.manner.forks, on_failure="continue"), ended).run()
    return found
