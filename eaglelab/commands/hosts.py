"""From `--host` to a context: the inventory's entry, the way there, the agent, the lock."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tenacity

from eaglelab.actions.patch import operator
from eaglelab.bundle import Bundle
from eaglelab.context import Context, Options
from eaglelab.errors import InputError
from eaglelab.host import Host, Node
from eaglelab.interruption import Interruption
from eaglelab.inventory import Inventory, load_inventory
from eaglelab.nodes.group import as_nodes, one_server
from eaglelab.remote.client import AgentClient
from eaglelab.remote.endpoint import resolve_endpoint
from eaglelab.remote.hints import AgentFailure
from eaglelab.remote.interruptible import InterruptibleLink
from eaglelab.remote.pipe import Link, LocalLink
from eaglelab.say import Say

__all__ = ["LOGINS", "Selection", "connected", "lab_root", "select_hosts", "take_lock"]

LOGINS = 8
"""At once, by `turn` of `connected`. sshd, which may be that of one jump host for all, drops some of more than ten (MaxStartups)."""

_LOCK_TRIES, _LOCK_PAUSE_S = 20, 0.5
"""A controller that was killed lets go of the lock as soon as its agent sees the stream end: worth a moment."""


def lab_root(project: Path) -> Path:
    """The folder of the embedded lab."""
    return project / ".lab"


@dataclass(frozen=True)
class Selection:
    """The hosts of one command, the lab's with its address filled in."""

    inventory: Inventory
    hosts: tuple[Host, ...]

    @property
    def server(self) -> Node | None:
        """The server that these hosts are all the nodes of, by the place of its rank 0; None where they are not one."""
        return one_server(self.hosts)


def select_hosts(project: Path, names: str | None, inventory: str | None) -> Selection:
    """Reads the inventory and picks. Raises InputError; nothing is contacted."""
    found = load_inventory(Path(inventory) if inventory else project / "inventory.yaml")
    chosen = [_with_lab(project, host) for host in found.select(names, env=os.environ)]
    return Selection(found, as_nodes(chosen, found.hosts, found.groups, lambda host: _address(project, host)))


def _address(project: Path, host: Host) -> str:
    """Where other hosts reach it: what the way there ends at, as far as the inventory and ssh_config say."""
    if host.connection == "local":
        hint = "server: {dist_init_host: ADDRESS} of that host"
        raise InputError(f"where other hosts reach '{host.name}' is not said", where=host.where, hint=hint)
    return resolve_endpoint(_with_lab(project, host)).address


def _with_lab(project: Path, host: Host) -> Host:
    if host.connection != "lab":
        return host
    from eaglelab.lab import lab

    info = lab.info(lab_root(project))
    if info is None:
        raise InputError("the embedded lab is not up", where=host.name, hint="invoke lab-up")
    return host.with_lab(dataclasses.asdict(info))


def _link(host: Host, *, default_host: bool, turn: AbstractContextManager[Any] | None = None) -> Link:
    if host.connection == "local":
        return LocalLink(host.name, sudo=host.sudo)
    # Imported here: fabric takes longer to import than most commands take to run.
    from eaglelab.remote.ssh import SshLink

    return SshLink(host.name, resolve_endpoint(host), sudo=host.sudo, default_host=default_host, turn=turn)


@contextmanager
def connected(
    selection: Selection,
    host: Host,
    bundle: Bundle,
    say: Say,
    options: Options,
    *,
    lock: str | None,
    steal: bool = False,
    stop: Interruption | None = None,
    turn: AbstractContextManager[Any] | None = None,
) -> Iterator[Context]:
    """A context for one host, closed again in the end. `lock`: the command that takes the host's lock, None for none.

    `stop` ends what waits in here, from another thread; `turn` is entered for each login.
    """
    link = _link(host, default_host=host.name == selection.inventory.default_host, turn=turn)
    sleep: Callable[[float], None] = time.sleep
    if stop is not None:
        link, sleep = InterruptibleLink(link, stop), stop.sleep

    def lost(why: str) -> None:
        say.progress(f"{why}; connecting again")

    client = AgentClient(link, host.python, lost=lost, sleep=sleep)
    context = Context(
        host=host, client=client, bundle=bundle, say=say, options=options, api_key=_api_key(host), sleep=sleep
    )
    try:
        if lock:
            take_lock(client, bundle.run, lock, say, steal=steal, sleep=sleep)
        yield context
    finally:
        say.settle()
        client.close()


def _api_key(host: Host) -> str | None:
    """The key, if it is given here. Who needs it has asked for it before; a rollback must work without."""
    try:
        return host.api_key(os.environ)
    except InputError:
        return None


def take_lock(
    client: AgentClient,
    run: str,
    command: str,
    say: Say,
    *,
    steal: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Takes the host's lock for `command`. With `steal` from another run too, which is named first.

    Raises AgentFailure `locked` where another run keeps it.
    """

    def waiting(state: tenacity.RetryCallState) -> None:
        if state.attempt_number == 1 and state.outcome:
            say.line(f"waiting a moment: {_what(state.outcome.exception())}", style="yellow")

    again = tenacity.Retrying(
        retry=tenacity.retry_if_exception(_locked),
        stop=tenacity.stop_after_attempt(1 if steal else _LOCK_TRIES),
        wait=tenacity.wait_fixed(_LOCK_PAUSE_S),
        before_sleep=waiting,
        sleep=sleep,
        reraise=True,
    )
    holder = {"by": operator(), "run": run, "command": command, "since": time.strftime("%Y-%m-%d %H:%M:%S %z")}
    try:
        again(client.lock, holder)
    except AgentFailure as error:
        if not _locked(error):
            raise
        if not steal:
            error.hint = "wait for that run to end, ask its owner, or take the lock over: --steal-lock"
            raise
        say.line(f"taking the lock over: {_what(error)}", style="yellow")
        client.lock(holder, steal=True)


def _locked(error: BaseException) -> bool:
    return isinstance(error, AgentFailure) and error.code == "locked"


def _what(error: BaseException | None) -> str:
    return error.what if isinstance(error, AgentFailure) else ""
