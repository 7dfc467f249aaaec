"""Runs a playbook's tasks on one host, in order, with rescue and always. What an action does is its own business."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import tenacity
from pydantic import ValidationError

from eaglelab.actions.base import Action
from eaglelab.context import Context, Options
from eaglelab.errors import AttentionError, EaglelabError, HostError, InputError, Interrupted, NotOurs
from eaglelab.playbook import ActionTask, Block, Entry, Playbook
from eaglelab.templating import TemplateError, condition, render
from eaglelab.tries import Tries

__all__ = ["Runner", "arguments_of", "check_arguments"]


def check_arguments(
    playbook: Playbook, actions: Mapping[str, Action], builtins: Mapping[str, Any], options: Options
) -> None:
    """Fills in every argument that needs no earlier result, so that a wrong value is refused before a host is touched.

    Raises InputError with the task's file and line.
    """
    variables = playbook.variables(builtins)
    for task in playbook.actions():
        if all(use.name in variables for use in task.uses):
            action = actions[task.action]
            args = _arguments(task, action, variables, InputError)
            if action.check:
                action.check(options, args)


def _arguments(
    task: ActionTask, action: Action, variables: Mapping[str, Any], refusal: type[EaglelabError] = EaglelabError
) -> Any:
    try:
        return action.args.model_validate(render(task.args, variables))
    except ValidationError as error:
        first = error.errors()[0]
        place = str(first["loc"][0]) if first["loc"] else task.action
        raise refusal(
            f"{task.action}: {place} cannot be {first['input']!r}: {first['msg'].removeprefix('Value error, ')}",
            where=task.where,
            hint=f"check the variables that `{place}` is made from",
        ) from error
    except TemplateError as error:
        raise refusal(f"{task.action}: {error.what}", where=task.where, hint=error.hint) from error


def arguments_of(playbook: Playbook, actions: Mapping[str, Action], action: str, context: Context) -> Any:
    """What the first task of a playbook that names `action` would be done with, if it needs no earlier result."""
    variables = playbook.variables({"host": context.host.redacted(), "run": context.run})
    task = next(task for task in playbook.actions() if task.action == action)
    return _arguments(task, actions[action], variables)


@dataclass
class Runner:
    """One playbook on one host. `results` keeps what `register` named, but for what another node found for all."""

    context: Context
    actions: Mapping[str, Action]
    clock: Callable[[], float] = time.monotonic
    results: dict[str, Any] = field(default_factory=dict)
    _variables: dict[str, Any] = field(default_factory=dict)
    _given: frozenset[str] = frozenset()
    _tries: Tries = field(init=False)

    def run(self, playbook: Playbook) -> dict[str, Any]:
        """Runs all tasks. Raises the failure that was not rescued; KeyboardInterrupt becomes Interrupted (130)."""
        self._variables = playbook.variables({"host": self.context.host.redacted(), "run": self.context.run})
        self._given = frozenset(self._variables)
        self._tries = Tries(self.context.bundle, playbook, resumed=self.context.begun_before)
        try:
            self._entries(playbook.tasks)
        except KeyboardInterrupt as error:
            raise self._interrupted() from error
        return self.results

    def _interrupted(self) -> Interrupted:
        status, back = self.context.invoke("status"), self.context.invoke("rollback")
        hint = f"{status} shows what is there, {back} puts it back"
        return Interrupted("interrupted", where=self.context.host.name, hint=hint)

    def _entries(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            if not self._wanted(entry):
                self._skip(entry)
            elif isinstance(entry, Block):
                self._block(entry)
            else:
                self._task(entry)

    def _wanted(self, entry: Entry) -> bool:
        if not isinstance(entry.when, str):
            return entry.when is not False
        try:
            return condition(entry.when, self._variables)
        except TemplateError as error:
            if self._undecided(entry):
                return False
            raise EaglelabError(f"when: {error.what}", where=entry.where, hint=error.hint) from error

    def _undecided(self, entry: Entry) -> bool:
        """Whether it depends on a result, which a check does not have; that is said."""
        undecided = self.context.options.check and any(use.name not in self._given for use in entry.uses)
        if undecided:
            self.context.say.line(f"{entry.name}: decided at run time")
        return undecided

    def _skip(self, entry: Entry) -> None:
        if isinstance(entry, Block):
            self.context.bundle.event(entry.name, "block", "skipped")
            for inner in (*entry.block, *entry.rescue, *entry.always):
                self._skip(inner)
            return
        self.context.bundle.event(entry.name, entry.action, "skipped")
        if entry.register:
            self._variables[entry.register] = {"skipped": True}

    def _block(self, block: Block) -> None:
        """The failure that leads into `rescue` is what a `fail` in there raises again. `always` runs in any case.

        But for a host that is not this run's (any more): nothing is done there.
        """
        try:
            with self._guard(block):
                self._entries(block.block)
        except NotOurs:
            raise
        except BaseException:
            try:
                self._entries(block.always)
            except Exception as later:  # noqa: BLE001 - the failure that came first stays the failure
                self.context.say.line(str(later), style="red")
            raise
        with self._guard(block, (KeyboardInterrupt,)):
            self._entries(block.always)

    @contextmanager
    def _guard(
        self, block: Block, kinds: tuple[type[BaseException], ...] = (Exception, KeyboardInterrupt)
    ) -> Iterator[None]:
        """What fails in here with one of `kinds` leads into `rescue`."""
        guarded = bool(block.rescue) and not self.context.options.check  # a check leaves nothing to put back
        self.context.guarded += guarded
        try:
            yield
        except NotOurs:
            raise
        except kinds as error:
            if not guarded:
                raise
            self._rescue(block, self._failure(error))
            if self.context.node is not None:
                self.context.node.again(self.context)
        finally:
            self.context.guarded -= guarded

    def _failure(self, error: BaseException) -> EaglelabError:
        """A bug of ours is no reason to leave a host half done, so it leads into `rescue` like any other failure."""
        if isinstance(error, EaglelabError):
            return error
        if isinstance(error, KeyboardInterrupt):
            return self._interrupted()
        return HostError(
            f"unexpected: {type(error).__name__}: {error}",
            where=self.context.host.name,
            hint="run it again with --debug and report what it prints",
        )

    def _rescue(self, block: Block, failure: EaglelabError) -> None:
        """Every task of `rescue` gets its turn: a log that cannot be fetched must not keep a rollback from happening."""
        interrupted = isinstance(failure, Interrupted)  # somebody who stopped a playbook wants it to end
        if not interrupted:
            self.context.say.line(f"  failed: {failure.what.splitlines()[0]}", style="red")
        unmended: EaglelabError | None = None
        mended = True
        for entry in block.rescue:
            try:
                if isinstance(entry, ActionTask) and entry.action == "fail" and self._wanted(entry):
                    self.context.bundle.event(entry.name, entry.action, "failed", error=failure.what)
                    mended = False
                    break
                interrupted |= self._put_back(entry)
            except NotOurs:
                raise
            except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - what puts things back may come next
                self.context.say.line(str(error), style="red")
                mended = False
                if self._restores(entry):
                    unmended = self._attention(failure, error)
        if unmended:
            raise unmended
        if interrupted and not isinstance(failure, Interrupted):
            raise Interrupted(f"interrupted, after: {failure.what}", where=failure.where, hint=failure.hint)
        if interrupted or not mended:
            raise failure

    def _put_back(self, entry: Entry) -> bool:
        """One entry of a `rescue`. An interrupt ends it, but what restores is done nevertheless. Says whether one came."""
        try:
            self._entries([entry])
        except KeyboardInterrupt:
            if self._restores(entry):
                self._entries([entry])
            return True
        return False

    def _restores(self, entry: Entry) -> bool:
        return isinstance(entry, Block) or self.actions[entry.action].restores

    def _attention(self, failure: EaglelabError, error: BaseException) -> AttentionError:
        host = self.context.host.name
        what = self._failure(error).what
        hint = error.hint if isinstance(error, AttentionError) else self.context.invoke("rollback")
        unmended = AttentionError(f"{failure.what}\nthen putting things back failed too: {what}", where=host, hint=hint)
        unmended.__cause__ = error
        return unmended

    def _task(self, task: ActionTask) -> None:
        context, action = self.context, self.actions[task.action]
        try:
            args = _arguments(task, action, self._variables)
        except EaglelabError:
            if self._undecided(task):
                self._skip(task)
                return
            raise
        key = self._tries.key(task, args)

        def do() -> dict[str, Any]:
            held = self._held(task, args, key)
            if held is not None:
                return held
            context.client.doing(task.name)
            context.say.line(task.name, style="bold")
            return self._perform(task, args, key)

        def follow() -> None:
            if action.follow:
                action.follow(context, args)

        result = do() if context.node is None else context.node.perform(context, task.name, action, do, follow)
        if task.register:
            self._variables[task.register] = result
            if context.node is None or context.node.first or action.nodes != "first":
                self.results[task.register] = result

    def _held(self, task: ActionTask, args: Any, key: str) -> dict[str, Any] | None:
        """The result of an earlier try of this run, if it is true still."""
        context, holds = self.context, self.actions[task.action].holds
        earlier = self._tries.result(key) if holds else None
        if holds is None or earlier is None or not holds(context, args, earlier.result):
            return None
        context.say.line(f"holds since {earlier.at}: {task.name}", style="bold")
        context.bundle.event(task.name, task.action, "held", key=key, since=earlier.since, result=earlier.result)
        return earlier.result

    def _perform(self, task: ActionTask, args: Any, key: str) -> dict[str, Any]:
        context, action = self.context, self.actions[task.action]
        began = self.clock()
        perform = action.preview if context.options.check and action.preview else action.run
        context.bundle.event(task.name, task.action, "started", check=context.options.check)
        try:
            result = self._attempts(task)(perform, context, args)
        except BaseException as error:
            what = error.what if isinstance(error, EaglelabError) else f"{type(error).__name__}: {error}"
            context.bundle.event(task.name, task.action, "failed", seconds=round(self.clock() - began, 3), error=what)
            raise
        finally:
            context.say.settle()
        seconds = round(self.clock() - began, 3)
        context.bundle.event(task.name, task.action, "ok", seconds=seconds, key=key, result=result)
        return result

    def _attempts(self, task: ActionTask) -> tenacity.Retrying:
        def again(state: tenacity.RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            what = error.what.splitlines()[0] if isinstance(error, HostError) else "failed"
            self.context.say.line(f"  {what}; attempt {state.attempt_number + 1} of {1 + task.retries}", style="yellow")

        return tenacity.Retrying(
            retry=tenacity.retry_if_exception(
                lambda error: isinstance(error, HostError) and not isinstance(error, NotOurs)
            ),
            stop=tenacity.stop_after_attempt(1 + task.retries),
            wait=tenacity.wait_fixed(task.delay),
            before_sleep=again,
            sleep=self.context.sleep,
            reraise=True,
        )
