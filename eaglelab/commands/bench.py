"""bench: one setting after another, each in its own load unless the running server already has it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from eaglelab.actions import ACTIONS
from eaglelab.actions.serve import SettingArguments, wanted_fingerprint
from eaglelab.actions.undo import RollbackArguments
from eaglelab.commands.outcome import Outcome
from eaglelab.commands.play import Request, prepare, record_of, run_on_hosts, take_up
from eaglelab.context import Context
from eaglelab.errors import AttentionError, EaglelabError, Interrupted, LockLost, NotOurs
from eaglelab.playbook import Playbook
from eaglelab.report.terminal import bench_table
from eaglelab.runner import Runner, arguments_of
from eaglelab.say import Say

__all__ = ["bench"]


def bench(
    request: Request, steps: tuple[int, ...] | None, outcome: Outcome, say: Say, *, baseline: bool, keep: bool
) -> None:
    """Measures each step count (and first the baseline, if asked for), then restores what was changed.

    `steps` None: 2, or what the run that is taken up had. `keep`: the last server stays up for the next command, which
    saves its load.
    """
    request = take_up(replace(request, more={"steps": steps, "baseline": baseline, "keep": keep}), "bench", say)
    more = {**request.more, "steps": request.more["steps"] or (2,)}
    settings: list[dict[str, Any]] = [{"steps": "baseline", "probed": False}] if more["baseline"] else []
    settings += [{"steps": count} for count in more["steps"]]
    selection, _ = prepare(replace(request, vars={**request.vars, **settings[0]}), "bench")
    books = [prepare(replace(request, vars={**request.vars, **setting}), "bench")[1] for setting in settings]
    record = record_of(replace(request, more=more), "bench", books[0], selection)

    def work(context: Context) -> dict[str, Any]:
        return _bench_host(context, books, keep=more["keep"])

    run_on_hosts(request, selection, outcome, say, work, playbook=books[0].path, record=record)


def _bench_host(context: Context, books: list[Playbook], *, keep: bool) -> dict[str, Any]:
    before = _before(context)
    context.guarded += 1
    try:
        results = _measure_all(context, books, before)
        _show(context)
        if not context.options.check:
            _leave(context, before, keep=keep)
    finally:
        context.guarded -= 1
    return {"settings": results}


def _measure_all(context: Context, books: list[Playbook], before: dict[str, Any]) -> list[dict[str, Any]]:
    try:
        return [_setting(context, book) for book in books]
    except (EaglelabError, KeyboardInterrupt) as error:
        _show(context)
        failure = _named(context, error)
        # An attention error names the command that mends the host; and one that is somebody else's by now is left alone.
        if not context.options.check and not isinstance(failure, AttentionError | NotOurs):
            with _or_attention(context, f"{failure.what}; then"):
                _put_back(context, before)
        raise failure from error


def _leave(context: Context, before: dict[str, Any], *, keep: bool) -> None:
    """After the last setting. Whoever interrupts that gets the originals back and no server."""
    with _or_attention(context, "all was measured, but"):
        try:
            _restore(context, before, keep=keep)
        except KeyboardInterrupt as error:
            _put_back(context, before)
            raise _named(context, error) from error


def _named(context: Context, error: EaglelabError | KeyboardInterrupt) -> EaglelabError:
    return error if isinstance(error, EaglelabError) else Interrupted("interrupted", where=context.host.name)


def _before(context: Context) -> dict[str, Any]:
    """How the host was when this run first began."""
    earlier = context.bundle.read("before.json") if context.resumed else None
    if earlier is not None:
        return earlier
    before = context.client.call("status")
    if not context.options.check:
        context.bundle.json("before.json", before)
    return before


def _setting(context: Context, book: Playbook) -> dict[str, Any]:
    """One setting's results; from the bundle, where an earlier try has them and its server would be started just so."""
    name = str(book.variables({"host": {}, "run": ""})["folder"])
    done = context.bundle.read(f"{name}/done.json") if context.resumed else None
    if done is not None and _still(context, book, done["fingerprint"]):
        context.say.line(f"holds since {done['at']}: {name}", style="bold")
        context.bundle.event(name, "bench", "held", result=done["result"])
        return dict(done["result"])
    found = Runner(context, ACTIONS).run(book)
    result = {"bench": found.get("bench"), "profile": found.get("profile")}
    record = context.found.record
    if record is not None and not context.options.check:
        at = time.strftime("%Y-%m-%d %H:%M")
        context.bundle.json(f"{name}/done.json", {"fingerprint": record["fingerprint"], "at": at, "result": result})
    return result


def _still(context: Context, book: Playbook, fingerprint: str) -> bool:
    """Whether the setting is what it was when it was measured; its requests are then taken from the bundle."""
    if not context.found.plans:
        for name in ("doctor", "plan"):
            ACTIONS[name].run(context, arguments_of(book, ACTIONS, name, context))
    start = arguments_of(book, ACTIONS, "start", context)
    if wanted_fingerprint(context, start, patched=True) != fingerprint:
        return False
    found = context.found
    found.record, found.steps = {"fingerprint": fingerprint}, start.setting(context).steps
    found.server_info = found.server_info or context.bundle.read("server_info.json") or {}
    measure = ACTIONS["measure"]
    return bool(measure.holds and measure.holds(context, arguments_of(book, ACTIONS, "measure", context), {}))


def _show(context: Context) -> None:
    """What was measured, also where a later setting failed."""
    if context.found.bench:
        context.say.show(bench_table(context.found.bench))
        if context.simulated:
            context.say.line(f"all figures: {context.simulated}")


def _put_back(context: Context, before: dict[str, Any]) -> None:
    """After what no setting's own `rescue` saw: an earlier setting may have patched files and started a server.

    An interrupt in the middle of it does not keep it from being done.
    """

    def once() -> None:
        now = context.client.call("status")
        if (now["record"], now["states"]) != (before["record"], before["states"]):
            context.say.line("Roll back", style="bold")
            ACTIONS["rollback"].run(context, RollbackArguments(keep_found=True))

    try:
        once()
    except KeyboardInterrupt:
        once()


@contextmanager
def _or_attention(context: Context, after: str) -> Iterator[None]:
    """A host that cannot be put back is a person's business."""
    try:
        yield
    except (LockLost, Interrupted):
        raise
    except (EaglelabError, KeyboardInterrupt) as error:
        host = context.host.name
        raise AttentionError(
            f"{after} the host could not be put back: {_named(context, error).what}",
            where=host,
            hint=context.invoke("rollback"),
        ) from error


def _restore(context: Context, before: dict[str, Any], *, keep: bool) -> None:
    """Leaves the host as it was before: what ran then runs again, what was original is original."""
    if keep:
        context.say.line(f"the server stays up (--keep); {context.invoke('rollback')} puts everything back")
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
