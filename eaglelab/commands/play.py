"""Commands that run a playbook: deploy-profiling, rollback, play; begun anew or taken up again."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from eaglelab.actions import ACTIONS
from eaglelab.bundle import Bundle, new_run
from eaglelab.commands.hosts import Selection, connected, select_hosts
from eaglelab.commands.options import filled
from eaglelab.commands.outcome import Outcome
from eaglelab.commands.past import RESUMABLE, PastRun, find_run
from eaglelab.context import Context, Options, complete
from eaglelab.errors import EaglelabError, InputError
from eaglelab.host import Host
from eaglelab.playbook import Playbook, load_playbook
from eaglelab.runner import Runner, check_arguments
from eaglelab.say import Say

__all__ = ["Request", "play", "prepare", "record_of", "require_all", "run_on_hosts", "take_up"]

_NEED_A_SERVER = frozenset({"start", "wait", "generate", "measure", "bench_serving"})


@dataclass(frozen=True)
class Request:
    """What a command line asked for. `vars` override the playbook's; `more` is what else the command takes.

    `resume` names an earlier run, which `take_up` puts into `past`.
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

    def __post_init__(self) -> None:
        """Raises InputError for an option that is there and empty: it must not mean another inventory, or a new run."""
        for option in ("inventory", "resume"):
            filled(getattr(self, option), f"--{option}")

    @property
    def logs(self) -> Path:
        return self.project / "logs"

    @property
    def options(self) -> Options:
        return Options(check=self.check, takeover=self.takeover, accept_drift=self.accept_drift, project=self.project)


def find_playbook(project: Path, name: str) -> Path:
    """A path as given, or a playbook of this project by its name."""
    path = Path(name)
    if path.is_file():
        return path
    ours = project / "playbooks" / (name if name.endswith((".yaml", ".yml")) else f"{name}.yaml")
    if ours.is_file():
        return ours
    known = ", ".join(sorted(file.stem for file in (project / "playbooks").glob("*.yaml")))
    raise InputError(f"there is no playbook '{name}'", where=str(path.parent), hint=f"a file, or one of {known}")


def require_all(host: Host) -> None:
    """Raises InputError that names everything the inventory does not say yet of a host that is to run a server."""
    missing = host.unset()
    try:
        host.require()
    except InputError as first:
        if len(missing) < 2:
            raise
        what = f"not set for host '{host.name}': {', '.join(missing)}"
        raise InputError(what, where=first.where, hint="write these values into inventory.yaml") from first
    host.api_key(os.environ)


def prepare(request: Request, playbook: str) -> tuple[Selection, Playbook]:
    """Reads and checks everything that can be checked before a host is contacted. Raises InputError."""
    selection = select_hosts(request.project, request.host, request.inventory)
    path = request.past.playbook() if request.past else find_playbook(request.project, playbook)
    book = load_playbook(path, actions=ACTIONS, extra_vars=request.vars)
    book = book.select(request.tags, request.skip_tags)
    needs_a_server = any(task.action in _NEED_A_SERVER for task in book.actions())
    for host in selection.hosts:
        check_arguments(book, ACTIONS, {"host": host.redacted(), "run": ""}, request.options)
        if needs_a_server:
            require_all(host)
    return selection, book


def take_up(request: Request, playbook: str, say: Say) -> Request:
    """The request that the run to be resumed was made with; `request` itself where none is. Raises InputError.

    What is given again must agree with it, and so must what the inventory says of where its hosts are.
    """
    if request.resume is None:
        return request
    if request.check:
        raise InputError("--check begins a run of its own", where="--resume", hint="leave one of the two out")
    past = find_run(request.logs, request.resume, request.command, say)
    inventory = past.agree("inventory", _absolute(request.inventory))
    selection = select_hosts(request.project, ",".join(past.hosts), inventory)
    if request.host is not None:
        given = select_hosts(request.project, request.host, inventory)
        past.agree("hosts", [host.name for host in given.hosts])
    past.agree("playbook", playbook)
    for host in selection.hosts:
        past.same_entry(host)
    masker = selection.hosts[0].masker(os.environ)
    return replace(
        request,
        past=past,
        host=",".join(past.hosts),
        inventory=inventory,
        vars=past.agree_all("vars", request.vars, masker),
        more=past.agree_all("more", request.more, masker),
        tags=past.agree("tags", request.tags),
        skip_tags=past.agree("skip_tags", request.skip_tags),
        takeover=past.request["takeover"] or request.takeover,
        accept_drift=past.request["accept_drift"] or request.accept_drift,
    )


