"""Servers of `sweep --array` that are gone, of which the host keeps what they left: brought home, and removed in the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from eaglelab.actions.pull import fetch
from eaglelab.context import Context, LogMark
from eaglelab.errors import HostError, NotOurs

__all__ = ["bring_home", "clear_ended", "ended_lines", "ended_tasks", "log_of"]


def ended_lines(status: Mapping[str, Any]) -> Iterator[str]:
    """A line for each run of which something is kept, by the agent's `status`."""
    names: dict[str, list[str]] = {}
    for run, name in status.get("ended") or ():
        names.setdefault(run, []).append(name)
    for run, tasks in names.items():
        yield f"run {run}: {', '.join(tasks)} ended, and what they left is kept"


def ended_tasks(context: Context) -> list[dict[str, Any]]:
    """Those that are not this run's, whichever run they are of; see `Ended.all` of the agent."""
    return list(context.client.call("ended_tasks", silence=60.0, run=context.run)["ended"])


def log_of(task: Mapping[str, Any]) -> str:
    """What the log of a task is named in the bundle of another run: tasks of two runs have the same names."""
    return f"{task['task']}-of-{task['run']}.log"


def bring_home(context: Context, task: Mapping[str, Any]) -> int:
    """Its log, into the bundle. Returns bytes; 0 where it has written nothing. Raises HostError."""
    return fetch(context, LogMark(task["log"], 0), log_of(task)) if task["size"] else 0


def clear_ended(context: Context) -> None:
    """Removes what a host has kept for long enough, once its logs are in the bundle: nobody may have looked at them yet.

    What that runs into is said, and is no failure of the command that it comes after.
    """
    try:
        due = [task for task in ended_tasks(context) if task["due"]]
        home = [task for task in due if _came_home(context, task)]
        if home:
            _remove(context, home)
    except NotOurs:
        raise
    except HostError as error:
        context.say.line(f"  what ended jobs left there is kept on: {error.what}", style="yellow")


def _came_home(context: Context, task: Mapping[str, Any]) -> bool:
    try:
        bring_home(context, task)
    except NotOurs:
        raise
    except HostError as error:
        context.say.line(f"  {task['task']} of run {task['run']} is kept on: {error.what}", style="yellow")
        return False
    return True


def _remove(context: Context, tasks: Sequence[Mapping[str, Any]]) -> None:
    names = [[task["run"], task["task"]] for task in tasks]
    removed = context.client.call("remove_tasks", silence=60.0, run=context.run, tasks=names)["removed"]
    if removed:
        runs = ", ".join(sorted({run for run, _ in removed}))
        what = f"{len(removed)} ended job{'' if len(removed) == 1 else 's'} of earlier runs ({runs})"
        context.say.line(f"  removed there: what {what} left; the logs are in the bundle")
