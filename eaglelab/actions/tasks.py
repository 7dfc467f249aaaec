"""The servers that run at the same time in places of their own (`sweep --array`): what is said of them, and their end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from eaglelab.actions.owner import started_by
from eaglelab.context import Context
from eaglelab.errors import AttentionError
from eaglelab.remote.hints import AgentFailure
from eaglelab.server.launching import named

__all__ = ["EndedTasks", "end_tasks", "task_lines", "tasks_of", "would_end"]

_SILENCE_S = 180.0
"""Slurm waits before it kills, and then for the node's epilog."""


def tasks_of(status: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Those in the agent's `status`, each with `run`, `task` and what is known of its server."""
    return list(status.get("tasks") or ())


def task_lines(status: Mapping[str, Any]) -> Iterator[str]:
    """A line for each."""
    for task in tasks_of(status):
        record = task["record"]
        yield f"task {task['task']} of run {task['run']}: {named(record) if record else 'no readable record'}{_state(task)}"


def _state(task: Mapping[str, Any]) -> str:
    if task.get("unknown"):
        return f"; nothing can be said of it: {task['unknown']}"
    if task.get("queued"):
        return f", queued: {task['queued']}"
    ended = task.get("exit") or {}
    if not task["alive"]:
        return f", ended ({ended.get('why') or ended.get('code')})"
    port = f", port {task['port']}" if task.get("port") else ""
    return f" on {task['node']}{port}" if task.get("node") else port


class EndedTasks(NamedTuple):
    """Which `stopped`, and whether anything of those that have ended, now or earlier, is `kept` on the host."""

    stopped: list[str]
    kept: bool = False


def end_tasks(context: Context, of: str | None, grace: float) -> EndedTasks:
    """Ends those of run `of`, or all, and says which and whose they were. Raises AttentionError where one does not end."""
    status = context.client.call("status") if of is None else {"tasks": ()}
    if "tasks" not in status:
        return EndedTasks([])  # an agent that knows of none
    for task in tasks_of(status):
        record = task["record"]
        whose = f", {started_by(record)}" if record else ""
        context.say.line(f"  ending task {task['task']} of run {task['run']}{whose}")

    def news(beat: Mapping[str, Any]) -> None:
        context.say.progress(f"waiting for jobs to end: {', '.join(map(str, beat.get('stopping', ())))}")

    try:
        answer = context.client.call("end_tasks", silence=_SILENCE_S, news=news, run=context.run, of=of, grace=grace)
    except AgentFailure as error:
        raise AttentionError(error.what, where=context.host.name, hint=context.invoke("rollback")) from error
    if of is None and answer["stopped"]:
        context.say.line(f"  what they left is kept there for a while: {context.invoke('logs')} brings their logs home")
    return EndedTasks(list(answer["stopped"]), bool(answer.get("kept")))


def would_end(context: Context, status: Mapping[str, Any]) -> bool:
    """Says which would be ended; whether there are any."""
    for line in task_lines(status):
        context.say.line(f"  would end {line}")
    return bool(tasks_of(status))