def record_of(
    request: Request, playbook: str, book: Playbook, selection: Selection, also: Sequence[Path] = ()
) -> dict[str, Any]:
    """What `take_up` needs to go on with this run: its `request.json`. `also`: files that must be the same then, too."""
    if request.past:
        return {**request.past.request, "resumed": request.past.resumed + 1}
    record = {
        "command": request.command,
        "playbook": playbook,
        "files": [
            {"path": str(path.resolve()), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
            for path in (*book.files, *also)
        ],
        "hosts": [host.name for host in selection.hosts],
        "inventory": _absolute(request.inventory),  # a run may be taken up again from another folder
        **{name: getattr(request, name) for name in ("vars", "more", "tags", "skip_tags")},
        **{name: getattr(request, name) for name in ("takeover", "accept_drift")},
        "resumed": 0,
    }
    for host in selection.hosts:
        record = host.masker(os.environ).mapping(record)
    return record


def _absolute(path: str | None) -> str | None:
    return None if path is None else str(Path(path).resolve())


def play(request: Request, playbook: str, outcome: Outcome, say: Say) -> None:
    """Runs one playbook on the chosen hosts, one after another; a failure ends the command."""
    request = take_up(request, playbook, say)
    selection, book = prepare(request, playbook)
    record = record_of(request, playbook, book, selection) if request.command in RESUMABLE else None

    def work(context: Context) -> dict[str, Any]:
        return Runner(context, ACTIONS).run(book)

    run_on_hosts(request, selection, outcome, say, work, playbook=book.path, record=record)


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
) -> None:
    """Opens a run, then does `work` on each host; what it returns goes under the host's name into the outcome.

    `looks`: it changes nothing, and so takes no host's lock. With `record` the run can be resumed.
    """
    past = request.past
    run = past.run if past else new_run(request.command, time.time())
    folder = request.logs / run
    outcome.run, outcome.bundle, outcome.resume = run, folder, ""
    several = len(selection.hosts) > 1
    if past and past.finished:
        outcome.hosts.update({host: past.result(host) for host in past.hosts})
        say.line(f"run {run} came to its end: nothing is left to do")
        return
    if record and not request.check:
        Bundle(folder, run, "").json("request.json", record)
    for host in selection.hosts:
        outcome.hosts[host.name] = (past and past.result(host.name)) or {"ok": False}
        if outcome.hosts[host.name]["ok"]:
            continue
        bundle = Bundle(folder / host.name if several else folder, run, host.name, masker=host.masker(os.environ))
        outcome.masker = bundle.masker
        if playbook is not None:
            bundle.json("inventory.json", host.redacted())
            bundle.text("playbook.yaml", playbook.read_text(encoding="utf-8"))
        lock = None if looks or request.check else request.command
        speaker = say.for_host(host.name if several else "", bundle.masker)
        way = connected(selection, host, bundle, speaker, request.options, lock=lock, steal=request.steal_lock)
        with _whole_hints(host, request.inventory), way as context:
            context.inventory = request.inventory
            if past and (
                done := past.result(host.name)
            ):  # whoever had the lock until now may have gone on with it, too
                outcome.hosts[host.name] = done
                speaker.line(f"run {run} has come to its end here meanwhile: nothing is left to do")
                continue
            if record and not request.check:
                context.resumed, outcome.resume = record["resumed"], PastRun(folder, record).command_line()
            with _at_work(request, outcome, context) if lock else nullcontext():
                outcome.hosts[host.name] = {"ok": True, **bundle.masker.mapping(work(context))}
        if record and not request.check:
            bundle.json("result.json", outcome.hosts[host.name])
    if record and not request.check:
        from eaglelab.report import write  # here, so that no other command waits for it

        for host in selection.hosts:
            write.write_report(folder, host.name, say.line)
    if outcome.has_bundle:
        note = " (--check: nothing was changed)" if request.check else ""
        say.line(f"done{note}; bundle: {outcome.shown_bundle}")


@contextmanager
def _whole_hints(host: Host, inventory: str | None) -> Iterator[None]:
    """Those who raise an error may not know the host, or the inventory, that a command in its hint needs."""
    try:
        yield
    except EaglelabError as error:
        error.hint = complete(error.hint, host.name, inventory)
        raise


@contextmanager
def _at_work(request: Request, outcome: Outcome, context: Context) -> Iterator[None]:
    """What an interrupt has to know; after a failure the outcome keeps it."""
    outcome.at_work, outcome.recover = context, context.invoke("stop" if request.command == "stop" else "rollback")
    yield
    outcome.at_work, outcome.recover = None, ""
