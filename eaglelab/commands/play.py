"""Commands that run a playbook: deploy-profiling, rollback, play."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eaglelab.actions import ACTIONS
from eaglelab.bundle import Bundle, new_run
from eaglelab.commands.hosts import Selection, connected, select_hosts
from eaglelab.commands.outcome import Outcome
from eaglelab.context import Context, Options
from eaglelab.errors import InputError
from eaglelab.host import Host
from eaglelab.playbook import Playbook, load_playbook
from eaglelab.runner import Runner, check_arguments
from eaglelab.say import Say

__all__ = ["Request", "play", "prepare", "require_all", "run_on_hosts"]

_NEED_A_SERVER = frozenset({"start", "wait", "generate", "measure"})


@dataclass(frozen=True)
class Request:
    """What a command line asked for. `vars` override the playbook's."""

    command: str
    project: Path
    host: str | None = None
    inventory: str | None = None
    check: bool = False
    takeover: bool = False
    vars: Mapping[str, Any] = field(default_factory=dict)
    tags: Sequence[str] = ()
    skip_tags: Sequence[str] = ()

    @property
    def options(self) -> Options:
        return Options(check=self.check, takeover=self.takeover, project=self.project)


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
    book = load_playbook(find_playbook(request.project, playbook), actions=ACTIONS, extra_vars=request.vars)
    book = book.select(request.tags, request.skip_tags)
    needs_a_server = any(task.action in _NEED_A_SERVER for task in book.actions())
    for host in selection.hosts:
        check_arguments(book, ACTIONS, {"host": host.redacted(), "run": ""}, request.options)
        if needs_a_server:
            require_all(host)
    return selection, book


def play(request: Request, playbook: str, outcome: Outcome, say: Say) -> None:
    """Runs one playbook on the chosen hosts, one after another; a failure ends the command."""
    selection, book = prepare(request, playbook)

    def work(context: Context) -> dict[str, Any]:
        return Runner(context, ACTIONS).run(book)

    run_on_hosts(request, selection, outcome, say, work, playbook=book.path)


def run_on_hosts(
    request: Request,
    selection: Selection,
    outcome: Outcome,
    say: Say,
    work: Callable[[Context], dict[str, Any]],
    *,
    playbook: Path | None = None,
    looks: bool = False,
) -> None:
    """Opens a run, then does `work` on each host; what it returns goes under the host's name into the outcome.

    `looks`: it changes nothing, and so takes no host's lock.
    """
    run = new_run(request.command, time.time())
    folder = request.project / "logs" / run
    outcome.run, outcome.bundle = run, folder
    several = len(selection.hosts) > 1
    for host in selection.hosts:
        outcome.hosts[host.name] = {"ok": False}
        bundle = Bundle(folder / host.name if several else folder, run, host.name, masker=host.masker(os.environ))
        outcome.masker = bundle.masker
        if playbook is not None:
            bundle.json("inventory.json", host.redacted())
            bundle.text("playbook.yaml", playbook.read_text(encoding="utf-8"))
        with connected(
            selection,
            host,
            bundle,
            say.for_host(host.name if several else "", bundle.masker),
            request.options,
            lock=None if looks or request.check else request.command,
        ) as context:
            outcome.hosts[host.name] = {"ok": True, **bundle.masker.mapping(work(context))}
    if outcome.has_bundle:
        note = " (--check: nothing was changed)" if request.check else ""
        say.line(f"done{note}; bundle: {outcome.shown_bundle}")
