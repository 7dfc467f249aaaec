"""bench: one setting after another, each in its own load unless the running server already has it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from eaglelab.actions import ACTIONS
from eaglelab.actions.serve import SettingArguments
from eaglelab.actions.undo import RollbackArguments
from eaglelab.commands.outcome import Outcome
from eaglelab.commands.play import Request, prepare, run_on_hosts
from eaglelab.context import Context
from eaglelab.errors import AttentionError, EaglelabError
from eaglelab.playbook import Playbook
from eaglelab.report.terminal import bench_table
from eaglelab.runner import Runner
from eaglelab.say import Say

__all__ = ["bench"]


def bench(request: Request, steps: tuple[int, ...], outcome: Outcome, say: Say, *, baseline: bool, keep: bool) -> None:
    """Measures each step count (and first the baseline, if asked for), then restores what was changed.

    `keep`: the last server stays up for the next command, which saves its load.
    """
    settings: list[dict[str, Any]] = [{"steps": "baseline", "probed": False}] if baseline else []
    settings += [{"steps": count} for count in steps]
    selection, _ = prepare(replace(request, vars={**request.vars, **settings[0]}), "bench")
    books = [prepare(replace(request, vars={**request.vars, **setting}), "bench")[1] for setting in settings]

    def work(context: Context) -> dict[str, Any]:
        return _bench_host(context, books, keep=keep)

    run_on_hosts(request, selection, outcome, say, work, playbook=books[0].path)


def _bench_host(context: Context, books: list[Playbook], *, keep: bool) -> dict[str, Any]:
    before = context.client.call("status")
    results = []
    try:
        for book in books:
            found = Runner(context, ACTIONS).run(book)
            results.append({"bench": found.get("bench"), "profile": found.get("profile")})
    except EaglelabError as error:
        _show(context)
        if not context.options.check:
            _put_back(context, before, error)
        raise
    _show(context)
    if not context.options.check:
        try:
            _restore(context, before, keep=keep)
        except (EaglelabError, KeyboardInterrupt) as error:
            raise _not_restored(context, error) from error
    return {"settings": results}


def _show(context: Context) -> None:
    """What was measured, also where a later setting failed."""
    if context.found.bench:
        context.say.show(bench_table(context.found.bench))
        if context.simulated:
            context.say.line(f"all figures: {context.simulated}")


def _put_back(context: Context, before: dict[str, Any], failure: EaglelabError) -> None:
    """After a failure outside a setting's own rescue: an earlier setting may have patched files and started a server."""
    if isinstance(failure, AttentionError):
        return  # it names the command that mends the host
    try:
        now = context.client.call("status")
        if (now["record"], now["states"]) != (before["record"], before["states"]):
            context.say.line("Roll back", style="bold")
            ACTIONS["rollback"].run(context, RollbackArguments())
    except (EaglelabError, KeyboardInterrupt) as error:
        raise _not_restored(context, error, f"{failure.what}; then") from failure


def _not_restored(context: Context, error: BaseException, after: str = "all was measured, but") -> AttentionError:
    what = error.what if isinstance(error, EaglelabError) else "interrupted"
    host = context.host.name
    return AttentionError(
        f"{after} the host could not be put back: {what}",
        where=host,
        hint=f"invoke rollback --host {host}",
    )


def _restore(context: Context, before: dict[str, Any], *, keep: bool) -> None:
    """Leaves the host as it was before: what ran then runs again, what was original is original."""
    if keep:
        context.say.line("the server stays up (--keep); invoke rollback puts everything back")
        return
    now, then = context.client.call("status")["record"], before["record"]
    if before["alive"]:
        if now and now["fingerprint"] == then["fingerprint"]:
            return
        context.say.line(
            f"the server that ran before ({then['steps']} steps) is started again; its load goes on by itself",
            style="bold",
        )
        ACTIONS["stop"].run(context, ACTIONS["stop"].args())
        ACTIONS["start"].run(
            context,
            SettingArguments(
                steps="baseline" if then["steps"] is None else then["steps"], profile=then["profile"], folder="before"
            ),
        )
        if context.client.call("status")["record"]["fingerprint"] != then["fingerprint"]:
            what = "its flags, variables or worker files are not all what they were: its run was"
            context.say.line(f"  {what} {then['run']}", style="yellow")
    elif all(item["state"] == "original" for item in before["states"]):
        context.say.line("Put everything back as it was", style="bold")
        ACTIONS["rollback"].run(context, RollbackArguments())
    else:
        context.say.line("Stop the server, as it was before", style="bold")
        ACTIONS["stop"].run(context, ACTIONS["stop"].args())
