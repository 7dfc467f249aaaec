"""Runs a playbook's tasks on one host, in order, with rescue and always. What an action does is its own business."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tenacity
from pydantic import ValidationError

from eaglelab.actions.base import Action
from eaglelab.context import Context
from eaglelab.errors import AttentionError, EaglelabError, InputError, Interrupted
from eaglelab.playbook import ActionTask, Block, Entry, Playbook
from eaglelab.templating import condition, render

__all__ = ["Runner"]


@dataclass
class Runner:
    """One playbook on one host. `results` keeps what `register` named."""

    context: Context
    actions: Mapping[str, Action]
    clock: Callable[[], float] = time.monotonic
    results: dict[str, Any] = field(default_factory=dict)
    _variables: dict[str, Any] = field(default_factory=dict)

    def run(self, playbook: Playbook) -> dict[str, Any]:
        """Runs all tasks. Raises the failure that was not rescued; KeyboardInterrupt becomes Interrupted (130)."""
        builtins = {"host": self.context.host.redacted(), "run": self.context.run}
        self._variables = playbook.variables(builtins)
        try:
            self._entries(playbook.tasks)
        except KeyboardInterrupt as error:
            raise Interrupted(
                "interrupted", where=self.context.host.name, hint=f"invoke status --host {self.context.host.name}"
            ) from error
        return self.results

    def _entries(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            if not self._wanted(entry.when):
                self._skip(entry)
            elif isinstance(entry, Block):
                self._block(entry)
            else:
                self._task(entry)

    def _skip(self, entry: Entry) -> None:
        if isinstance(entry, Block):
            self.context.bundle.event(entry.name, "block", "skipped")
            return
        self.context.bundle.event(entry.name, entry.action, "skipped")
        if entry.register:
            self._variables[entry.register] = {"skipped": True}

    def _block(self, block: Block) -> None:
        """The failure that leads into `rescue` is what a `fail` in there raises again. `always` runs in any case."""
        try:
            self._entries(block.block)
        except (EaglelabError, KeyboardInterrupt) as error:
            if not block.rescue:
                raise
            failure = (
                error if isinstance(error, EaglelabError) else Interrupted("interrupted", where=self.context.host.name)
            )
            self._rescue(block, failure)
        finally:
            self._entries(block.always)

    def _rescue(self, block: Block, failure: EaglelabError) -> None:
        """Every task of `rescue` gets its turn: a log that cannot be fetched must not keep a rollback from happening."""
        self.context.say.line(str(failure), style="red")
        unmended: EaglelabError | None = None
        for entry in block.rescue:
            if isinstance(entry, ActionTask) and entry.action == "fail":
                self.context.bundle.event(entry.name, entry.action, "failed", error=failure.what)
                raise unmended or failure
            try:
                self._entries([entry])
            except EaglelabError as error:
                self.context.say.line(str(error), style="red")
                if isinstance(entry, Block) or self.actions[entry.action].restores:
                    unmended = self._attention(failure, error)
        if unmended:
            raise unmended

    def _attention(self, failure: EaglelabError, error: EaglelabError) -> AttentionError:
        host = self.context.host.name
        hint = error.hint if isinstance(error, AttentionError) else f"invoke rollback --host {host}"
        return AttentionError(
            f"{failure.what}; then putting things back failed too: {error.what}", where=host, hint=hint
        )

    def _task(self, task: ActionTask) -> None:
        context, action = self.context, self.actions[task.action]
        args = self._arguments(task, action)
        context.say.line(task.name, style="bold")
        began = self.clock()
        perform = action.preview if context.options.check and action.preview else action.run
        context.bundle.event(task.name, task.action, "started", check=context.options.check)
        try:
            result = self._attempts(task)(perform, context, args)
        except BaseException as error:
            what = error.what if isinstance(error, EaglelabError) else type(error).__name__
            context.bundle.event(task.name, task.action, "failed", seconds=round(self.clock() - began, 3), error=what)
            raise
        finally:
            context.say.settle()
        context.bundle.event(task.name, task.action, "ok", seconds=round(self.clock() - began, 3), result=result)
        if task.register:
            self._variables[task.register] = self.results[task.register] = result

    def _arguments(self, task: ActionTask, action: Action) -> Any:
        rendered = render(task.args, self._variables)
        try:
            return action.args.model_validate(rendered)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            raise InputError(
                f"{task.action}: {place}: {first['msg']}",
                where=task.where,
                hint="see the variables that this task uses",
            ) from error

    def _attempts(self, task: ActionTask) -> tenacity.Retrying:
        return tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(EaglelabError),
            stop=tenacity.stop_after_attempt(1 + task.retries),
            wait=tenacity.wait_fixed(task.delay),
            sleep=self.context.sleep,
            reraise=True,
        )

    def _wanted(self, when: str | bool | None) -> bool:
        if when is None or isinstance(when, bool):
            return when is not False
        return condition(when, self._variables)
