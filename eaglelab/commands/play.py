"""Commands that run a playbook: deploy-profiling, rollback, play; begun anew or taken up again."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from eaglelab.actions import ACTIONS
from eaglelab.commands.hosts import Selection, select_hosts
from eaglelab.commands.on_hosts import run_on_hosts
from eaglelab.commands.outcome import Outcome
from eaglelab.commands.past import RESUMABLE, find_run
from eaglelab.commands.request import Request
from eaglelab.context import Context
from eaglelab.errors import InputError
from eaglelab.host import Host
from eaglelab.nodes.group import refuse_part
from eaglelab.playbook import Playbook, load_playbook
from eaglelab.runner import Runner, check_arguments
from eaglelab.say import Say

__all__ = ["find_playbook", "in_batches", "play", "prepare", "record_of", "require_all", "take_up"]

_NEED_A_SERVER = frozenset({"start", "wait", "generate", "measure", "bench_serving"})


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
    if needs_a_server:
        manner = in_batches(request, book).manner
        refuse_part(selection.hosts, forks=manner.forks, serial=manner.serial, on_failure=manner.on_failure)
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


def in_batches(request: Request, book: Playbook) -> Request:
    """`request` with the playbook's `serial`, unless the command line has one."""
    serial = request.manner.serial or book.serial
    return replace(request, manner=replace(request.manner, serial=serial))


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
    """Runs one playbook on the chosen hosts at once."""
    request = take_up(request, playbook, say)
    selection, book = prepare(request, playbook)
    record = record_of(request, playbook, book, selection) if request.command in RESUMABLE else None

    def undo(context: Context) -> None:
        found = context.found
        if found.changed or found.touched or context.resumed:
            context.say.line("Roll back", style="bold")
            back = ACTIONS["rollback"]
            back.run(context, back.args(keep_found=True))

    def work(context: Context) -> dict[str, Any]:
        return Runner(context, ACTIONS).run(book)

    def warm() -> None:
        for action in dict.fromkeys(task.action for task in book.actions()):
            if (ahead := ACTIONS[action].warm) is not None:
                ahead(request.options)

    run_on_hosts(
        in_batches(request, book),
        selection,
        outcome,
        say,
        work,
        playbook=book.path,
        record=record,
        undo=undo,
        together=any(task.action in _NEED_A_SERVER for task in book.actions()),
        warm=warm,
    )
